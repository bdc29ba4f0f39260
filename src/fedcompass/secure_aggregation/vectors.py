"""What a member puts into a sum: all its waiting updates, each by its weights, in one vector."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedcompass.errors import EncodingError
from fedcompass.vocabulary import fact

__all__ = ["WaitingUpdate", "UpdateWeights", "weighted_vector"]

UpdateWeights: TypeAlias = tuple[float, float]
"""Of an update: its trained part's and its averaged part's, as its member learns them."""


@fact
class WaitingUpdate:
    """An update that its member keeps until a merge asks for it.

    trainable: the change of the trained parameters.
    averaged: the values of the model's float buffers.
    """

    trainable: NDArray[np.floating[Any]]
    averaged: NDArray[np.floating[Any]]

    @property
    def norm(self) -> float:
        """Of the change."""
        return float(np.linalg.norm(self.trainable.astype(np.float64)))


def weighted_vector(
    updates: Sequence[tuple[WaitingUpdate, UpdateWeights]], max_norm: float | None = None
) -> NDArray[np.float64]:
    """The weighted sum of one member's updates; changes beyond `max_norm` are scaled to it.

    Raises:
        EncodingError: a value is not finite.
    """
    totals: list[NDArray[np.float64]] = []
    for update, (step_weight, weight) in updates:
        norm = update.norm
        if not np.isfinite(norm) or not np.isfinite(update.averaged).all():
            raise EncodingError("the update has NaN or infinite values; check its training")
        factor = 1.0 if max_norm is None or norm <= max_norm else max_norm / norm
        totals.append(
            np.concatenate(
                [
                    update.trainable.astype(np.float64) * (factor * step_weight),
                    update.averaged.astype(np.float64) * weight,
                ]
            )
        )
    total: NDArray[np.float64] = np.sum(totals, axis=0, dtype=np.float64)
    return total
