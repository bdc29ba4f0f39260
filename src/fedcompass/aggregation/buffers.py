"""Where updates are summed until a merge: memory for each open buffer, not for each client."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from fedcompass.aggregation.layout import FlatState
from fedcompass.aggregation.saved_tensors import named_state, restored_state
from fedcompass.errors import CheckpointError, LayoutMismatch
from fedcompass.vocabulary import BufferId, Steps, fact

__all__ = ["Buffer", "Buffers", "Contribution", "Totals", "TotalsFacts"]

TotalsFacts: TypeAlias = dict[str, dict[str, float]]
"""Totals as JSON: the buffer's name, then the fields."""


@fact
class Contribution:
    """What a weight depends on, as the scheduler knew it when the update arrived.

    staleness: global versions since the client got its model; 0 or more.
    share: the client's share of the samples, p_i; above 0.
    steps: local steps done, Q_i; 1 or more.
    """

    staleness: int
    share: float
    steps: Steps

    def __post_init__(self) -> None:
        if self.staleness < 0 or not self.share > 0 or self.steps < 1:
            raise ValueError(f"{self}: staleness >= 0, share > 0 and steps >= 1 are needed")


@dataclass(slots=True)
class Totals:
    """What a buffer's scaling depends on: sums over its contributions."""

    count: int = 0
    weight_sum: float = 0.0
    share_sum: float = 0.0
    share_steps_sum: float = 0.0
    max_staleness: int = 0

    def add(self, contribution: Contribution, weight: float) -> None:
        """Count one contribution."""
        share, steps = contribution.share, contribution.steps
        self.absorb(Totals(1, weight, share, share * steps, contribution.staleness))

    def absorb(self, other: "Totals") -> None:
        """Count another buffer's contributions."""
        self.count += other.count
        self.weight_sum += other.weight_sum
        self.share_sum += other.share_sum
        self.share_steps_sum += other.share_steps_sum
        self.max_staleness = max(self.max_staleness, other.max_staleness)


@dataclass(slots=True)
class Buffer:
    """Weighted sums of updates; of integer model buffers, the maximum."""

    sums: FlatState
    totals: Totals

    @classmethod
    def of(
        cls, update: FlatState, step_weight: float, averaged_weight: float, sums: FlatState
    ) -> "Buffer":
        """A buffer with the sums of one update, written in one pass into `sums`."""
        torch.mul(update.trainable, step_weight, out=sums.trainable)
        torch.mul(update.averaged, averaged_weight, out=sums.averaged)
        sums.counted.copy_(update.counted)
        return cls(sums, Totals())

    def add(self, update: FlatState, step_weight: float, averaged_weight: float) -> None:
        """Add one update to the sums; one fused pass for each vector."""
        self.sums.trainable.add_(update.trainable, alpha=step_weight)
        self.sums.averaged.add_(update.averaged, alpha=averaged_weight)
        torch.maximum(self.sums.counted, update.counted, out=self.sums.counted)

    def absorb(self, other: "Buffer") -> None:
        """Take in another buffer's sums and contributions."""
        self.add(other.sums, 1.0, 1.0)
        self.totals.absorb(other.totals)


class Buffers:
    """The open buffers of one model: a fold makes a buffer, taking it removes it."""

    def __init__(self, model: FlatState) -> None:
        self._model = model
        self._open: dict[str, Buffer] = {}
        self._spare: FlatState | None = None  # memory to write the next buffer's first update into

    def fold(
        self,
        buffer: BufferId,
        update: FlatState,
        contribution: Contribution,
        *,
        weight: float,
        step_weight: float,
        averaged_weight: float,
    ) -> None:
        """Add `step_weight` times the trainable part, `averaged_weight` times the averaged part.

        Args:
            buffer: where.
            update: what.
            contribution: is counted in the totals, with `weight`.
            weight: the update's.
            step_weight: of the trainable part: less where updates count per local step.
            averaged_weight: of the averaged part: 1 where it is to be a plain mean.

        Raises:
            LayoutMismatch: the update's vectors do not have the model's shapes and dtypes (they
                would be broadcast or cast silently); nothing was changed.
        """
        _check_fits(update, self._model)
        name = _name(buffer)
        present = self._open.get(name)
        if present is None:
            sums, self._spare = self._spare or _like(update), None
            present = self._open[name] = Buffer.of(update, step_weight, averaged_weight, sums)
        else:
            present.add(update, step_weight, averaged_weight)
        present.totals.add(contribution, weight)

    def put(self, buffer: BufferId, filled: Buffer) -> None:
        """Take over sums that were made elsewhere, as a buffer that holds nothing yet.

        Raises:
            LayoutMismatch: the sums are not those of this model.
            ValueError: the buffer holds something; nothing was changed.
        """
        _check_fits(filled.sums, self._model)
        name = _name(buffer)
        if name in self._open:
            raise ValueError(f"buffer {name} holds updates; commit it before a sum is put there")
        self._open[name] = filled

    def take(self, buffers: Sequence[BufferId]) -> Buffer:
        """Remove these buffers and return their sum, in the memory of the first.

        Raises:
            ValueError: none of them holds anything; nothing was changed.
        """
        names = [_name(buffer) for buffer in buffers]
        taken = [self._open.pop(name) for name in names if name in self._open]
        if not taken:
            raise ValueError(f"nothing to merge in {names}; fold an update before the commit")
        first, *others = taken
        for other in others:
            first.absorb(other)
        return first

    def recycle(self, buffer: Buffer) -> None:
        """Keep the memory of a buffer that was taken and is done with.

        Fresh memory costs three times as much to write; FedAsync would pay it on every update.
        """
        self._spare = buffer.sums

    def tensors(self) -> dict[str, Tensor]:
        """The live sums by name, for a checkpoint."""
        named: dict[str, Tensor] = {}
        for name, buffer in self._open.items():
            named |= named_state(name, buffer.sums)
        return named

    def facts(self) -> TotalsFacts:
        """The totals by buffer name, for a checkpoint."""
        return {name: asdict(buffer.totals) for name, buffer in self._open.items()}

    @classmethod
    def restored(
        cls, model: FlatState, tensors: Mapping[str, Tensor], facts: TotalsFacts
    ) -> "Buffers":
        """The buffers of a checkpoint, as copies.

        Raises:
            CheckpointError: a sum is missing or does not fit, or totals are damaged.
        """
        buffers = cls(model)
        for name, totals in facts.items():
            sums = restored_state(tensors, name, model)
            buffers._open[name] = Buffer(sums, _totals(name, totals))
        return buffers


def _like(state: FlatState) -> FlatState:
    return FlatState(*(torch.empty_like(vector) for vector in state.tensors().values()))


def _name(buffer: BufferId) -> str:
    return f"buffer.{buffer}"


def _check_fits(update: FlatState, model: FlatState) -> None:
    for (segment, ours), theirs in zip(
        model.tensors().items(), update.tensors().values(), strict=True
    ):
        if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
            raise LayoutMismatch(
                f"the update's {segment} vector is {theirs.dtype}{list(theirs.shape)}, the model "
                f"has {ours.dtype}{list(ours.shape)}; check updates before folding them"
            )


def _totals(name: str, facts: Mapping[str, float]) -> Totals:
    try:
        return Totals(
            count=int(facts["count"]),
            weight_sum=float(facts["weight_sum"]),
            share_sum=float(facts["share_sum"]),
            share_steps_sum=float(facts["share_steps_sum"]),
            max_staleness=int(facts.get("max_staleness", 0)),  # older checkpoints lack it
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint's totals of {name!r} is {facts!r}: {error!r}; use another checkpoint"
        ) from None
