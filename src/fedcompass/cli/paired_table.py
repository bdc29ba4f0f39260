"""A table of runs compared seed by seed with a reference: `fedcompass table --paired`."""

from collections.abc import Sequence
from itertools import product

from fedcompass.cli.table_shapes import check_axes
from fedcompass.sweeps.comparison import compared_axis
from fedcompass.sweeps.formats import TextTable
from fedcompass.sweeps.interval import Interval
from fedcompass.sweeps.paired import Paired, against, paired
from fedcompass.sweeps.results import Results
from fedcompass.vocabulary import Seconds

__all__ = ["paired_shapes"]

_NOTHING = "-"
_MEANING = """\
pairs: runs with the seed of one of {0}'s in the same cell; reached: of these, and of {0}'s; time:
its time to the target over {0}'s, misses counted at the horizon: geometric mean over cells [95%
interval by bootstrap over the seeds, from two on in every cell, each seed with its pairs in all
cells; of fewer than five it is too narrow]; ahead: pairs in which it was faster, ties left out;
uploads: to the target, likewise, where both reached it (and so bytes, where all send the same
model); lead: how much better its best value of the target metric was {1}: mean over cells;
waiting: mean over its runs"""
_AT_THE_SOONER = "when the sooner of both had reached the target, or at the horizon"
_AT = "by {:g} s, at most the target"


def paired_shapes(
    results: Results, reference: str, by: Sequence[str], at: Seconds | None = None
) -> list[TextTable]:
    """One table of all cells, or one for each combination of the labels of the axes in `by`.

    Its last row is the reference itself.

    Raises:
        SettingsError: there is no such axis or reference, or horizons differ.
    """
    check_axes(by, results)
    axis, label = compared_axis(results, reference, must_have=True)
    meaning = _MEANING.format(label, _AT_THE_SOONER if at is None else _AT.format(at))
    shapes = []
    for labels in product(*(results.axes[name] for name in by)):
        where = dict(zip(by, labels, strict=True))
        rows = [_texts(row) for row in paired(results, reference, where, at)]
        itself = against(results, reference, label, where)
        if rows and itself:
            rows.append(_of_reference(itself))
            shapes.append(_shape(rows, axis, where, meaning))
    return shapes


def _shape(rows: list[list[str]], axis: str, where: dict[str, str], meaning: str) -> TextTable:
    return TextTable(
        title="; ".join(f"{name}={label}" for name, label in where.items()),
        header=[axis, "cells", "pairs", "reached", "time", "ahead", "uploads", "lead", "waiting"],
        rows=rows,
        left=(0,),
        meaning=meaning,
    )


def _of_reference(row: Paired) -> list[str]:
    counts = [str(row.cells), str(row.pairs), str(row.reached)]
    return [row.label, *counts, "1", *[_NOTHING] * 3, f"{row.idle_share:.0%}"]


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
