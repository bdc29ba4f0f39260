"""Which metrics there are and which way each is better; `training.metrics` measures them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, isnan
from typing import Any

from fedcompass.errors import SettingsError
from fedcompass.settings import unknown_key

__all__ = ["METRICS", "MetricKind", "check_metrics", "higher_is_better", "is_share", "score"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricKind:
    """A metric that is known by name.

    higher_is_better: its direction; decides what is the best model and when a target is reached.
    share: between 0 and 1, and told in percent.
    make: a fresh one, from the problem's loss; None: `training.metrics` has it by its name.
    """

    higher_is_better: bool
    share: bool = False
    make: Callable[..., Any] | None = None


METRICS: dict[str, MetricKind] = {
    "loss": MetricKind(higher_is_better=False),
    "accuracy": MetricKind(higher_is_better=True, share=True),
    "balanced_accuracy": MetricKind(higher_is_better=True, share=True),
    "binary_accuracy": MetricKind(higher_is_better=True, share=True),
    "concordance": MetricKind(higher_is_better=True, share=True),
    "dice": MetricKind(higher_is_better=True, share=True),
}
"""Every metric by its name; `training.register_metric` adds one."""


def check_metrics(names: Iterable[str]) -> None:
    """Refuse a name that no metric has, and a metric without a direction.

    Raises:
        SettingsError: naming it, the known ones and the nearest.
    """
    for name in names:
        if name not in METRICS:
            raise SettingsError(unknown_key(name, METRICS, "metrics"))
        if not isinstance(METRICS[name], MetricKind):
            raise SettingsError(
                f"metric {name!r} has no direction; add it with register_metric(name, make, "
                "higher_is_better=...)"
            )


def higher_is_better(name: str) -> bool:
    """A metric's direction.

    Raises:
        SettingsError: no metric has this name.
    """
    check_metrics([name])
    return METRICS[name].higher_is_better


def is_share(name: str) -> bool:
    """Whether a metric is told in percent; one that is not known here is not."""
    return name in METRICS and METRICS[name].share


def score(metric: str, value: float) -> float:
    """A metric's value such that higher is better; one that is not a number is the worst.

    Raises:
        SettingsError: no metric has this name, so that nobody knows its direction.
    """
    rises = higher_is_better(metric)
    if isnan(value):
        return -inf
    return value if rises else -value
