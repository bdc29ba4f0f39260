"""A whole round in one process, with what it cost: for the simulator and for measuring."""

import os
from collections import deque
from collections.abc import Callable, Mapping
from time import process_time
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcompass.secure_aggregation.member import MaskingMember
from fedcompass.secure_aggregation.message_codec import to_bytes
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

_P = ParamSpec("_P")
_T = TypeVar("_T")


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
    clock = _Clock(ServerRound(terms))
    members = {name: MaskingMember(name, Unsigned(), os.urandom) for name in terms.members}
    waiting: deque[Send] = deque()  # not delivered yet: one masked vector is in memory at a time
    for name, member in members.items():
        waiting += clock.answered(clock.at_member(member.begin, terms, vectors[name], 1.0))
    while clock.end is None:
        send = waiting.popleft()
        clock.delivered(send.message)
        for answer in clock.at_member(members[send.to].handle, send.message):
            waiting += clock.answered(answer)
    count = len(terms.members)
    return clock.end, RoundCost(
        bytes_up=clock.up,
        bytes_down=clock.down,
        member_seconds=clock.members / count,
        server_seconds=clock.server,
    )


class _Clock:
    """A server that counts bytes, and the CPU time of its own and its members' work."""

    def __init__(self, machine: ServerRound) -> None:
        self.end: SumOpened | RoundFailed | None = None
        self.up = self.down = 0
        self.members = self.server = 0.0
        self._machine = machine
        self._measured: tuple[ToMember, int] | None = None  # a message often goes to all

    def at_member(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        began = process_time()
        result = work(*args, **kwargs)
        self.members += process_time() - began
        return result

    def answered(self, answer: FromMember) -> list[Send]:
        """Hand an answer to the server; what it wants sent."""
        self.up += len(to_bytes(answer))
        began = process_time()
        outputs = self._machine.handle(answer)
        self.server += process_time() - began
        for output in outputs:
            if not isinstance(output, Send):
                self.end = output
        return [output for output in outputs if isinstance(output, Send)]

    def delivered(self, message: ToMember) -> None:
        if self._measured is None or self._measured[0] is not message:
            self._measured = message, len(to_bytes(message))
        self.down += self._measured[1]
