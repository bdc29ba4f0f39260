"""What can be measured on a test set, each summed up batch by batch."""

from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from fedcompass.errors import SettingsError
from fedcompass.settings.metrics import METRICS, MetricKind, check_metrics
from fedcompass.training.problem import Loss

__all__ = [
    "OURS",
    "Accuracy",
    "BalancedAccuracy",
    "BinaryAccuracy",
    "Concordance",
    "MeanLoss",
    "Metric",
    "SoftDice",
    "make_metrics",
    "register_metric",
]


class Metric(Protocol):
    """Sums up batches; memory does not grow with their number."""

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Take in the model's outputs for one batch."""

    def value(self) -> float:
        """The metric over all batches taken in so far."""


class MeanLoss:
    """Mean loss per sample, for a loss that is a mean over the batch."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._sum: Tensor | float = 0.0
        self._samples = 0

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Take in one batch's mean, weighted by its size."""
        self._sum = self._sum + self._loss(outputs, targets).double() * len(targets)
        self._samples += len(targets)

    def value(self) -> float:
        """Sum of losses over number of samples."""
        return float(self._sum) / self._samples


class Accuracy:
    """Share of targets that are the class with the largest output."""

    def __init__(self, _loss: Loss) -> None:
        self._hits: Tensor | int = 0
        self._targets = 0

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Count hits; targets are class numbers, one per sample or per pixel."""
        self._hits = self._hits + (_predicted(outputs, targets) == targets).sum()
        self._targets += targets.numel()

    def value(self) -> float:
        """Hits over targets."""
        return int(self._hits) / self._targets


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


class BinaryAccuracy:
    """Share of labels 0 and 1 that the sign of one score per sample [samples, 1] tells."""

    def __init__(self, _loss: Loss) -> None:
        self._hits: Tensor | int = 0
        self._targets = 0

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Count hits; a score above 0 says 1, as a probability above one half does."""
        if outputs.shape != (len(targets), 1):
            raise SettingsError(
                f"binary_accuracy needs outputs [samples, 1]; got {list(outputs.shape)}"
            )
        self._hits = self._hits + ((outputs[:, 0] > 0) == (targets > 0)).sum()
        self._targets += len(targets)

    def value(self) -> float:
        """Hits over targets."""
        return int(self._hits) / self._targets


class Concordance:
    """Concordance index: how often the higher score goes with the earlier event.

    Outputs are scores [samples, 1]; targets (event, time) [samples, 2]. Of each pair that can be
    compared (an event, and anybody later, or censored at the same time) it is 1 if the event has
    the higher score, one half if the scores are equal. Keeps every score: a pair may lie in two
    batches.
    """

    def __init__(self, _loss: Loss) -> None:
        self._scores: list[Tensor] = []
        self._targets: list[Tensor] = []

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Keep the scores and the truth."""
        self._scores.append(outputs[:, 0])
        self._targets.append(targets)

    def value(self) -> float:
        """Mean over the pairs; not a number if there is none."""
        scores, truth = torch.cat(self._scores), torch.cat(self._targets)
        event, time = truth[:, 0] > 0, truth[:, 1]
        later = time[None] > time[:, None]
        censored_then = (time[None] == time[:, None]) & ~event[None]
        pairs = event[:, None] & (later | censored_then)
        right = (scores[:, None] > scores[None]).double()
        right += 0.5 * (scores[:, None] == scores[None])
        return float(right[pairs].mean())


class SoftDice:
    """Mean over samples and classes of sum(p y) / (sum (p + y) / 2 + 1e-7); 1 where both are empty.

    Outputs are probabilities [samples, classes, ...] (Fed-IXI's network ends in a softmax); targets
    are one-hot of the same shape, or class numbers [samples, ...].
    """

    def __init__(self, _loss: Loss) -> None:
        self._sum: Tensor | float = 0.0
        self._scores = 0

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Score each sample and class over its spatial axes."""
        if targets.ndim == outputs.ndim - 1:
            targets = functional.one_hot(targets.long(), outputs.shape[1]).movedim(-1, 1)
        p, y = outputs.flatten(2), targets.flatten(2)
        overlap = (p * y).sum(2)
        size = (0.5 * (p + y)).sum(2)
        score = torch.where(size == 0, 1.0, overlap / (size + 1e-7))
        self._sum = self._sum + score.double().sum()
        self._scores += score.numel()

    def value(self) -> float:
        """Mean score."""
        return float(self._sum) / self._scores


OURS: dict[str, Callable[[Loss], Metric]] = {
    "loss": MeanLoss,
    "accuracy": Accuracy,
    "balanced_accuracy": BalancedAccuracy,
    "binary_accuracy": BinaryAccuracy,
    "concordance": Concordance,
    "dice": SoftDice,
}
"""Makes each metric of `settings.metrics` from the problem's loss."""


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
    """Fresh metrics by name, in the given order."""
    names = tuple(names)
    check_metrics(names)
    return {name: (METRICS[name].make or OURS[name])(loss) for name in names}


def _predicted(outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.ndim != targets.ndim + 1 or outputs.shape[1] < 2:
        raise SettingsError(
            f"accuracy needs outputs [samples, classes, ...] with 2 or more classes and class "
            f"numbers as targets; got {list(outputs.shape)} and {list(targets.shape)}"
        )
    return outputs.argmax(1)
