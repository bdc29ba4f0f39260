"""How a federation runs: its strategy, when it ends, and how long it waits for whom."""

from typing import Any, Self

from pydantic import Field, model_validator

from fedcompass import strategies
from fedcompass.setting_tables import merged
from fedcompass.settings import Settings
from fedcompass.settings.aggregation import TIMES_MEDIAN
from fedcompass.settings.secure import SecureSettings
from fedcompass.settings.training import METRICS, check_metrics, higher_is_better
from fedcompass.strategies import Strategy

__all__ = ["FederationSettings"]

_PACE = {"overhead_aware": True, "newest_weight": 0.5}
"""Over a network a task costs seconds before it starts, more or less by chance: the overhead is
estimated apart from the steps, and two answers count rather than one."""

_GUARD = {"times_median": TIMES_MEDIAN, "max_buffer": 1e12, "max_passes": 1}
"""Sites may lie, simulated clients do not: there nothing is bounded by default."""


class FederationSettings(Settings):
    """The server's part of deployment.toml; times are seconds."""

    strategy: dict[str, Any] = Field(default_factory=lambda: {"name": "fedcompass"})
    """`name`, and any setting of that strategy."""

    seed: int = Field(default=0, ge=0)
    """Decides the initial model."""

    min_clients: int = Field(default=1, ge=1)
    """The run starts when so many sites have joined; others may join later."""

    max_samples: int | None = Field(default=None, ge=1)
    """A site that claims more samples than this is turned away: they are its weight."""

    max_updates: int | None = Field(default=None, ge=1)
    """The run ends after so many global updates; answers that came together all count."""

    fair_share: float = Field(default=5.0, ge=1)
    """A site that made so many times its even share of `max_updates` waits while others train."""

    max_seconds: float | None = Field(default=None, gt=0)
    """The run ends after so long; the time a server is down does not count."""

    target: float | None = None
    """The run ends when the target metric is as good as this."""

    metrics: tuple[str, ...] = ("loss", "accuracy")
    """What is measured on the app's test set; an `evaluate` of its own says by itself."""

    target_metric: str = "accuracy"
    """What `target` and the best model are about; it rises or falls by its direction."""

    higher_is_better: bool | None = None
    """The target metric's direction, needed for one that only the app's own `evaluate` knows."""

    evaluate_every: int = Field(default=1, ge=1)
    """Measure after every so many global updates, or fewer where measuring is slower."""

    task_timeout: float = Field(default=600.0, gt=0)
    """A site that keeps a task for so long counts as gone; make it longer than any task takes."""

    ttl: float = Field(default=3600.0, gt=0)
    """A message may be answered for so long; later answers are not taken."""

    gone_after: float = Field(default=20.0, ge=0)
    """A site that is not connected for so long counts as gone."""

    return_within: float = Field(default=120.0, ge=0)
    """After a resume, sites have so long to connect again before they count as gone."""

    max_failures: int = Field(default=5, ge=1)
    """A site whose tasks fail so often in a row counts as gone for a while."""

    poll_interval: float = Field(default=0.05, gt=0)
    """How often replies are asked for."""

    watch_interval: float = Field(default=1.0, gt=0)
    """How often the server looks who is connected."""

    secure: SecureSettings = SecureSettings()
    """A table: whether updates stay at their sites and the server sees only sums of them."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self.chosen_strategy()
        check_metrics(self.metrics)
        self._check_direction()
        if self.max_updates is None and self.max_seconds is None and self.target is None:
            raise ValueError(
                "the run would never end; set max_updates, max_seconds or target (or several)"
            )
        if self.ttl < self.task_timeout:
            raise ValueError(
                f"ttl is {self.ttl:g}; allowed: at least task_timeout, {self.task_timeout:g}, "
                "or tasks expire on their way"
            )
        return self

    def _check_direction(self) -> None:
        name, given = self.target_metric, self.higher_is_better
        if name not in METRICS and given is None:
            raise ValueError(
                f"target_metric is {name!r}, whose direction is not known; known are: "
                f"{', '.join(METRICS)}; set higher_is_better for one of the app's own"
            )
        if name in METRICS and given not in (None, higher_is_better(name)):
            raise ValueError(
                f"higher_is_better is {given}, but {name} is better the "
                f"{'higher' if higher_is_better(name) else 'lower'} it is; leave it out"
            )

    @property
    def target_rises(self) -> bool:
        """Whether a higher value of the target metric is better."""
        given = self.higher_is_better
        return higher_is_better(self.target_metric) if given is None else given

    def chosen_strategy(self) -> Strategy:
        """The strategy with its settings; paces are estimated apart from a task's overhead."""
        if "min_clients" in self.strategy:
            raise ValueError("strategy.min_clients is a setting of the federation; move it there")
        given = {key: value for key, value in self.strategy.items() if key != "name"}
        name = self.strategy.get("name", "fedcompass")
        usual = {"pace": _PACE, "guard": _GUARD}
        settings = merged(usual, given, {"min_clients": self.min_clients})
        make = strategies.secured if self.secure.enabled else strategies.strategy
        return make(name, **settings)

    def to_record(self) -> dict[str, Any]:
        """All settings as TOML values; what is unset is left out."""
        record: dict[str, Any] = self.model_dump(mode="json", exclude_none=True)
        if not self.secure.enabled:
            del record["secure"]
        return record
