"""Runs compared seed by seed with a reference, with an interval for what is claimed.

Two runs are a pair if they have the same seed and differ along one axis only, so that both had the
same clients, data and first model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import mean
from typing import TypeAlias

from fedcompass.errors import SettingsError
from fedcompass.settings.training import falls
from fedcompass.sweeps.comparison import compared_axis
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.results import GridRun, Results
from fedcompass.vocabulary import Seconds

__all__ = ["Interval", "Paired", "paired"]

_RESAMPLES = 2000
_SHARE = 0.95
_ROUNDED = 1.00001  # a curve's times have six digits
_SOON = 1e-3  # seconds; a target that the untrained model reaches has no ratio otherwise

Pair: TypeAlias = tuple[Record, Record]
"""A run and the reference's with the same seed."""

BySeed: TypeAlias = dict[int, float]
"""Logarithms of a cell's ratios."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A geometric mean of ratios, and where it lies in 95 of 100 resamplings.

    is_known: whether a cell has two seeds; without that nothing can be resampled.
    """

    mean: float
    low: float
    high: float
    is_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """One label against the reference.

    cells: other labels that both have pairs in; pairs: seeds in all of them.
    reached, reference_reached: pairs in which it, and the reference, reached the target.
    ahead, behind: pairs in which it was faster, and slower; the rest are ties.
    time: its time over the reference's, misses counted at their common horizon.
    uploads: its uploads to the target over the reference's, where both reached it.
    lead: how much better its best value of the target metric was when the sooner of the two had
        reached the target, or both had ended: mean over cells; None: never a number.
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
    lead: float | None
    idle_share: float


def paired(
    results: Results, reference: str, where: Mapping[str, str] | None = None
) -> list[Paired]:
    """Each label of the reference's axis against it, in the grid's order.

    The interval is a bootstrap's: seeds are drawn anew, each with its pairs in all cells. Cells
    share a seed's clients and data, so drawn cell by cell the interval would be too narrow.

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
    times = [_log_ratios([(pair, _times(pair)) for pair in cell]) for cell in cells]
    flat = [value for cell in times for value in cell.values()]
    uploads = [_log_ratios([(pair, _uploads(pair)) for pair in cell]) for cell in cells]
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
        lead=_mean_over_cells([[*_leads(cell)] for cell in cells]),
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


def _times(pair: Pair) -> tuple[float, float]:
    run, base = _of_one_horizon(pair)
    return _time(run), _time(base)


def _time(record: Record) -> float:
    reached = record.numbers.time_to_target
    return record.horizon if reached is None else max(reached, _SOON)


def _uploads(pair: Pair) -> tuple[float, float] | None:
    counts = [record.numbers.uploads_to_target for record in pair]
    return (counts[0], counts[1]) if counts[0] and counts[1] else None


def _leads(cell: Sequence[Pair]) -> Iterator[float]:
    for pair in cell:
        until = min(_times(pair)) * _ROUNDED
        own, base = (_best(run, until) for run in pair)
        if own is not None and base is not None:
            yield own - base


def _best(run: Record, until: Seconds) -> float | None:
    """Of the target metric up to a moment, such that higher is better."""
    sign = -1 if falls(run.experiment["evaluation"]["target_metric"]) else 1
    values = [sign * value for at, _, value in run.curve if at <= until and value is not None]
    return max(values, default=None)


def _mean_over_cells(cells: Sequence[Sequence[float]]) -> float | None:
    means = [mean(cell) for cell in cells if cell]
    return mean(means) if means else None


def _log_ratios(measured: Sequence[tuple[Pair, tuple[float, float] | None]]) -> BySeed:
    return {pair[0].seed: log(both[0] / both[1]) for pair, both in measured if both}


def _interval(cells: Sequence[BySeed]) -> Interval:
    """Of the mean over cells of each cell's mean, from logarithms.

    Seeds are drawn for all cells together; a cell that has none of those drawn is left out.
    """
    import numpy as np

    seeds = sorted({seed for cell in cells for seed in cell})
    chosen = np.random.default_rng(0).integers(len(seeds), size=(_RESAMPLES, len(seeds)))
    times_drawn = (chosen[:, :, None] == np.arange(len(seeds))).sum(axis=1)
    total, used = np.zeros(_RESAMPLES), np.zeros(_RESAMPLES)
    for cell in cells:
        pairs = times_drawn @ np.array([seed in cell for seed in seeds], dtype=float)
        sums = times_drawn @ np.array([cell.get(seed, 0.0) for seed in seeds])
        total += sums / np.maximum(pairs, 1)
        used += pairs > 0
    tail = (1 - _SHARE) / 2
    low, high = np.quantile(total / used, (tail, 1 - tail))
    is_known = any(len(cell) > 1 for cell in cells)
    return Interval(exp(mean(mean(cell.values()) for cell in cells)), exp(low), exp(high), is_known)
