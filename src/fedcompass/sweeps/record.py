"""What a store keeps of a run: its settings, its outcome and a compact curve, in plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

from fedcompass import __version__
from fedcompass.error_text import told
from fedcompass.errors import FedcompassError
from fedcompass.finite_json import json_text
from fedcompass.runs.curve import Curve
from fedcompass.simulation.ending import NOBODY_LEFT, TOO_FEW_LEFT, Ended
from fedcompass.vocabulary import ModelVersion, Seconds

if TYPE_CHECKING:
    from fedcompass.experiment import Experiment
    from fedcompass.simulation.result import Result

__all__ = [
    "CurvePoint",
    "Record",
    "RunOutcome",
    "compact_curve",
    "failed_record",
    "record_of",
]

CurvePoint: TypeAlias = tuple[Seconds, ModelVersion, float | None]
"""Virtual time, version and target metric (None: not a number) of one evaluation."""

SPACED_POINTS = 60
_DIGITS = 6  # significant ones of a curve's numbers: finer than any test set


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The numbers of a finished run; `top` and `final` are of the target metric."""

    time_to_target: Seconds | None  # None: not within the horizon, or no target
    top: float | None  # None: it was never a number
    time_of_top: Seconds | None
    final: float | None
    virtual_seconds: Seconds
    global_updates: int
    local_steps: int
    updates: int
    idle_share: float
    mean_staleness: float
    ended: Ended | None = None  # None: it was stored before this was kept
    refused_not_finite: int = 0  # updates with NaN or infinity; 0 in what was stored before, too
    uploads_to_target: int | None = None  # None: it was not reached, or stored before
    epsilon_per_client: list[float] | None = None  # spent; None: training was not private

    @property
    def broke_off(self) -> bool:
        """Whether nobody was left to train."""
        return self.ended in (NOBODY_LEFT, TOO_FEW_LEFT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of a store: a run that is done, or that failed.

    key: the experiment's.
    experiment: its complete settings, without the folder of the data; `Experiment(**experiment)`.
    outcome: None if it failed.
    curve: the target metric over time, see `compact_curve`.
    code: the version of fedcompass that ran it.
    device: where it was trained; other devices round differently.
    error: one line, if it failed.
    """

    key: str
    experiment: dict[str, Any]
    outcome: RunOutcome | None = None
    curve: list[CurvePoint] = field(default_factory=list)
    code: str = __version__
    device: str = "cpu"
    error: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether the run came to its end."""
        return self.outcome is not None

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.experiment["seed"])

    @property
    def horizon(self) -> Seconds:
        """After so much virtual time the run ended at the latest."""
        return float(self.experiment["horizon"])

    @property
    def numbers(self) -> RunOutcome:
        """A finished run's outcome.

        Raises:
            ValueError: it failed.
        """
        if self.outcome is None:
            raise ValueError(f"run {self.key} failed: it has no outcome")
        return self.outcome

    def to_json(self) -> str:
        """The record as one line of JSON."""
        return json_text({name: value for name, value in asdict(self).items() if value is not None})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Record":
        """The record of a line.

        Raises:
            KeyError, TypeError, ValueError: it is not a record's.
        """
        outcome = values.get("outcome")
        return cls(
            key=str(values["key"]),
            experiment=dict(values["experiment"]),
            outcome=None if outcome is None else RunOutcome(**outcome),
            curve=[(float(at), int(version), metric) for at, version, metric in values["curve"]],
            code=str(values["code"]),
            device=str(values["device"]),
            error=values.get("error"),
        )


def record_of(result: "Result", device: str) -> Record:
    """What to keep of a run that came to its end."""
    summary = result.summary
    metric = summary["target_metric"]
    apart = {which: _number(summary[f"{which}_{metric}"]) for which in ("top", "final")}
    apart["epsilon_per_client"] = summary.get("epsilon_per_client")
    names = [each.name for each in fields(RunOutcome) if each.name not in apart]
    numbers: dict[str, Any] = {name: summary[name] for name in names} | apart
    return Record(
        key=result.experiment.key(),
        experiment=_settings(result.experiment),
        outcome=RunOutcome(**numbers),
        curve=compact_curve(result.curve, metric),
        device=device,
    )


def failed_record(experiment: "Experiment", error: Exception, device: str) -> Record:
    """What to keep of a run that could not be carried out: why, in one line."""
    return Record(
        key=experiment.key(),
        experiment=_settings(experiment),
        device=device,
        error=_in_one_line(error),
    )


def _in_one_line(error: Exception) -> str:
    """An error in one line; one that is not ours is named."""
    if isinstance(error, FedcompassError):
        return " ".join(str(error).split())
    return told(error)[:300]


def compact_curve(
    rows: Sequence[dict[str, Any]], metric: str, spaced: int = SPACED_POINTS
) -> list[CurvePoint]:
    """Enough of a curve to draw it, and to tell exactly when it first reached anything.

    Kept are the first and the last evaluation, each one that was better than all before it, and
    about `spaced` more, evenly spaced in time. Numbers are rounded to six digits.
    """
    from fedcompass.settings.training import higher_is_better  # with pydantic, which readers spare

    if not rows:
        return []
    curve = Curve(metric, rises=higher_is_better(metric))
    bests = [number for number, row in enumerate(rows) if curve.add(row)]
    kept = {0, len(rows) - 1, *bests, *_evenly(rows, spaced)}
    return [_point(rows[number], metric) for number in sorted(kept)]


def _evenly(rows: Sequence[Mapping[str, Any]], spaced: int) -> list[int]:
    """The first row in each of so many equal spans of time."""
    end = rows[-1]["time"] or 1.0
    first: dict[int, int] = {}
    for number, row in enumerate(rows):
        first.setdefault(int(row["time"] / end * spaced), number)
    return list(first.values())


def _point(row: Mapping[str, Any], metric: str) -> CurvePoint:
    value = _number(row[metric])
    return _rounded(row["time"]), row["version"], None if value is None else _rounded(value)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _number(value: float | None) -> float | None:
    """None for what is not a finite number: JSON has no others."""
    return None if value is None or not isfinite(value) else float(value)


def _settings(experiment: "Experiment") -> dict[str, Any]:
    """The experiment's record; where the data lay decides nothing and is nobody's business."""
    record = experiment.to_record()
    record["data"].pop("root", None)
    return record
