"""A whole round in one process, with what it cost: for the simulator and for measuring."""

import os
from collections.abc import Mapping
from time import process_time

import numpy as np
from numpy.typing import NDArray

from fedcompass.secure_aggregation.codec import to_bytes
from fedcompass.secure_aggregation.member import MaskingMember
from fedcompass.secure_aggregation.messages import (
    FromMember,
    RoundFailed,
    Send,
    SumOpened,
    ToMember,
    Unsigned,
)
from fedcompass.secure_aggregation.server_round import ServerRound
from fedcompass.secure_aggregation.terms import Terms
from fedcompass.vocabulary import ClientId, Seconds, fact

__all__ = ["RoundCost", "open_locally"]


@fact
class RoundCost:
    """What a round took.

    bytes_up: that its members sent, all together.
    bytes_down: that the server sent.
    member_seconds: CPU time of a member, on average.
    server_seconds: CPU time of the server.
    """

    bytes_up: int
    bytes_down: int
    member_seconds: Seconds
    server_seconds: Seconds


def open_locally(
    terms: Terms, vectors: Mapping[ClientId, NDArray[np.float64]]
) -> tuple[SumOpened | RoundFailed, RoundCost]:
    """Let the members of these vectors, which are weighted already, go through all phases.

    Raises:
        EncodingError: a value is beyond the clip.
    """
    up = down = 0
    at_members = at_server = 0.0
    server = ServerRound(terms)
    members = {name: MaskingMember(name, Unsigned(), os.urandom) for name in terms.members}
    waiting: list[FromMember] = []
    began = process_time()
    for name, member in members.items():
        waiting.append(member.begin(terms, vectors[name], 1.0))
    at_members += process_time() - began
    sizes: dict[int, int] = {}  # of a message that goes to many
    while True:
        message = waiting.pop(0)
        up += len(to_bytes(message))
        began = process_time()
        outputs = server.handle(message)
        at_server += process_time() - began
        for output in outputs:
            if not isinstance(output, Send):
                count = len(terms.members)
                return output, RoundCost(
                    bytes_up=up,
                    bytes_down=down,
                    member_seconds=at_members / count,
                    server_seconds=at_server,
                )
            down += _size(output.message, sizes)
            began = process_time()
            waiting += members[output.to].handle(output.message)
            at_members += process_time() - began
        if outputs:
            sizes.clear()


def _size(message: ToMember, known: dict[int, int]) -> int:
    if id(message) not in known:
        known[id(message)] = len(to_bytes(message))
    return known[id(message)]
