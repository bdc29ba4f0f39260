"""Tables of the runs on medical data: time to target and top value, with no paper beside them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedcompass.paper.cells import Cell
from fedcompass.paper.comparing import Compared, ComparedTable, compared
from fedcompass.paper.entry import Entry
from fedcompass.paper.stored_runs import StoredRuns
from fedcompass.sweeps.formats import TextTable
from fedcompass.sweeps.over_seeds import mean_time

__all__ = ["medical_grid", "medical_lines"]


def medical_grid(
    entry: Entry, results: StoredRuns, cells: Sequence[Cell], seeds: int | None = None
) -> TextTable:
    """For each speed the time to the target, relative to the reference, and the top value."""
    times = compared(entry, results, cells, seeds)
    tops = compared(replace(entry, quantity="accuracy"), results, cells, seeds)
    rows = [
        [row, *(text for cell in cells for text in _pair(times, tops, cell, row))]
        for row in entry.rows
    ]
    times_of = [
        mean_time([run.time for run in results.runs(cell, entry.reference, seeds)])
        for cell in cells
    ]
    seconds = ["-" if time is None else f"{time:.1f}" for time in times_of]
    rows.append([f"{entry.reference}, seconds", *(x for text in seconds for x in (text, ""))])
    block = cells[0].settings
    metric = block.metric.replace("_", " ")
    title = (
        f"{cells[0].block}, m={cells[0].clients}: time to {100 * block.target:g}% "
        f"({entry.reference} = 1) and top {metric} in percent"
    )
    header = ["method", *(x for cell in cells for x in (f"{cell.speed}: time", "top"))]
    return TextTable(title, header, rows)


def medical_lines(
    entry: Entry, results: StoredRuns, cells: Sequence[Cell], seeds: int | None = None
) -> Iterator[str]:
    """How complete the table is, what it was trained on, and whom the reference is ahead of."""
    runs = {(cell, row): results.runs(cell, row, seeds) for cell in cells for row in entry.rows}
    found = [run for some in runs.values() for run in some]
    done = sum(all(runs[cell, row] for row in entry.rows) for cell in cells)
    if not found:
        yield f"no results yet (0 of {len(cells)} cells)"
        return
    numbers = sorted({run.seed for run in found})
    counts = sorted({len(some) for some in runs.values()})
    each = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    devices = ", ".join(sorted({run.device for run in found}))
    yield (
        f"{done} of {len(cells)} cells have every row; seeds per row: {each} "
        f"({', '.join(map(str, numbers))}); trained on {devices}"
    )
    ahead = compared(entry, results, cells, seeds).wins()
    of_each = [f"{w.row} {w.ours}/{w.our_cells}" for w in ahead if w.our_cells]
    if of_each:
        yield (
            f"cells in which {entry.reference} is ahead in time to target, of those where one of "
            f"the two reached it (a seed that missed counts at the horizon): {', '.join(of_each)}"
        )


def _pair(times: ComparedTable, tops: ComparedTable, cell: Cell, row: str) -> tuple[str, str]:
    time, top = times.at(cell, row), tops.at(cell, row)
    if time.seeds == 0:
        return "·", "·"
    value = "-" if time.value is None else f"{time.value:.2f}"
    return f"{value} {time.reached}/{time.seeds}", _top(top)


def _top(top: Compared) -> str:
    if top.value is None:
        return "-"
    return f"{top.value:.1f}" + ("" if top.deviation is None else f"±{top.deviation:.1f}")
