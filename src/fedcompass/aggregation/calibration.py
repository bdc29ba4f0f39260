"""Cached-update calibration: an update is corrected by what its client sent before.

CA2FL, from Wang et al., "Tackling the Data Heterogeneity in Asynchronous Federated Learning with
Cached Update Calibration" (ICLR 2024): the step is h + mean(Δ_i - h_i), where h_i is client i's
update that was merged last and h their mean over all clients, with 0 for those not heard of.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedcompass.aggregation.saved_tensors import restored_tensor
from fedcompass.vocabulary import ClientId, Steps, TaskId

__all__ = ["Calibration"]


@dataclass(slots=True)
class _Cached:
    """A client's update; per step where averaging is normalized."""

    client: ClientId
    task: TaskId  # the later task is the newer update
    share: float  # p_i when it arrived
    change: Tensor


class Calibration:
    """Turns Δ_i into Δ_i - h_i + h, so that any weighted mean of them is h + mean(Δ_i - h_i).

    A cache changes when an update is merged, not when it arrives: of a client that has two updates
    in a buffer, neither is calibrated against the other.
    """

    def __init__(self, like: Tensor, *, per_step: bool = False) -> None:
        self._per_step = per_step
        self._mean = torch.zeros_like(like)  # h = Σ p_i h_i
        self._cached: dict[ClientId, _Cached] = {}  # h_i
        self._arrived: dict[TaskId, _Cached] = {}  # folded, not merged yet

    def take(
        self, client: ClientId, task: TaskId, change: Tensor, share: float, steps: Steps
    ) -> None:
        """Keep a copy of an update until it is merged."""
        kept = change / steps if self._per_step else change.clone()
        self._arrived[task] = _Cached(client, task, share, kept)

    def calibrated(self, client: ClientId, change: Tensor, steps: Steps) -> Tensor:
        """Δ_i - h_i + h; per step, times the update's own steps, where averaging is normalized."""
        factor = float(steps) if self._per_step else 1.0
        result = torch.add(change, self._mean, alpha=factor)
        cached = self._cached.get(client)
        return result if cached is None else result.sub_(cached.change, alpha=factor)

    def merged(self, tasks: Iterable[TaskId]) -> None:
        """The updates that answered these tasks become their clients' caches."""
        for task in tasks:
            arrived = self._arrived.pop(task, None)  # None: its client has left
            if arrived is not None:
                self._cache(arrived)

    def _cache(self, arrived: _Cached) -> None:
        before = self._cached.get(arrived.client)
        if before is not None:
            if before.task > arrived.task:
                return
            self._mean.sub_(before.change, alpha=before.share)
        self._mean.add_(arrived.change, alpha=arrived.share)
        self._cached[arrived.client] = arrived

    def forget(self, client: ClientId) -> None:
        """Leave a client that is gone out of h; its updates that wait to be merged stay folded."""
        cached = self._cached.pop(client, None)
        if cached is not None:
            self._mean.sub_(cached.change, alpha=cached.share)
        self._arrived = {t: kept for t, kept in self._arrived.items() if kept.client != client}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The caches, and h as it came about."""
        tensors, facts = {"calibration.mean": self._mean}, {}
        for name, kept in (("cached", self._cached.values()), ("arrived", self._arrived.values())):
            facts[name] = [[entry.client, entry.task, entry.share] for entry in kept]
            for number, entry in enumerate(kept):
                tensors[f"calibration.{name}.{number}"] = entry.change
        return tensors, facts

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Take over copies of what `state` gave.

        Raises:
            CheckpointError: a tensor is missing or does not fit; nothing was changed.
        """
        mean = restored_tensor(tensors, "calibration.mean", self._mean)
        cached = self._restored("cached", tensors, facts)
        arrived = self._restored("arrived", tensors, facts)
        self._mean = mean
        self._cached = {entry.client: entry for entry in cached}
        self._arrived = {entry.task: entry for entry in arrived}

    def _restored(
        self, name: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
    ) -> list[_Cached]:
        return [
            _Cached(
                client,
                task,
                share,
                restored_tensor(tensors, f"calibration.{name}.{number}", self._mean),
            )
            for number, (client, task, share) in enumerate(facts[name])
        ]
