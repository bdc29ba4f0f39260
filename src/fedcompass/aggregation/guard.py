"""Looks at an update before anything is touched: right layout, finite, not too large."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from math import inf, isfinite, prod, sqrt
from statistics import median
from typing import Any

import torch
from torch import Tensor

from fedcompass.aggregation.layout import FlatState, Layout, Segment
from fedcompass.settings.aggregation import GuardSettings
from fedcompass.vocabulary import ClientId, Refusal, Steps, fact

__all__ = ["RefusedUpdate", "UsualNorms", "change_norm", "check_update"]

_CHUNK = 1 << 18  # elements; differences and float64 copies are made in pieces of this size
_ENOUGH_UPDATES = 10  # to say what is usual
_ANY_TRAINING = 1e12  # no norm per step is larger while it is not known what is usual
_MOST_NORMS = 128  # that are kept of a client


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
    *,
    counted: Tensor | None = None,
    steps: Steps = 0,
) -> RefusedUpdate | None:
    """The reason to refuse an update, or None; neither the update nor the model is changed.

    All that is merged is looked at: a model buffer that is wrong spoils a model as a weight does.

    Args:
        update: what the client sent.
        layout: the model's.
        settings: the bounds.
        reference: the weights to measure the change from, where `update` holds end models rather
            than changes, so that the norm bound is about the change.
        counted: the model's integer buffers, from which those of the update may have grown.
        steps: that the client did.
    """
    problem = _layout_problem(update, layout)
    if problem is not None:
        return RefusedUpdate(reason=Refusal.WRONG_LAYOUT, message=problem)
    squared_norm = _squared_norm(update.trainable)
    if not isfinite(squared_norm) and not _all_finite(update.trainable):
        return _not_finite("trainable")
    problem_of_buffers = _averaged_problem(update, layout, settings.max_buffer)
    if problem_of_buffers is None and counted is not None and settings.max_passes is not None:
        most = counted + steps * settings.max_passes
        problem_of_buffers = _counted_problem(update, layout, most, steps)
    if problem_of_buffers is not None or settings.max_norm is None:
        return problem_of_buffers
    if reference is None and isfinite(squared_norm):
        return _norm_problem(sqrt(squared_norm), settings.max_norm)
    return _norm_problem(_exact_norm(update.trainable, reference), settings.max_norm)


def change_norm(trainable: Tensor, start: Tensor | None = None) -> float:
    """The norm of a change, or of what an end model changed since its start."""
    squared_norm = inf if start is not None else _squared_norm(trainable)
    return sqrt(squared_norm) if isfinite(squared_norm) else _exact_norm(trainable, start)


@dataclass(slots=True)
class _Norms:
    """A client's norms: every second is left out whenever they are too many, all over the run."""

    count: int = 0  # that came
    every: int = 1  # of so many one is kept
    kept: list[float] = field(default_factory=list)


class UsualNorms:
    """What norms per step are usual in a run: with them one far beyond is seen without a setting.

    Usual is the median over clients of each one's own median, so that no single client can move the
    bound, however often it answers and whatever it sends. What was refused is noted as well: where
    training changes for everybody, the bound follows.

    Args:
        times: so many times what is usual is allowed.
        clients: fewer do not tell what is usual.
    """

    def __init__(self, times: float, clients: int = 3) -> None:
        self._times, self._clients = times, clients
        self._noted: dict[ClientId, _Norms] = {}

    @property
    def usual(self) -> float | None:
        """The median of medians, None where there are too few yet."""
        came = sum(noted.count for noted in self._noted.values())
        if len(self._noted) < self._clients or came < _ENOUGH_UPDATES:
            return None
        return median(median(noted.kept) for noted in self._noted.values())

    def refusal(self, norm: float) -> RefusedUpdate | None:
        """The reason to refuse an update of this norm per step, or None."""
        usual = self.usual
        if usual is None and norm > _ANY_TRAINING:
            message = f"the update's norm per step is {norm:g}, which no training gives; check it"
        elif usual is not None and norm > self._times * usual:
            message = (
                f"the update's norm per step is {norm:g}; usual in this run is {usual:g}, and "
                f"{self._times:g} times that is allowed (times_median); check its training"
            )
        else:
            return None
        return RefusedUpdate(reason=Refusal.UNUSUAL_NORM, message=message)

    def note(self, client: ClientId, norm: float) -> None:
        """Count a client's update of this norm per step; one that changes nothing tells nothing."""
        if not 0 < norm < inf:
            return
        noted = self._noted.setdefault(client, _Norms())
        if noted.count % noted.every == 0:
            noted.kept.append(norm)
        noted.count += 1
        if len(noted.kept) == _MOST_NORMS:
            noted.kept, noted.every = noted.kept[::2], 2 * noted.every

    def to_json(self) -> dict[ClientId, Any]:
        """Everything as JSON values."""
        return {client: asdict(noted) for client, noted in self._noted.items()}

    def restore(self, state: Mapping[ClientId, Any]) -> None:
        """Take over what `to_json` wrote."""
        self._noted = {client: _Norms(**noted) for client, noted in state.items()}


def _squared_norm(vector: Tensor) -> float:
    """The sum of squares, in one light pass: if it is finite, so is every value."""
    return torch.dot(vector, vector).item()


def _not_finite(segment: Segment) -> RefusedUpdate:
    message = f"the update's {segment} vector has NaN or infinite values; check its training"
    return RefusedUpdate(reason=Refusal.NOT_FINITE, message=message)


def _averaged_problem(
    update: FlatState, layout: Layout, max_buffer: float | None
) -> RefusedUpdate | None:
    """What is wrong with the float buffers: not finite, too large, or a negative variance."""
    vector = update.averaged
    if not vector.numel():
        return None  # asking a GPU would cost a wait for all its work
    # NaN comes through aminmax on both sides. One wait for a GPU: all that is asked is in one list.
    extremes = [*torch.aminmax(vector)]
    if layout.variances.numel():
        extremes.append(vector[layout.variances.to(vector.device)].amin())
    low, high, *lowest_variances = torch.stack(extremes).tolist()
    if not (isfinite(low) and isfinite(high)):
        return _not_finite("averaged")
    if max_buffer is not None and max(-low, high) > max_buffer:
        worst = int(vector.abs().argmax())
        name = _name_at(layout, "averaged", worst)
        return _wrong_buffer(
            f"the update's {name} has a value of {vector[worst].item():g}; "
            f"max_buffer allows {max_buffer:g}: check its data, or raise max_buffer"
        )
    if any(lowest < 0 for lowest in lowest_variances):
        place = int(layout.variances[vector[layout.variances.to(vector.device)].argmin()])
        name = _name_at(layout, "averaged", place)
        return _wrong_buffer(
            f"the update's {name} has a variance of {vector[place].item():g}; allowed: 0 or more"
        )
    return None


def _counted_problem(
    update: FlatState, layout: Layout, most: Tensor, steps: Steps
) -> RefusedUpdate | None:
    """Which integer buffer is beyond `most`; a merge takes the maximum, so it would never fall."""
    if not bool((update.counted > most).any()):
        return None
    place = int((update.counted > most).int().argmax())
    name = _name_at(layout, "counted", place)
    return _wrong_buffer(
        f"the update's {name} is {update.counted[place].item()} after {steps} "
        f"steps; allowed: at most {most[place].item()}. Where a step passes through a layer "
        "several times, raise max_passes"
    )


def _wrong_buffer(message: str) -> RefusedUpdate:
    return RefusedUpdate(reason=Refusal.WRONG_BUFFERS, message=message)


def _name_at(layout: Layout, segment: Segment, place: int) -> str:
    """Which tensor a place of a flat vector belongs to."""
    specs = [spec for spec in layout.specs if spec.segment == segment]
    ends = list(accumulate(prod(spec.shape) for spec in specs))
    return specs[bisect_right(ends, place)].name


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
