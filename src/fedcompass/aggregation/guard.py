"""Looks at an update before anything is touched: right layout, finite, not too large."""

from math import isfinite, sqrt

import torch
from torch import Tensor

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.settings.aggregation import GuardSettings
from fedcompass.vocabulary import Refusal, fact

__all__ = ["RefusedUpdate", "check_update"]

_CHUNK = 1 << 18  # elements; differences and float64 copies are made in pieces of this size


@fact
class RefusedUpdate:
    """A refusal: the reason for programs, the message for people."""

    reason: Refusal
    message: str


def check_update(
    update: FlatState,
    layout: Layout,
    settings: GuardSettings,
    reference: Tensor | None = None,
) -> RefusedUpdate | None:
    """The reason to refuse an update, or None; neither the update nor the model is changed.

    Args:
        update: what the client sent.
        layout: the model's.
        settings: the norm bound.
        reference: the weights to measure the change from, where `update` holds end models rather
            than changes, so that the norm bound is about the change.
    """
    problem = _layout_problem(update, layout)
    if problem is not None:
        return RefusedUpdate(reason=Refusal.WRONG_LAYOUT, message=problem)
    squared_norm = _squared_norm(update.trainable)
    for segment, vector, squared in (
        ("trainable", update.trainable, squared_norm),
        ("averaged", update.averaged, _squared_norm(update.averaged)),
    ):
        if not isfinite(squared) and not _all_finite(vector):
            message = (
                f"the update's {segment} vector has NaN or infinite values; check its training"
            )
            return RefusedUpdate(reason=Refusal.NOT_FINITE, message=message)
    if settings.max_norm is None:
        return None
    if reference is None and isfinite(squared_norm):
        return _norm_problem(sqrt(squared_norm), settings.max_norm)
    return _norm_problem(_exact_norm(update.trainable, reference), settings.max_norm)


def _squared_norm(vector: Tensor) -> float:
    """The sum of squares, in one light pass: if it is finite, so is every value."""
    if not vector.numel():
        return 0.0  # asking a GPU would cost a wait for all its work
    return torch.dot(vector, vector).item()


def _layout_problem(update: FlatState, layout: Layout) -> str | None:
    for segment, vector in update.tensors().items():
        size, dtype = layout.sizes[segment], layout.dtypes[segment]
        if tuple(vector.shape) != (size,) or vector.dtype != dtype:
            return (
                f"the update's {segment} vector is {_kind(vector.dtype)}{list(vector.shape)}, "
                f"the model has {_kind(dtype)}[{size}]; send the model's own layout"
            )
    return None


def _kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _all_finite(vector: Tensor) -> bool:
    """Whether every value is finite; exact where the square of a finite value overflows."""
    low, high = torch.aminmax(vector)  # NaN comes through both; nothing is allocated
    return bool(torch.isfinite(low) & torch.isfinite(high))


def _exact_norm(trainable: Tensor, reference: Tensor | None) -> float:
    """The norm of the change in float64, piece by piece."""
    squares = 0.0
    for start in range(0, trainable.numel(), _CHUNK):
        piece = trainable[start : start + _CHUNK].double()
        if reference is not None:
            piece -= reference[start : start + _CHUNK]
        squares += _squared_norm(piece)
    return sqrt(squares)


def _norm_problem(norm: float, max_norm: float) -> RefusedUpdate | None:
    if norm <= max_norm:
        return None
    return RefusedUpdate(
        reason=Refusal.NORM_TOO_LARGE,
        message=f"the update's norm is {norm:g}, max_norm allows {max_norm:g}; "
        "lower the client's learning rate or raise max_norm",
    )
