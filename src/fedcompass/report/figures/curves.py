"""Curves over seeds: the mean and its spread on one time grid, each run a step function.

`report/page/groups.js` follows the same rule; a test compares the two number by number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcompass.errors import SettingsError
from fedcompass.report.figures.records import RunRecord

__all__ = ["Band", "mean_curve"]


@dataclass(frozen=True)
class Band:
    """Mean and standard deviation of some runs; between two times the earlier values hold."""

    times: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64] | None  # sample standard deviation; None for a single run
    runs: int


def mean_curve(runs: Sequence[RunRecord], metric: str) -> Band:
    """The mean of a metric over runs, at every time at which one of them was measured.

    A run's value holds until its next evaluation. The curve ends where the shortest run ends: no
    seed drops out of the mean on the way.

    Raises:
        SettingsError: a run did not measure the metric.
    """
    measured = [_measured(run, metric) for run in runs]
    end = min(run.end for run in runs)
    begin = max(times[0] for times, _ in measured)
    every = np.unique(np.concatenate([times for times, _ in measured] + [np.array([end])]))
    times = every[(every >= begin) & (every <= end)]
    values = np.stack([_at(times, *points) for points in measured])
    spread = values.std(axis=0, ddof=1) if len(runs) > 1 else None
    return Band(times, values.mean(axis=0), spread, len(runs))


def _measured(run: RunRecord, metric: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows = [row for row in run.curve if row.get(metric) is not None]  # null: it was not finite
    if not rows:
        known = [key for key in (run.curve or [{}])[0] if key not in ("time", "version", "clients")]
        raise SettingsError(
            f"{run.files.path} has no {metric!r}; measured were: {', '.join(known) or 'nothing'}"
        )
    times = np.array([row["time"] for row in rows], dtype=np.float64)
    return times, np.array([row[metric] for row in rows], dtype=np.float64)


def _at(
    times: NDArray[np.float64], known: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The latest value known at each time; of several at one time, the last."""
    return values[np.searchsorted(known, times, side="right") - 1]
