"""A table of runs compared seed by seed with a reference: `fedcompass table --paired`."""

from collections.abc import Sequence
from itertools import product

from fedcompass.cli.table_shapes import check_axes
from fedcompass.sweeps.comparison import compared_axis
from fedcompass.sweeps.formats import TextTable
from fedcompass.sweeps.paired import Interval, Paired, paired
from fedcompass.sweeps.results import Results

__all__ = ["paired_shapes"]

_NOTHING = "-"
_MEANING = """\
pairs: runs with the seed of one of {0}'s in the same cell; reached: of these, and of {0}'s;
time: its time to the target over {0}'s, misses counted at the horizon: geometric mean over
cells [95% of 2,000 bootstrap resamplings of the seeds, from two on, each seed with its pairs in
all cells; of few seeds it is too narrow, of three it is their range]; ahead: pairs in which it
was faster, ties left out; uploads: to the target, likewise, where both reached it (and so bytes,
where all send the same model); lead: how much better its best value of the target metric was
when the sooner of both had reached the target, or at the horizon: mean over cells; waiting: mean
over its runs"""


def paired_shapes(results: Results, reference: str, by: Sequence[str]) -> list[TextTable]:
    """One table of all cells, or one for each combination of the labels of the axes in `by`.

    Raises:
        SettingsError: there is no such axis or reference, or horizons differ.
    """
    check_axes(by, results)
    axis, label = compared_axis(results, reference, must_have=True)
    shapes = []
    for labels in product(*(results.axes[name] for name in by)):
        where = dict(zip(by, labels, strict=True))
        rows = paired(results, reference, where)
        if rows:
            shapes.append(_shape(rows, axis, label, where))
    return shapes


def _shape(rows: Sequence[Paired], axis: str, reference: str, where: dict[str, str]) -> TextTable:
    return TextTable(
        title="; ".join(f"{name}={label}" for name, label in where.items()),
        header=[axis, "cells", "pairs", "reached", "time", "ahead", "uploads", "lead", "waiting"],
        rows=[_texts(row) for row in rows],
        left=(0,),
        meaning=_MEANING.format(reference),
    )


def _texts(row: Paired) -> list[str]:
    return [
        row.label,
        str(row.cells),
        str(row.pairs),
        f"{row.reached} : {row.reference_reached}",
        _interval(row.time),
        f"{row.ahead}/{row.ahead + row.behind}",
        _interval(row.uploads),
        _NOTHING if row.lead is None else f"{row.lead:+.3f}",
        f"{row.idle_share:.0%}",
    ]


def _interval(value: Interval | None) -> str:
    if value is None:
        return _NOTHING
    ends = f" [{value.low:.2f}, {value.high:.2f}]" if value.is_known else ""
    return f"{value.mean:.2f}x{ends}"
