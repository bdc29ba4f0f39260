"""Tables of the runs on medical data: time to target and top value, with no paper beside them."""

from collections.abc import Iterator
from dataclasses import replace

from fedcompass.paper.cells import Cell
from fedcompass.paper.comparing import ComparedTable, ahead, compared
from fedcompass.paper.rendering import from_to, our_value, with_spread
from fedcompass.paper.stored_runs import EntryRuns
from fedcompass.sweeps.formats import TextTable
from fedcompass.sweeps.over_seeds import mean_time

__all__ = ["medical_grid", "medical_lines"]


def medical_grid(runs: EntryRuns) -> TextTable:
    """For each speed the time to the target, relative to the reference, and the top value."""
    entry, cells = runs.entry, runs.cells
    times = compared(runs)
    tops = compared(replace(runs, entry=replace(entry, quantity="accuracy")))
    rows = [
        [row, *(text for cell in cells for text in _pair(times, tops, cell, row))]
        for row in entry.rows
    ]
    times_of = [mean_time([run.time for run in runs.at(cell, entry.reference)]) for cell in cells]
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


def medical_lines(runs: EntryRuns) -> Iterator[str]:
    """How complete the table is, what it was trained on, and whom the reference is ahead of."""
    entry, cells = runs.entry, runs.cells
    by_row = {(cell, row): runs.at(cell, row) for cell in cells for row in entry.rows}
    found = [run for some in by_row.values() for run in some]
    done = sum(all(by_row[cell, row] for row in entry.rows) for cell in cells)
    if not found:
        yield f"no results yet (0 of {len(cells)} cells)"
        return
    numbers = sorted({run.seed for run in found})
    counts = [len(some) for some in by_row.values()]
    each = from_to(min(counts), max(counts))
    devices = ", ".join(sorted({run.device for run in found}))
    yield (
        f"{done} of {len(cells)} cells have every row; seeds per row: {each} "
        f"({', '.join(map(str, numbers))}); trained on {devices}"
    )
    table = compared(runs)
    wins = {r: ahead(item.our_order for item in table.some([r])) for r in entry.rows}
    of_each = [f"{row} {share}" for row, share in wins.items() if share.of]
    if of_each:
        yield (
            f"cells in which {entry.reference} is ahead in time to target, of those where one of "
            f"the two reached it (a seed that missed counts at the horizon): {', '.join(of_each)}"
        )


def _pair(times: ComparedTable, tops: ComparedTable, cell: Cell, row: str) -> tuple[str, str]:
    time, top = times.at(cell, row), tops.at(cell, row)
    best = with_spread(top.value, top.deviation, digits=1) if time.seeds else "·"
    return our_value(time, "time"), best
