"""A comparison as headings, rows and sentences, for the terminal and for the documentation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import mean, stdev

from fedcompass.paper.cells import Cell
from fedcompass.paper.comparing import (
    Compared,
    ComparedTable,
    Share,
    agreeing,
    ahead,
    orders_told,
    reached,
    reached_soon,
)
from fedcompass.paper.entry import Entry
from fedcompass.paper.hyperparameters import row_horizons
from fedcompass.paper.numbers import Printed, Quantity
from fedcompass.paper.stored_runs import EntryRuns, StoredRun, value_at
from fedcompass.sweeps.formats import TextTable

__all__ = [
    "BY_MISSES",
    "as_run_line",
    "curve_grids",
    "from_to",
    "grids",
    "mean_rounds_told",
    "our_value",
    "paper_value",
    "seed_grids",
    "summary_lines",
    "table_grids",
    "version",
    "with_spread",
    "wins_grids",
]

_MOST_NAMED, _FEW_NAMED = 60, 4
_MARKS = {"yes": "=", "no": "≠", "tie": "~", "": " "}
BY_MISSES = (
    "; in brackets: so many of them by misses, where one of the two reached the target in fewer "
    "than half of its runs"
)
_MOST_ROWS = 3  # named one by one in a heading
_PARTS = (0.1, 0.25, 0.5, 1.0)  # of the accuracy horizon


def table_grids(
    comparison: ComparedTable, as_run: ComparedTable | None, runs: EntryRuns
) -> Iterator[TextTable]:
    """Everything that a table has to show: its numbers, then what is counted over its cells."""
    yield from grids(comparison, as_run)
    beside = {} if as_run is None else _side_by_side(comparison, as_run)
    for dataset, both in beside.items():
        yield from _agreement_grids(dataset, both)
    yield from wins_grids(comparison, reached_told=tuple(beside))
    if any(row.startswith("1/Q=") for row in runs.entry.rows):
        from fedcompass.paper.by_groups import by_groups_grids  # with NumPy, for the fleets

        yield from by_groups_grids(runs)


def grids(comparison: ComparedTable, as_run: ComparedTable | None = None) -> Iterator[TextTable]:
    """A table per block and number of clients: for each speed paper and ours, with a mark.

    =, ≠ and ~: the order relative to the reference is the paper's, is not, is a tie.

    With `as_run`, the same table as the authors ran it: paper, as written, as run. Blocks without
    any run are left out, unless there is none at all.
    """
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in comparison.cells:
        groups.setdefault((cell.block, cell.clients), []).append(cell)
    both = [comparison] if as_run is None else [comparison, as_run]
    some = any(one.has_runs(comparison.cells) for one in both)
    for cells in groups.values():
        if some and not any(one.has_runs(cells) for one in both):
            continue
        yield _grid(comparison, as_run, cells)


def _grid(
    comparison: ComparedTable, as_run: ComparedTable | None, cells: Sequence[Cell]
) -> TextTable:
    entry, first = comparison.entry, cells[0]
    what = (
        f"time to {_percent(entry.target or first.settings.target)}, {entry.reference} = 1; "
        f"within {mean_rounds_told(comparison, cells)}"
        if entry.quantity == "time"
        else f"top {first.settings.metric.replace('_', ' ')} in percent, up to "
        f"{mean_rounds_told(comparison, cells)}"
    )
    if as_run is not None and as_run.has_runs(cells):
        what += f", as run {mean_rounds_told(as_run, cells)}"
    changing = ", 10% of speeds change in each round" if first.changing else ""
    header = ["method"]
    for cell in cells:
        header += _headings(comparison, as_run, cell)
    rows = []
    for row in entry.rows:
        line = [row]
        for cell in cells:
            line += _columns(comparison, as_run, cell, row)
        rows.append(line)
    if entry.numbers:
        rows.append(_correlations(comparison, as_run, cells))
    return TextTable(f"{first.block}, m={first.clients}{changing}: {what}", header, rows)


def _headings(comparison: ComparedTable, as_run: ComparedTable | None, cell: Cell) -> list[str]:
    """Of one cell's columns; there is none for runs that do not exist."""
    if not comparison.entry.numbers:
        return [cell.speed]
    paper = f"{cell.speed}: paper"
    beside = ["as run"] if as_run is not None and as_run.has_runs([cell]) else []
    return [paper, version(comparison.entry), *beside]


def version(entry: Entry) -> str:
    """What stands in its column: runs as written, as run, or ours, each by what is after its @."""
    choices = {row.partition("@")[2] for row in entry.rows}
    return {"": "as written", "as-run": "as run"}.get("+".join(choices), "ours")


def _columns(
    comparison: ComparedTable, as_run: ComparedTable | None, cell: Cell, row: str
) -> list[str]:
    """What a row shows in a cell: the paper's number, ours, and whether the orders agree."""
    entry, item = comparison.entry, comparison.at(cell, row)
    if not entry.numbers:
        return [our_value(item, entry.quantity)]
    both = [item]
    if as_run is not None and as_run.has_runs([cell]):
        both.append(as_run.at(cell, as_run.entry.rows[entry.rows.index(row)]))
    marked = [f"{our_value(one, entry.quantity)} {_MARKS[one.agree]}" for one in both]
    return [paper_value(item.printed), *marked]


def _correlations(
    comparison: ComparedTable, as_run: ComparedTable | None, cells: Sequence[Cell]
) -> list[str]:
    line = ["rank correlation"]
    for cell in cells:
        values = [comparison.correlation(cell)]
        if as_run is not None and as_run.has_runs([cell]):
            values.append(as_run.correlation(cell))
        line += ["", *("" if value is None else f"{value:.2f}" for value in values)]
    return line


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


def paper_value(printed: Printed | None) -> str:
    """A number as the paper prints it."""
    return "" if printed is None else with_spread(printed.mean, printed.deviation)


def our_value(item: Compared, quantity: Quantity) -> str:
    """Our value with its count: seeds that reached the target of those run, or seeds."""
    if item.seeds == 0:
        return "·"
    count = f"{item.reached}/{item.seeds}" if quantity == "time" else f"n={item.seeds}"
    return f"{with_spread(item.value, item.deviation)} {count}"


def with_spread(value: float | None, deviation: float | None, digits: int = 2) -> str:
    """A mean, with its standard deviation if there is one; None is a dash."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" + ("" if deviation is None else f"±{deviation:.{digits}f}")


def from_to(least: int, most: int) -> str:
    """Two counts, or the one that both are."""
    return f"{most}" if least == most else f"{least} to {most}"


def mean_rounds_told(comparison: ComparedTable, cells: Sequence[Cell]) -> str:
    """How long the reference is run at most, or every row at least; and rows with another horizon.

    Only rows that have runs are named.
    """
    entry = comparison.entry
    usual = f"{_rounds(entry, cells[0], entry.reference):g}"
    notes = []
    for cell in cells:
        own = f"{_rounds(entry, cell, entry.reference):g}"
        parts = [*([own] if own != usual else []), *_other_rounds(comparison, cell, own)]
        if parts:
            speed = f"{cell.speed}: " if len(cells) > 1 else ""
            notes.append(speed + ", ".join(parts))
    return f"{usual} mean rounds" + (f" ({'; '.join(notes)})" if notes else "")


def _rounds(entry: Entry, cell: Cell, row: str) -> float:
    horizons = row_horizons(cell, row)
    return horizons.target if entry.quantity == "time" else horizons.accuracy


def _other_rounds(comparison: ComparedTable, cell: Cell, usual: str) -> Iterator[str]:
    """The rows of a cell that have runs of another length than the reference's."""
    by_rounds: dict[str, list[str]] = {}
    for row in comparison.entry.rows:
        if comparison.at(cell, row).seeds:
            by_rounds.setdefault(f"{_rounds(comparison.entry, cell, row):g}", []).append(row)
    for rounds, rows in by_rounds.items():
        if rounds != usual:
            yield f"{rounds} for {_rows_named(rows, comparison.entry.rows)}"


def _rows_named(rows: Sequence[str], known: Sequence[str]) -> str:
    """Rows by name; many that are all of their choices by those."""
    choices = dict.fromkeys(row.partition("@")[2] for row in rows)
    everybody = [row for row in known if row.partition("@")[2] in choices]
    if len(rows) > _MOST_ROWS and all(choices) and len(everybody) == len(rows):
        return f"rows {', '.join(f'@{choice}' for choice in choices)}"
    return ", ".join(rows)


def wins_grids(comparison: ComparedTable, reached_told: Sequence[str] = ()) -> Iterator[TextTable]:
    """For each dataset with results: in how many cells the reference is ahead of each row.

    Times also have a table of how many runs reached the target at all, but for the datasets of
    which that is told already.
    """
    datasets = dict.fromkeys(
        cell.settings.dataset for (cell, _), item in comparison.found.items() if item.seeds
    )
    for dataset in datasets:
        cells = tuple(c for c in comparison.cells if c.settings.dataset == dataset)
        part = replace(comparison, cells=cells)
        yield _wins_grid(part, dataset)
        if comparison.entry.quantity == "time" and dataset not in reached_told:
            yield _reached_grid(part, dataset)


def _side_by_side(
    comparison: ComparedTable, as_run: ComparedTable
) -> dict[str, dict[str, ComparedTable]]:
    """Both versions of the cells of each dataset that has runs of both."""
    found: dict[str, dict[str, ComparedTable]] = {}
    for dataset in dict.fromkeys(cell.settings.dataset for cell in comparison.cells):
        cells = tuple(c for c in comparison.cells if c.settings.dataset == dataset)
        both = {
            "as written": replace(comparison, cells=cells),
            "as run": replace(as_run, cells=cells),
        }
        if all(one.has_runs(cells) for one in both.values()):
            found[dataset] = both
    return found


def _agreement_grids(dataset: str, both: dict[str, ComparedTable]) -> Iterator[TextTable]:
    """How many orders are the paper's, and how many runs reached the target."""
    entry = both["as written"].entry
    timed = entry.quantity == "time"
    orders = f"orders relative to {entry.reference} that are the paper's, of those that both have"
    yield _both_grid(f"{dataset}: {orders}{BY_MISSES if timed else ''}", both, orders_told)
    if timed:
        title = f"{dataset}: runs that reached the target"
        yield _both_grid(f"{title}, each within its own horizon", both, reached)
        soon = "by the shortest horizon of their cell as written"
        yield _both_grid(f"{title} {soon}", both, reached_soon)


def _both_grid(
    title: str, both: dict[str, ComparedTable], count: Callable[[list[Compared]], Share | str]
) -> TextTable:
    """Two numbers for each row and speed: as written, and as run."""
    written = both["as written"]
    columns = [
        (f"{heading}: {name}", one, speed)
        for heading, speed in _speeds(written).items()
        for name, one in both.items()
        if any(item.seeds for item in one.some(one.entry.rows, speed))
    ]
    rows = []
    for number, row in enumerate([*written.entry.rows, "all"]):
        line = [row]
        for _, one, speed in columns:
            own = one.entry.rows if row == "all" else one.entry.rows[number : number + 1]
            line.append(str(count(one.some(own, speed))))
        rows.append(line)
    header = [heading for heading, _, _ in columns]
    return TextTable(title, ["method", *header], rows)


def _wins_grid(comparison: ComparedTable, dataset: str) -> TextTable:
    entry = comparison.entry
    reference, timed, printed = entry.reference, entry.quantity == "time", bool(entry.numbers)
    header, rows = ["of"], [[row] for row in entry.rows if row != reference]
    for heading, speed in _speeds(comparison).items():
        header += [f"{heading}: paper", version(entry)] if printed else [heading]
        header += ["shorter"] if timed else []
        for line in rows:
            items = comparison.some(line[:1], speed)
            paper = ahead(item.paper_order for item in items)
            line += [str(paper) if paper.of else ""] if printed else []
            line.append(str(ahead(item.our_order for item in items)))
            line += [str(ahead(item.common_order for item in items))] if timed else []
    if printed:
        header.append("same order")
        for line in rows:
            line.append(_same_order(comparison.some(line[:1])))
    missed = (
        ", of those where one of the two reached the target; a seed that missed counts at the "
        f"longest horizon of its cell{f' ({version(entry)}, same order)' if printed else ''}; "
        "shorter: what both had reached by the shorter of their horizons"
    )
    return TextTable(
        f"{dataset}: cells in which {reference} is ahead{missed if timed else ''}",
        header,
        rows,
    )


def _same_order(items: Sequence[Compared]) -> str:
    """Of the cells with an order of ours; empty if they or the paper's are none."""
    ours = ahead(item.our_order for item in items).of
    paper = ahead(item.paper_order for item in items).of
    return f"{agreeing(items).count}/{ours}" if ours and paper else ""


def _reached_grid(comparison: ComparedTable, dataset: str) -> TextTable:
    """How many runs reached the target in the time that every row was given."""
    speeds = _speeds(comparison)
    rows = [
        [row, *(str(reached_soon(comparison.some([row], speed))) for speed in speeds.values())]
        for row in comparison.entry.rows
    ]
    return TextTable(
        f"{dataset}: runs that reached the target by the shortest horizon of their cell",
        ["method", *speeds],
        rows,
    )


def _speeds(comparison: ComparedTable) -> dict[str, str | None]:
    """What cells are counted by, under its heading: each speed if there are several, and all."""
    speeds = dict.fromkeys(cell.speed for cell in comparison.cells)
    return {**{speed: speed for speed in speeds if len(speeds) > 1}, "all": None}


def summary_lines(comparison: ComparedTable) -> Iterator[str]:
    """How complete the table is, and every cell whose order is not the paper's."""
    fewest, most = comparison.seed_counts
    cells, name = len(comparison.cells), comparison.entry.name
    done = sum(
        all(comparison.at(cell, row).seeds for row in comparison.entry.rows)
        for cell in comparison.cells
    )
    if most == 0:
        yield f"no results yet (0 of {cells} cells); run: fedcompass paper run {name}"
        return
    state = "partial" if comparison.is_partial else "complete"
    shown = "" if cells == len(comparison.entry.cells) else " shown"
    have = f"{done} of {cells} cells{shown} have every row"
    yield f"{state}: {have}; seeds per row: {from_to(fewest, most)} (paper: 10)"
    wrong = comparison.disagreements()
    if wrong:
        named = [f"{item.cell} {item.row}" for item in wrong[:_MOST_NAMED]]
        more = f", and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
        yield f"order differs from the paper's in {len(wrong)}: {', '.join(named)}{more}"


def as_run_line(entry: Entry, as_run: ComparedTable | None, cells: Sequence[Cell]) -> str:
    """Where there are no runs as the authors ran, in one line; empty if there are some everywhere.

    Tables of accuracies need runs that did not stop at their target.
    """
    if not entry.can_be_as_run or not entry.numbers:
        return ""
    lacking = [str(cell) for cell in cells if as_run is None or not as_run.has_runs([cell])]
    if not lacking:
        return ""
    run = f"fedcompass paper run {entry.name} --profile as-run"
    if len(lacking) == len(cells):
        return f"as run: no such runs yet; make them with: {run}"
    named = ", ".join(lacking[:_FEW_NAMED])
    more = f", and {len(lacking) - _FEW_NAMED} more" if len(lacking) > _FEW_NAMED else ""
    return f"as run: no runs yet in {len(lacking)} of {len(cells)} cells: {named}{more}; {run}"


def curve_grids(runs: EntryRuns) -> Iterator[TextTable]:
    """For each cell of a figure the mean accuracy on the way: a few numbers of each curve."""
    for cell in runs.cells:
        rows = []
        for row in runs.entry.rows:
            found = runs.at(cell, row)
            rows.append([row, str(len(found)), *(_on_the_way(found, part) for part in _PARTS)])
        header = ["method", "seeds", *(f"at {part:g}" for part in _PARTS)]
        metric = cell.settings.metric.replace("_", " ")
        yield TextTable(
            f"{cell}: {metric} in percent at parts of the accuracy horizon", header, rows
        )


def _on_the_way(runs: Sequence[StoredRun], part: float) -> str:
    if not runs:
        return "·"
    values = [100 * value_at(run.curve, part * run.run_at_least) for run in runs]
    return with_spread(mean(values), stdev(values) if len(values) > 1 else None)


def seed_grids(runs: EntryRuns) -> Iterator[TextTable]:
    """For each cell that has runs what each of them came to: a row of seeds for each row."""
    entry = runs.entry
    for cell in runs.cells:
        found = {row: {run.seed: run for run in runs.at(cell, row)} for row in entry.rows}
        numbers = sorted({seed for some in found.values() for seed in some})
        if not numbers:
            continue
        rows = [
            [row, *(_of_a_seed(entry, cell, row, some.get(seed)) for seed in numbers)]
            for row, some in found.items()
        ]
        metric = cell.settings.metric.replace("_", " ")
        what = (
            f"mean rounds to {_percent(entry.target or cell.settings.target)}; (88.7): missed, "
            f"and its best {metric} in percent"
            if entry.quantity == "time"
            else f"top {metric} in percent"
        )
        yield TextTable(f"{cell}: {what}", ["method", *(f"seed {seed}" for seed in numbers)], rows)


def _of_a_seed(entry: Entry, cell: Cell, row: str, run: StoredRun | None) -> str:
    if run is None:
        return "·"
    if entry.quantity == "accuracy":
        return "-" if run.top is None else f"{100 * run.top:.2f}"
    if run.time is None:
        best = max((value for _, value in run.curve), default=None)
        return "-" if best is None else f"({100 * best:.1f})"
    return f"{run.time * row_horizons(cell, row).target / run.horizon:.1f}"
