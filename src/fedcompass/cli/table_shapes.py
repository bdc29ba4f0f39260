"""What stands where in a table of results: a list of all cells, or a grid of one number each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from math import isnan

from fedcompass.errors import SettingsError
from fedcompass.number_text import metric_text
from fedcompass.own_code import short
from fedcompass.settings.training import best_in_words, falls
from fedcompass.sweeps.comparison import Comparison, GridPoint
from fedcompass.sweeps.formats import TextTable
from fedcompass.sweeps.grid import label_of
from fedcompass.sweeps.over_seeds import troubles
from fedcompass.sweeps.results import Results

__all__ = ["at_target", "check_axes", "every_number", "grids", "listing", "notes"]

_NOTHING = "-"  # fewer than half of the seeds reached the target, or there is nothing to divide by
_NOT_YET = "…"

_LISTING = """\
time: first evaluation {} the target, mean ± standard deviation over
the seeds that reached it, - where fewer than half did; ratio: {};
idle: share of client time spent waiting; stale: mean staleness;
wins: seeds in which it was first, among those that all it is compared with
have done; ranked: the mean, with misses counted at the horizon."""
_TIMES = """\
times over {}'s (x): means over the seeds that reached the target, - where fewer than half
did; k/n: seeds that reached it, of those done"""
_WINS = "; wins: seeds in which it was first,\namong those that all it is compared with have done"
_TOP = "mean ± standard deviation over seeds"


def listing(comparison: Comparison) -> TextTable:
    """One line per cell with its numbers; what is compared with each other stands together."""
    axes = [axis for axis in comparison.results.axes if axis != comparison.axis]
    axes += [comparison.axis] if comparison.axis else []
    cells = _sorted_by(axes, comparison)
    header = [*axes, _time_header(cells), "reached", "ratio", best_in_words(_metric(cells))]
    header += ["idle", "stale", "wins", "ranked"]
    rows = [[*(cell.labels[axis] for axis in axes), *_numbers(cell)] for cell in cells]
    meaning = _LISTING.format(at_target(cells), _ratio(comparison))
    return TextTable("", header, rows, left=range(len(axes)), meaning=meaning)


def at_target(cells: Sequence[GridPoint]) -> str:
    """Where a value that reaches the target lies."""
    return "at or below" if falls(_metric(cells)) else "at or above"


def _ratio(comparison: Comparison) -> str:
    reference = comparison.reference
    if reference in comparison.results.axes.get(comparison.axis, ()):
        return f"that mean over {reference}'s"
    return f"none, as {reference} is not among these; --reference names another"


def _sorted_by(axes: Sequence[str], comparison: Comparison) -> list[GridPoint]:
    known = comparison.results.axes
    return sorted(
        comparison.points(),
        key=lambda cell: [list(known[axis]).index(cell.labels[axis]) for axis in axes],
    )


def every_number(comparison: Comparison) -> TextTable:
    """One line per cell, each number by itself and empty where there is none: for programs."""
    header = [*comparison.results.axes, "planned", "done", "failed", "reached", "time"]
    header += ["time_spread", "relative_time", "time_misses_at_horizon", "top", "top_spread"]
    header += ["idle_share", "mean_staleness", "wins", "broke_off", "refused_not_finite"]
    rows = []
    for cell in comparison.points():
        counts = [cell.planned, cell.done, cell.failed]
        row = cell.row
        numbers: list[float | None] = [None] * 12
        if row is not None:
            numbers = [row.reached, row.time, row.time_spread, row.relative, row.rank_time]
            numbers += [row.top, row.top_spread, row.idle_share, row.mean_staleness, cell.wins]
            numbers += [row.broke_off, row.refused_not_finite]
        texts = ["" if n is None or isnan(n) else f"{n:.6g}" for n in (*counts, *numbers)]
        rows.append([*cell.labels.values(), *texts])
    return TextTable("", header, rows, left=())


def grids(
    comparison: Comparison, metric: str, down: Sequence[str], across: Sequence[str]
) -> list[TextTable]:
    """A table for each combination of the axes that are neither down nor across.

    Raises:
        SettingsError: there is no such axis, or it is named twice.
    """
    axes = comparison.results.axes
    check_axes([*down, *across], comparison.results)
    down = down or [axis for axis in [comparison.axis] if axis not in across]
    across = across or [axis for axis in axes if axis not in down]
    others = [axis for axis in axes if axis not in (*down, *across)]
    shapes = []
    for apart in product(*(axes[axis] for axis in others)):
        fixed = dict(zip(others, apart, strict=True))
        shapes.append(_grid(comparison, metric, down, across, fixed))
    return [shape for shape in shapes if shape.rows]


def _grid(
    comparison: Comparison,
    metric: str,
    down: Sequence[str],
    across: Sequence[str],
    fixed: Mapping[str, str],
) -> TextTable:
    axes = comparison.results.axes
    columns = list(product(*(axes[axis] for axis in across)))
    counts_wins = metric == "time" and comparison.axis in down
    rows = []
    for point in product(*(axes[axis] for axis in down)):
        labels = {**fixed, **dict(zip(down, point, strict=True))}
        cells = [
            comparison.point({**labels, **dict(zip(across, column, strict=True))})
            for column in columns
        ]
        if any(cell is not None for cell in cells):
            wins = [str(sum(c.wins for c in cells if c is not None))] if counts_wins else []
            rows.append([*point, *(_in_grid(cell, metric) for cell in cells), *wins])
    what = "time to target" if metric == "time" else best_in_words(_metric(comparison.points()))
    title = f"{what} by {', '.join(across)}" if across else what
    return TextTable(
        title="; ".join([title, *(f"{axis}={label}" for axis, label in fixed.items())]),
        header=[*down, *(" / ".join(c) for c in columns), *(["wins"] if counts_wins else [])],
        rows=rows,
        left=range(len(down)),
        meaning=_meaning(comparison, metric, counts_wins),
    )


def _meaning(comparison: Comparison, metric: str, counts_wins: bool) -> str:
    if metric != "time":
        return _TOP
    return _TIMES.format(comparison.reference) + (_WINS if counts_wins else "")


def notes(comparison: Comparison) -> list[str]:
    """What a reader must know: what is missing, what failed why, and what did not go well."""
    cells, runs = comparison.points(), comparison.results.runs
    lines = []
    if partial := sum(cell.is_partial for cell in cells):
        lines.append(
            f"partial: {partial} of {len(cells)} cells lack seeds "
            "(k/n of N: reached, done, planned)"
        )
    errors = Counter(run.record.error for run in runs if run.record and run.record.error)
    for error, count in sorted(errors.items()):
        lines.append(f"failed{f' ({count} runs)' if count > 1 else ''}: {error}")
    done = [(" ".join(r.labels.values()), r.record) for r in runs if r.record and r.is_done]
    return lines + troubles(done)


def check_axes(named: Sequence[str], results: Results) -> None:
    """Refuse an axis that is not there, or is named twice.

    Raises:
        SettingsError: naming it.
    """
    for number, axis in enumerate(named):
        results.labels(axis)
        if axis in named[:number]:
            raise SettingsError(f"axis {axis!r} is named twice in --rows and --columns")


def _numbers(cell: GridPoint) -> list[str]:
    row = cell.row
    if row is None:
        return [_NOT_YET, _reached(cell), *[_NOTHING] * 6]
    return [
        _time(cell),
        _reached(cell),
        _NOTHING if row.relative is None else f"{row.relative:.2f}x",
        _top(cell),
        f"{row.idle_share:.0%}",
        f"{row.mean_staleness:.2f}",
        str(cell.wins),
        f"{row.rank_time:.1f} s",
    ]


def _in_grid(cell: GridPoint | None, metric: str) -> str:
    if cell is None:
        return ""
    if metric != "time":
        partial = f" ({cell.done} of {cell.planned} seeds)" if cell.is_partial else ""
        return _top(cell) + partial
    if cell.row is None:
        return f"{_NOT_YET} {_reached(cell)}"
    relative = cell.row.relative
    value = _time(cell) if relative is None else f"{relative:.2f}x"
    return f"{value} {_reached(cell)}"


def _reached(cell: GridPoint) -> str:
    """Seeds that reached the target among those done, and of how many if some are missing."""
    reached = cell.row.reached if cell.row is not None else 0
    planned = f" of {cell.planned}" if cell.is_partial else ""
    off = f", {cell.row.broke_off} broke off" if cell.row and cell.row.broke_off else ""
    return f"{reached}/{cell.done}{planned}{off}"


def _time(cell: GridPoint) -> str:
    row = cell.row
    if row is None or row.time is None:
        return _NOTHING
    return f"{row.time:.1f} s" + ("" if row.time_spread is None else f" ± {row.time_spread:.1f}")


def _top(cell: GridPoint) -> str:
    row = cell.row
    if row is None or isnan(row.top):
        return _NOT_YET if row is None else _NOTHING
    metric = short(cell.experiment["evaluation"]["target_metric"])
    spread = "" if row.top_spread is None else f" ± {metric_text(metric, row.top_spread)}"
    return metric_text(metric, row.top) + spread


def _time_header(cells: Sequence[GridPoint]) -> str:
    targets = {label_of(cell.experiment.get("target")) for cell in cells}
    try:
        if len(targets) != 1:
            return "time to target"
        return f"time to {metric_text(_metric(cells), float(targets.pop()), 0)}"
    except ValueError:
        return "time to target"


def _metric(cells: Sequence[GridPoint]) -> str:
    metrics = {short(cell.experiment["evaluation"]["target_metric"]) for cell in cells}
    return metrics.pop() if len(metrics) == 1 else "metric"
