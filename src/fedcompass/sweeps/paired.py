"""Runs compared seed by seed with a reference, with an interval for what is claimed.

Two runs are a pair if they have the same seed and differ along one axis only, so that both had the
same clients, data and first model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import mean
from typing import TypeAlias

from fedcompass.errors import SettingsError
from fedcompass.settings.training import falls
from fedcompass.sweeps.comparison import compared_axis
from fedcompass.sweeps.interval import BySeed, Interval, over_seeds
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.results import GridRun, Results
from fedcompass.vocabulary import Seconds

__all__ = ["Paired", "against", "paired"]

_ROUNDED = 1.00001  # a curve's times have six digits
_SOON = 1e-3  # seconds; a target that the untrained model reaches has no ratio otherwise

Pair: TypeAlias = tuple[Record, Record]
"""A run and the reference's with the same seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """One label against the reference.

    cells: other labels that both have pairs in; pairs: seeds in all of them.
    reached, reference_reached: pairs in which it, and the reference, reached the target.
    ahead, behind: pairs in which it was faster, and slower; the rest are ties.
    time: its time over the reference's, misses counted at their common horizon.
    uploads: its uploads to the target over the reference's, where both reached it.
    lead: how much better its best value of the target metric was when the sooner of the two had
        reached the target, or both had ended, or at a given time: mean over cells; None: never a
        number.
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
    results: Results,
    reference: str,
    where: Mapping[str, str] | None = None,
    at: Seconds | None = None,
) -> list[Paired]:
    """Each label of the reference's axis against it, in the grid's order.

    Args:
        results: what there is.
        reference: a label, or AXIS=LABEL.
        where: only the points with these labels.
        at: when the lead is taken; None: when the sooner of a pair is at the target.

    Raises:
        SettingsError: no axis has the reference, or a pair's horizons differ.
    """
    axis, label = compared_axis(results, reference, must_have=True)
    others = (other for other in results.axes[axis] if other != label)
    rows = (against(results, reference, other, where, at) for other in others)
    return [row for row in rows if row is not None]


def against(
    results: Results,
    reference: str,
    other: str,
    where: Mapping[str, str] | None = None,
    at: Seconds | None = None,
) -> Paired | None:
    """One label against the reference, which may be itself; None: they have no pairs.

    Raises:
        SettingsError: as `paired`.
    """
    axis, label = compared_axis(results, reference, must_have=True)
    wanted = (where or {}).items()
    runs = [run for run in results.runs if wanted <= run.labels.items()]
    base = {_place(run, axis): run.record for run in runs if run.labels[axis] == label}
    cells: dict[tuple[str, ...], list[Pair]] = {}
    for run in runs:
        found = base.get(_place(run, axis))
        if run.labels[axis] == other and run.record and run.is_done and found and found.is_done:
            cells.setdefault(_cell(run, axis), []).append((run.record, found))
    return _compared(other, list(cells.values()), at) if cells else None


def _cell(run: GridRun, axis: str) -> tuple[str, ...]:
    return tuple(label for name, label in run.labels.items() if name != axis)


def _place(run: GridRun, axis: str) -> tuple[tuple[str, ...], int]:
    return _cell(run, axis), run.seed


def _compared(label: str, cells: Sequence[Sequence[Pair]], at: Seconds | None) -> Paired:
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
        time=over_seeds(times),
        uploads=over_seeds(kept) if (kept := [cell for cell in uploads if cell]) else None,
        lead=_mean_over_cells([[*_leads(cell, at)] for cell in cells]),
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


def _leads(cell: Sequence[Pair], at: Seconds | None) -> Iterator[float]:
    for pair in cell:
        until = (min(_times(pair)) if at is None else at) * _ROUNDED
        own, base = (_best(run, until, is_capped=at is not None) for run in pair)
        if own is not None and base is not None:
            yield own - base


def _best(run: Record, until: Seconds, *, is_capped: bool) -> float | None:
    """Of the target metric up to a moment, such that higher is better.

    is_capped: what is better than the target counts as that, since a run may stop there.
    """
    sign = -1 if falls(run.experiment["evaluation"]["target_metric"]) else 1
    values = [sign * value for at, _, value in run.curve if at <= until and value is not None]
    most = max(values, default=None)
    target: float | None = run.experiment.get("target")
    if most is None or not is_capped or target is None:
        return most
    return min(most, sign * target)


def _mean_over_cells(cells: Sequence[Sequence[float]]) -> float | None:
    means = [mean(cell) for cell in cells if cell]
    return mean(means) if means else None


def _log_ratios(measured: Sequence[tuple[Pair, tuple[float, float] | None]]) -> BySeed:
    return {pair[0].seed: log(both[0] / both[1]) for pair, both in measured if both}
