"""How clients train and what is measured; `training/` does it.

Losses and metrics are known by name here, and which way each metric is better. One's own are named
`FILE.py:name` or `package.module:name`.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from fedcompass import own_code
from fedcompass.errors import SettingsError
from fedcompass.setting_tables import unknown_name
from fedcompass.settings import Settings

__all__ = [
    "LOSS_NAMES",
    "METRICS",
    "REGRESSION",
    "LocalSettings",
    "MetricKind",
    "Sampling",
    "check_loss",
    "best_in_words",
    "check_metrics",
    "falls",
    "higher_is_better",
    "is_share",
]


Sampling: TypeAlias = Literal["replacement", "epochs", "rounds"]
"""How a client's batches are drawn; `training/streams.py` does it."""


class LocalSettings(Settings):
    """How a client trains; the defaults are the paper's for MNIST (table of its appendix)."""

    optimizer: Literal["sgd", "adam", "adamw"] = "adam"
    """Optimizer of the clients, begun anew with every task."""
    learning_rate: Annotated[float, Field(gt=0)] = 0.003
    """Learning rate of the clients' optimizer."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum of `sgd`."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Pull of the weights towards 0: in the gradient, or with `adamw` beside it."""
    batch_size: Annotated[int, Field(ge=1)] = 64
    """Samples in a client's batch."""
    sampling: Sampling = "replacement"
    """How batches are drawn: at random with `replacement`, usual for built-in data; in shuffled
    passes over the client's samples that go on from task to task (`epochs`), usual for your own;
    or in passes that begin anew with every task (`rounds`). A privacy budget has its own way."""
    rate_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor on the learning rate after every `rate_decay_steps` steps of a client; 1: none."""
    rate_decay_steps: Annotated[int, Field(ge=1)] = 200
    """A client's steps, over all of its tasks, between two falls of its learning rate."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What the model's products are computed in; the weights and the optimizer stay float32."""

    @model_validator(mode="after")
    def _momentum_is_for_sgd(self) -> Self:
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(
                f"momentum is {self.momentum:g} but optimizer is {self.optimizer!r}; "
                "momentum belongs to 'sgd', leave it out"
            )
        return self

    def rate_scale(self, steps_before: int, steps: int) -> float:
        """What a task's learning rate is multiplied by, its own steps counted as done.

        That is how the paper's authors count: floor(all steps so far / Q_max) decays.
        """
        return float(self.rate_decay ** ((steps_before + steps) // self.rate_decay_steps))


_YOUR_OWN = f"your own is named {own_code.FORMS}"

REGRESSION = ("mse", "mae", "huber")
"""The losses whose targets are numbers, not classes."""

LOSS_NAMES = ("cross_entropy", "logistic", "focal", "dice", "cox", *REGRESSION)
"""Every loss's name."""


def check_loss(name: str) -> None:
    """Refuse a name that no loss has; one's own is looked up when it is needed.

    Raises:
        SettingsError: naming it, the known ones and the nearest.
    """
    if name not in LOSS_NAMES and not own_code.is_own(name):
        raise SettingsError(f"{unknown_name(name, LOSS_NAMES, 'loss')}; {_YOUR_OWN}")


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
    "mse": MetricKind(higher_is_better=False),
    "mae": MetricKind(higher_is_better=False),
    "r2": MetricKind(higher_is_better=True),
}
"""Every metric by its name; `training.register_metric` adds one."""


def check_metrics(names: Iterable[str]) -> None:
    """Refuse a name that no metric has, and a metric without a direction.

    Raises:
        SettingsError: naming it, the known ones and the nearest.
    """
    for name in names:
        if own_code.is_own(name):
            _load_metric(name)
            continue
        if name not in METRICS:
            raise SettingsError(f"{unknown_name(name, METRICS, 'metric')}; {_YOUR_OWN}")
        if not isinstance(METRICS[name], MetricKind):
            raise SettingsError(
                f"metric {name!r} has no direction; add it with register_metric(name, make, "
                "higher_is_better=...)"
            )


_METRIC = (
    "a function (outputs, targets) -> float with @fedcompass.training.metric(higher_is_better=...) "
    "above it, or a class with add, value and higher_is_better"
)


def _load_metric(name: str) -> None:
    """Make a metric of the user's own known under its short name, as results have it.

    Raises:
        SettingsError: it is not there, is no metric, or another one has the same short name.
    """
    found = own_code.find("metric", name)
    direction = getattr(found, "higher_is_better", None)
    if inspect.isclass(found) and isinstance(direction, bool):
        found = MetricKind(higher_is_better=direction, make=found)
    if not isinstance(found, MetricKind) or found.make is None:
        raise SettingsError(own_code.wrong("metric", name, found, _METRIC))
    if METRICS.setdefault(own_code.short(name), found) != found:
        raise SettingsError(
            f"two metrics are called {own_code.short(name)}; rename the file or one of them"
        )


def higher_is_better(name: str) -> bool:
    """A metric's direction.

    Raises:
        SettingsError: no metric has this name.
    """
    check_metrics([name])
    return METRICS[own_code.short(name)].higher_is_better


def is_share(name: str) -> bool:
    """Whether a metric is told in percent; one that is not known here is not."""
    kind = METRICS.get(own_code.short(name))
    return kind is not None and kind.share


def falls(name: str) -> bool:
    """Whether a metric is known to be better the lower it is; one not known here is not."""
    kind = METRICS.get(own_code.short(name))
    return kind is not None and not kind.higher_is_better


def best_in_words(name: str) -> str:
    """What a metric's best value is called: top accuracy, best loss."""
    return f"{'best' if falls(name) else 'top'} {name}"
