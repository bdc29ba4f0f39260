"""What can be measured on a test set, each summed up batch by batch."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import prod
from numbers import Real
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedcompass.errors import SettingsError
from fedcompass.own_code import described, short
from fedcompass.settings.training import METRICS, MetricKind, check_metrics
from fedcompass.training.problem import Loss, checked_loss

__all__ = [
    "OURS",
    "BalancedAccuracy",
    "Mean",
    "Metric",
    "OverAll",
    "make_metrics",
    "metric",
    "register_metric",
    "values_of",
]


class Metric(Protocol):
    """Sums up batches; memory does not grow with their number."""

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Take in the model's outputs for one batch."""

    def value(self) -> float:
        """The metric over all batches taken in so far."""


class Mean:
    """A mean over all batches.

    Args:
        measure: gives a batch's sum, and of how many values it is.
    """

    def __init__(self, measure: Callable[[Tensor, Tensor], tuple[Tensor, int]]) -> None:
        self._measure = measure
        self._sum: Tensor | float = 0
        self._count = 0

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Add a batch's sum and count."""
        total, count = self._measure(outputs, targets)
        self._sum = self._sum + total
        self._count += count

    def value(self) -> float:
        """Sum over count."""
        return float(self._sum) / self._count


def _losses(loss: Loss, outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    """For a loss that is a mean over the batch."""
    mean = checked_loss(loss, loss(outputs, targets), trains=False)
    return mean.double() * len(targets), len(targets)


def _hits(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    """Targets that are the class with the largest output; one per sample or per pixel."""
    return (_predicted(outputs, targets) == targets).sum(), targets.numel()


def _binary_hits(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    """Labels 0 and 1 that the sign of one score per sample [samples, 1] tells.

    A score above 0 says 1, as a probability above one half does.
    """
    if outputs.shape != (len(targets), 1):
        raise SettingsError(
            f"binary_accuracy needs outputs [samples, 1]; got {list(outputs.shape)}"
        )
    return ((outputs[:, 0] > 0) == (targets > 0)).sum(), len(targets)


def _dice_scores(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    """sum(p y) / (sum (p + y) / 2 + 1e-7) of each sample and class; 1 where both are empty.

    Outputs are probabilities [samples, classes, ...] (Fed-IXI's network ends in a softmax); targets
    are one-hot of the same shape, or class numbers [samples, ...].
    """
    if targets.ndim == outputs.ndim - 1:
        targets = functional.one_hot(targets.long(), outputs.shape[1]).movedim(-1, 1)
    p, y = outputs.flatten(2), targets.flatten(2)
    overlap = (p * y).sum(2)
    size = (0.5 * (p + y)).sum(2)
    score = torch.where(size == 0, 1.0, overlap / (size + 1e-7))
    return score.double().sum(), score.numel()


def _squared_errors(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    return (_of_targets(outputs, targets) - targets).double().square().sum(), targets.numel()


def _absolute_errors(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    return (_of_targets(outputs, targets) - targets).double().abs().sum(), targets.numel()


def _of_targets(outputs: Tensor, targets: Tensor) -> Tensor:
    """Outputs in the shape of the targets: [samples, 1] for [samples]."""
    if outputs.numel() != targets.numel():
        raise SettingsError(
            f"mse, mae and r2 need as many outputs as targets; got {list(outputs.shape)} and "
            f"{list(targets.shape)}"
        )
    return outputs.view(targets.shape)


class OverAll:
    """A function of all outputs and targets, which are kept: the way to what is no mean.

    Args:
        measure: (outputs, targets) of the whole test set -> a number.
    """

    def __init__(self, measure: Callable[[Tensor, Tensor], Any], _loss: Loss) -> None:
        self._measure = measure
        self._outputs: list[Tensor] = []
        self._targets: list[Tensor] = []

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Keep a batch."""
        self._outputs.append(outputs)
        self._targets.append(targets)

    def value(self) -> Any:
        """What the function says of all of them; `values_of` sees to it that it is a number."""
        return self._measure(torch.cat(self._outputs), torch.cat(self._targets))


def _r2(outputs: Tensor, targets: Tensor) -> float:
    """1 - the squared errors over those of the targets' mean."""
    wanted = targets.double()
    missed = (_of_targets(outputs, targets).double() - wanted).square().sum()
    return float(1 - missed / (wanted - wanted.mean(0)).square().sum())


class BalancedAccuracy:
    """Mean over the classes that occur of the share of their targets that are hit."""

    def __init__(self, _loss: Loss) -> None:
        self._hits: Tensor | int = 0
        self._targets: Tensor | int = 0

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Count hits and targets per class."""
        hit = (_predicted(outputs, targets) == targets).long()
        # Not `bincount`, which would wait for a GPU to tell the largest value.
        none = torch.zeros(outputs.shape[1], dtype=torch.int64, device=outputs.device)
        classes = targets.flatten().long()
        self._hits = self._hits + none.scatter_add(0, classes, hit.flatten())
        self._targets = self._targets + none.scatter_add(0, classes, torch.ones_like(classes))

    def value(self) -> float:
        """Mean recall; a class without targets has none and does not count."""
        targets = torch.as_tensor(self._targets)
        occurs = targets > 0
        return float((torch.as_tensor(self._hits)[occurs].double() / targets[occurs]).mean())


def _concordance(outputs: Tensor, targets: Tensor) -> float:
    """Concordance index: how often the higher score goes with the earlier event.

    Outputs are scores [samples, 1]; targets (event, time) [samples, 2]. Of each pair that can be
    compared (an event, and anybody later, or censored at the same time) it is 1 if the event has
    the higher score, one half if the scores are equal; not a number if there is no such pair.
    """
    scores, event, time = outputs[:, 0], targets[:, 0] > 0, targets[:, 1]
    later = time[None] > time[:, None]
    censored_then = (time[None] == time[:, None]) & ~event[None]
    pairs = event[:, None] & (later | censored_then)
    right = (scores[:, None] > scores[None]).double()
    right += 0.5 * (scores[:, None] == scores[None])
    return float(right[pairs].mean())


OURS: dict[str, Callable[[Loss], Metric]] = {
    "loss": lambda loss: Mean(partial(_losses, loss)),
    "accuracy": lambda _: Mean(_hits),
    "balanced_accuracy": BalancedAccuracy,
    "binary_accuracy": lambda _: Mean(_binary_hits),
    "concordance": partial(OverAll, _concordance),
    "dice": lambda _: Mean(_dice_scores),
    "mse": lambda _: Mean(_squared_errors),
    "mae": lambda _: Mean(_absolute_errors),
    "r2": partial(OverAll, _r2),
}
"""Makes each metric of `settings.training` from the problem's loss."""


def metric(
    *, higher_is_better: bool, share: bool = False
) -> Callable[[Callable[[Tensor, Tensor], Any]], MetricKind]:
    """Make a metric of a function (outputs, targets) -> float over a whole test set.

    Above a function in a file, it makes `evaluation.metrics = ["loss", "FILE.py:its_name"]` work.

    Args:
        higher_is_better: its direction.
        share: whether it lies between 0 and 1 and is told in percent.
    """

    def made(measure: Callable[[Tensor, Tensor], Any]) -> MetricKind:
        make = partial(OverAll, measure)
        return MetricKind(make=make, higher_is_better=higher_is_better, share=share)

    return made


def register_metric(
    name: str, make: Callable[[Loss], Metric], *, higher_is_better: bool, share: bool = False
) -> None:
    """Make a metric of your own known by name, with its direction.

    Processes that evaluate must do so, too: call it where the model's module is imported.

    Raises:
        SettingsError: the name means something else already.
    """
    kind = MetricKind(make=make, higher_is_better=higher_is_better, share=share)
    if METRICS.setdefault(name, kind) != kind:
        raise SettingsError(f"a metric named {name!r} exists already; choose another name")


def make_metrics(names: Iterable[str], loss: Loss) -> dict[str, Metric]:
    """Fresh metrics by name, in the given order; one's own by their short names."""
    names = tuple(names)
    check_metrics(names)
    return {name: (METRICS[name].make or OURS[name])(loss) for name in map(short, names)}


def values_of(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """What metrics say of what they took in, by name.

    Raises:
        SettingsError: what one says is not a number.
    """
    return {name: _number(name, metric.value()) for name, metric in metrics.items()}


def _number(name: str, value: Any) -> float:
    single, what = value, f"the str {value!r}" if isinstance(value, str) else described(value)
    if isinstance(value, (Tensor, np.ndarray)):
        single = value.item() if prod(value.shape) == 1 else None
        what = f"{what} of shape {list(value.shape)}"
    if not isinstance(single, Real):
        raise SettingsError(
            f"metric {name} returned {what}; allowed: one number for the whole test set (a float, "
            "or a tensor with one value); mend what the metric returns"
        )
    return float(single)


def _predicted(outputs: Tensor, targets: Tensor) -> Tensor:
    fits = outputs.ndim > 1 and (len(outputs), *outputs.shape[2:]) == tuple(targets.shape)
    if not fits or outputs.shape[1] < 2:
        raise SettingsError(
            f"accuracy needs outputs [samples, classes, ...] with 2 or more classes and class "
            f"numbers as targets; got {list(outputs.shape)} and {list(targets.shape)}. "
            "evaluation.metrics says what is measured, such as loss and mae for numbers"
        )
    return outputs.argmax(1)
