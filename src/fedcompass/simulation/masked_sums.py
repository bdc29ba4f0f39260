"""Sums of simulated clients' updates, each opened by a real secure round, and what that cost."""

import os
from collections import deque
from collections.abc import Callable, Mapping
from time import process_time
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedcompass.aggregation.layout import FlatState
from fedcompass.aggregation.saved_tensors import named_state, restored_state
from fedcompass.errors import EncodingError
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
from fedcompass.secure_aggregation.terms import Terms, terms_for
from fedcompass.secure_aggregation.vectors import WaitingUpdate, weighted_vector
from fedcompass.settings.secure import SecureSettings
from fedcompass.summed_merges import Asked, OpenedSum, state_of_sum, summed_length
from fedcompass.vocabulary import ClientId, Seconds, TaskId, fact

__all__ = ["MaskedSums", "RoundCost", "open_locally"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class MaskedSums:
    """A `SumSource`: keeps what sites would keep, and plays their part in every round.

    Args:
        settings: how values become integers.
        like: the global model.
        max_norm: clients scale changes that are larger down to it; None: they do not.
    """

    def __init__(
        self, settings: SecureSettings, like: FlatState, max_norm: float | None = None
    ) -> None:
        self._settings, self._like, self._max_norm = settings, like, max_norm
        self._kept: dict[TaskId, FlatState] = {}  # on the CPU
        self.merges = self.bytes_up = self.bytes_down = 0
        self.member_seconds: Seconds = 0.0  # of CPU, of the members of all rounds on average
        self.server_seconds: Seconds = 0.0

    def keep(self, client: ClientId, task: TaskId, update: FlatState | None) -> None:
        """A client's update is ready; it stays with the client."""
        assert update is not None  # simulated clients are here
        self._kept[task] = update.to("cpu").clone()

    def opened(self, number: int, asked: Asked) -> OpenedSum:
        """Let those asked mask their updates, and open the sum.

        Raises:
            EncodingError: a weighted update is beyond the clip; naming the client.
        """
        vectors = {}
        for client, tasks in asked.items():
            updates = [(_numpy(self._kept[task]), weights) for task, weights in tasks.items()]
            vectors[client] = weighted_vector(updates, self._max_norm)
            self._check_clip(client, vectors[client])
        terms = terms_for(
            "simulation",
            number,
            tuple(vectors),
            summed_length(self._like),
            clip=self._settings.clip,
            bits=self._settings.bits,
        )
        end, cost = open_locally(terms, vectors)
        assert isinstance(end, SumOpened)  # simulated clients do not lie, nor vanish in a round
        for tasks in asked.values():
            for task in tasks:
                del self._kept[task]
        self.merges += 1
        self.bytes_up += cost.bytes_up
        self.bytes_down += cost.bytes_down
        self.member_seconds += cost.member_seconds
        self.server_seconds += cost.server_seconds
        notes = {"bytes_up": cost.bytes_up, "bytes_down": cost.bytes_down}
        sums = state_of_sum(end.values, self._like)
        return OpenedSum(sums, tuple(asked), notes={"masked": notes})

    def _check_clip(self, client: ClientId, vector: NDArray[np.float64]) -> None:
        largest = float(np.abs(vector).max(initial=0.0))
        if largest > self._settings.clip:
            raise EncodingError(
                f"the largest weighted value of client {client} is {largest:g}; secure.clip "
                f"allows {self._settings.clip:g}. Set secure.clip to more"
            )

    def summary(self) -> dict[str, Any]:
        """What is recorded of a run: no times, so that runs compare equal."""
        return {
            "masked_merges": self.merges,
            "masked_bytes_up": self.bytes_up,
            "masked_bytes_down": self.bytes_down,
        }

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What waits at the clients, for a checkpoint."""
        tensors: dict[str, Tensor] = {}
        for task, update in self._kept.items():
            tensors |= named_state(f"masked.{task}", update)
        facts = {
            "kept": list(self._kept),
            **self.summary(),
            "seconds": [self.member_seconds, self.server_seconds],
        }
        return tensors, facts

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
        self._kept = {}
        for task in facts["kept"]:
            self._kept[task] = restored_state(tensors, f"masked.{task}", self._like).to("cpu")
        self.merges = facts["masked_merges"]
        self.bytes_up, self.bytes_down = facts["masked_bytes_up"], facts["masked_bytes_down"]
        self.member_seconds, self.server_seconds = facts["seconds"]


def _numpy(update: FlatState) -> WaitingUpdate:
    return WaitingUpdate(trainable=update.trainable.numpy(), averaged=update.averaged.numpy())


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
