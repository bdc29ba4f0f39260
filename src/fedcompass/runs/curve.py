"""What was measured of a run's models over time: the best, and when a target was reached."""

from collections.abc import Iterable, Mapping
from math import inf, isnan
from typing import Any, TypeAlias

from fedcompass.vocabulary import ModelVersion, Seconds

__all__ = ["Curve", "Row", "metrics_of"]

Row: TypeAlias = dict[str, Any]
"""time, version, one key per metric, and `clients` (one value per client) if that was asked for."""

_NOT_METRICS = ("time", "version", "clients")  # of a row


def metrics_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured, by name."""
    return {key: value for key, value in row.items() if key not in _NOT_METRICS}


class Curve:
    """One row per evaluation, in order of time, judged by one of the metrics.

    Args:
        metric: which one a target and the best row are about.
        rises: whether higher is better.
        rows: those there are already.
    """

    def __init__(self, metric: str, *, rises: bool, rows: Iterable[Row] = ()) -> None:
        self.metric, self._rises = metric, rises
        self.rows: list[Row] = []
        self.best: Row | None = None  # the first of the best rows
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> bool:
        """Take in the next row; says whether it is the best so far."""
        is_best = self.best is None or self._score(row) > self._score(self.best)
        if is_best:
            self.best = row
        self.rows.append(row)
        return is_best

    @property
    def last_version(self) -> ModelVersion:
        """The newest version that was measured, -1 if none was."""
        return max((row["version"] for row in self.rows), default=-1)

    def reaches(self, row: Row, target: float) -> bool:
        """Whether a row is as good as the target."""
        return self._score(row) >= self._signed(target)

    def time_to(self, target: float | None) -> Seconds | None:
        """When a target was first reached; None: not yet, or there is none."""
        row = self.row_at(target)
        return None if row is None else float(row["time"])

    def row_at(self, target: float | None) -> Row | None:
        """The first row that reached a target; None: not yet, or there is none."""
        if target is None:
            return None
        return next((row for row in self.rows if self.reaches(row, target)), None)

    def _score(self, row: Row) -> float:
        """Such that higher is better; what is missing or not a number is the worst."""
        value = row.get(self.metric)
        return -inf if value is None or isnan(value) else self._signed(value)

    def _signed(self, value: float) -> float:
        return value if self._rises else -value
