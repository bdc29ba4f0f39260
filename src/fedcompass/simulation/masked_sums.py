"""Sums of simulated clients' updates, each opened by a real secure round, and what that cost."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedcompass.aggregation.layout import FlatState
from fedcompass.aggregation.saved_tensors import named_state, restored_state
from fedcompass.errors import EncodingError
from fedcompass.secure_aggregation.messages import SumOpened
from fedcompass.secure_aggregation.terms import terms_for
from fedcompass.secure_aggregation.vectors import WaitingUpdate, weighted_vector
from fedcompass.settings.secure import SecureSettings
from fedcompass.simulation.local_rounds import open_locally
from fedcompass.summed_merges import Asked, OpenedSum, state_of_sum, summed_length
from fedcompass.vocabulary import ClientId, ModelVersion, Seconds, TaskId

__all__ = ["MaskedSums"]


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

    def opened(self, version: ModelVersion, asked: Asked) -> OpenedSum:
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
            version,
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
