"""The metrics of a run over time: written as they come, with the best model beside them."""

from math import inf, isnan
from typing import Any

from fedcompass.deployment.background import Measured
from fedcompass.errors import SettingsError
from fedcompass.runs.files import LineFile
from fedcompass.vocabulary import ModelVersion, Seconds

__all__ = ["Curve"]


class Curve:
    """One row per evaluation: time, version and metrics.

    Args:
        lines: metrics.jsonl; rows that are there already are part of the run.
        metric: which one a target and the best model are about.
        target: what it should reach.
        rises: whether higher is better.
    """

    def __init__(self, lines: LineFile, metric: str, target: float | None, *, rises: bool) -> None:
        self._lines, self._metric, self._target, self._rises = lines, metric, target, rises
        self.rows: list[dict[str, Any]] = lines.records()

    def add(self, measured: Measured) -> bool:
        """Write a row; says whether it is the best so far.

        Raises:
            SettingsError: there is a target, but its metric is not measured.
        """
        if self._target is not None and self._metric not in measured.metrics:
            raise SettingsError(
                f"target_metric is {self._metric!r}; the app measures: "
                f"{', '.join(measured.metrics)}"
            )
        row = {"time": measured.time, "version": measured.version, **measured.metrics}
        best = self.best
        self._lines.append([row])
        self.rows.append(row)
        return best is None or self._score(row) > self._score(best)

    @property
    def last_version(self) -> ModelVersion:
        """The newest version that was measured, -1 if none was."""
        return max((row["version"] for row in self.rows), default=-1)

    @property
    def best(self) -> dict[str, Any] | None:
        """The first of the best rows."""
        return max(self.rows, key=self._score, default=None)

    def time_to_target(self) -> Seconds | None:
        """When the target was first reached; None: not yet, or there is none."""
        if self._target is None:
            return None
        enough = self._signed(self._target)
        good = (row for row in self.rows if self._score(row) >= enough)
        return next((float(row["time"]) for row in good), None)

    def _score(self, row: dict[str, Any]) -> float:
        """Such that higher is better; what is missing or not a number is the worst."""
        value = row.get(self._metric)
        return -inf if value is None or isnan(value) else self._signed(value)

    def _signed(self, value: float) -> float:
        return value if self._rises else -value
