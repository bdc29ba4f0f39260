"""What an aggregation rule has to do: fold updates, commit buffers, save and restore its state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import torch
from torch import Tensor

from fedcompass.aggregation.buffers import Contribution
from fedcompass.aggregation.layout import FlatState
from fedcompass.errors import CheckpointError, MergeNotFinite
from fedcompass.settings.aggregation import Payload
from fedcompass.vocabulary import BufferId

__all__ = ["Aggregator", "AggregatorState", "check_finite", "check_sections"]


@dataclass(slots=True)
class AggregatorState:
    """All an aggregator needs to continue exactly where it was.

    tensors: model, buffers and optimizer state by name; live, so save or copy them before the next
        fold or commit.
    facts: numbers for the JSON part: section, then name, then field.
    """

    tensors: dict[str, Tensor]
    facts: dict[str, dict[str, dict[str, float]]]


class Aggregator(Protocol):
    """Folds updates into buffers and merges buffers into the global model."""

    @property
    def payload(self) -> Payload:
        """What the updates' trainable part must be.

        "delta" is w_start - w_end: a step against it, `model.trainable.sub_(update.trainable)`,
        brings the model to where the client ended. "model" is w_end.
        """
        ...

    @property
    def model(self) -> FlatState:
        """The global model; a commit changes it in place."""
        ...

    def fold(self, buffer: BufferId, update: FlatState, contribution: Contribution) -> float:
        """Add a checked update to a buffer and return the weight it got, for the journal.

        The update's memory is the driver's, which writes the next update into it: a rule that needs
        single updates at the commit, such as a median, keeps `update.clone()`. Leave it unchanged.
        `update.averaged` and `update.counted` are the client's values, never changes.
        """
        ...

    def commit(self, buffers: Sequence[BufferId]) -> None:
        """Merge these buffers into the model and empty them; some may be empty, not all.

        The buffer DIRECT comes alone: its sum is applied as it is, without normalization, scaling
        or server optimizer.

        Raises:
            MergeNotFinite: the model would not be finite; the buffers are empty, and nothing else
                was changed. The run goes on without the merge. A rule that looks for nothing of the
                kind raises nothing.
        """
        ...

    def state(self) -> AggregatorState:
        """What a checkpoint has to keep."""
        ...

    def restore(self, state: AggregatorState) -> None:
        """Continue from a checkpoint, bit-equal to never having stopped.

        Raises:
            CheckpointError: it does not fit; nothing was changed.
        """
        ...


def check_finite(merged: FlatState, moved: Callable[[], Tensor]) -> None:
    """Make sure that a merge leaves a model that is finite.

    Args:
        merged: what is to be merged.
        moved: what the merge leaves; made only where values are so large that their squares
            overflow, which no optimizer's second moment would get over either.

    Raises:
        MergeNotFinite: it does not.
    """
    step = merged.trainable  # its dot product is one light pass
    is_finite = isfinite(torch.dot(step, step).item()) or bool(moved().isfinite().all())
    if not (is_finite and bool(merged.averaged.isfinite().all())):
        raise MergeNotFinite("the merge would not be finite; see whose updates were in it")


def check_sections(facts: Mapping[str, object], *sections: str) -> None:
    """Make sure that a checkpoint's facts have these sections and no others.

    Raises:
        CheckpointError: it was made by another kind of aggregator.
    """
    if set(facts) != set(sections):
        raise CheckpointError(
            f"the checkpoint's aggregator keeps {sorted(facts)}, this one keeps "
            f"{sorted(sections)}; restore with the strategy the checkpoint was made with"
        )
