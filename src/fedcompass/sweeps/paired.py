"""Runs compared seed by seed with a reference, with an interval for what is claimed.

Two runs are a pair if they have the same seed and differ along one axis only, so that both had the
same clients, data and first model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import mean
from typing import TypeAlias

from fedcompass.errors import SettingsError
from fedcompass.sweeps.comparison import compared_axis
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.results import GridRun, Results

__all__ = ["Interval", "Paired", "paired"]

_RESAMPLES = 2000
_SHARE = 0.95
_SOON = 1e-3  # seconds; a target that the untrained model reaches has no ratio otherwise

Pair: TypeAlias = tuple[Record, Record]
"""A run and the reference's with the same seed."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A geometric mean of ratios, and where it lies in 95 of 100 resamplings."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """One label against the reference.

    cells: other labels that both have pairs in; pairs: seeds in all of them.
    reached, reference_reached: pairs in which it, and the reference, reached the target.
    ahead, behind: pairs in which it was faster, and slower; the rest are ties.
    time: its time over the reference's, misses counted at their common horizon.
    uploads: its uploads to the target over the reference's, where both reached it.
    idle_share: mean of its runs.
    """

    label: str
    cells: int
    pairs: int
    reached: int
    reference_reached: int
    ahead: int
    behind: int
    time: Interval
    uploads: Interval | None
    idle_share: float


def paired(
    results: Results, reference: str, where: Mapping[str, str] | None = None
) -> list[Paired]:
    """Each label of the reference's axis against it, in the grid's order.

    The interval is a bootstrap's: seeds are drawn anew within each cell.

    Args:
        results: what there is.
        reference: a label, or AXIS=LABEL.
        where: only the points with these labels.

    Raises:
        SettingsError: no axis has the reference, or a pair's horizons differ.
    """
    axis, label = compared_axis(results, reference, must_have=True)
    wanted = (where or {}).items()
    runs = [run for run in results.runs if wanted <= run.labels.items()]
    base = {_place(run, axis): run.record for run in runs if run.labels[axis] == label}
    rows = []
    for other in results.axes[axis]:
        cells: dict[tuple[str, ...], list[Pair]] = {}
        for run in runs:
            found = base.get(_place(run, axis))
            if run.labels[axis] == other and run.record and run.is_done and found and found.is_done:
                cells.setdefault(_cell(run, axis), []).append((run.record, found))
        if cells and other != label:
            rows.append(_compared(other, list(cells.values())))
    return rows


def _cell(run: GridRun, axis: str) -> tuple[str, ...]:
    return tuple(label for name, label in run.labels.items() if name != axis)


def _place(run: GridRun, axis: str) -> tuple[tuple[str, ...], int]:
    return _cell(run, axis), run.seed


def _compared(label: str, cells: Sequence[Sequence[Pair]]) -> Paired:
    pairs = [pair for cell in cells for pair in cell]
    times = [[_log_ratio(*map(_time, _of_one_horizon(pair))) for pair in cell] for cell in cells]
    flat = [value for cell in times for value in cell]
    uploads = [[_log_ratio(*counts) for counts in map(_uploads, cell) if counts] for cell in cells]
    return Paired(
        label=label,
        cells=len(cells),
        pairs=len(pairs),
        reached=sum(run.numbers.time_to_target is not None for run, _ in pairs),
        reference_reached=sum(base.numbers.time_to_target is not None for _, base in pairs),
        ahead=sum(value < 0 for value in flat),
        behind=sum(value > 0 for value in flat),
        time=_interval(times),
        uploads=_interval(kept) if (kept := [cell for cell in uploads if cell]) else None,
        idle_share=mean(run.numbers.idle_share for run, _ in pairs),
    )


def _of_one_horizon(pair: Pair) -> Pair:
    run, base = pair
    if run.horizon != base.horizon:
        raise SettingsError(
            f"seed {run.seed}: one run's horizon is {run.horizon:g} s, its reference's "
            f"{base.horizon:g} s; misses are counted at a common one: give both the same"
        )
    return pair


def _time(record: Record) -> float:
    reached = record.numbers.time_to_target
    return record.horizon if reached is None else max(reached, _SOON)


def _uploads(pair: Pair) -> tuple[float, float] | None:
    counts = [record.numbers.uploads_to_target for record in pair]
    return (counts[0], counts[1]) if counts[0] and counts[1] else None


def _log_ratio(value: float, base: float) -> float:
    return log(value / base)


def _interval(cells: Sequence[Sequence[float]]) -> Interval:
    """Of the mean over cells of each cell's mean, from logarithms."""
    import numpy as np

    draws = np.random.default_rng(0)
    total = np.zeros(_RESAMPLES)
    for cell in cells:
        chosen = draws.integers(len(cell), size=(_RESAMPLES, len(cell)))
        total += np.asarray(cell)[chosen].mean(axis=1)
    tail = (1 - _SHARE) / 2
    low, high = np.quantile(total / len(cells), (tail, 1 - tail))
    return Interval(exp(mean(map(mean, cells))), exp(low), exp(high))
