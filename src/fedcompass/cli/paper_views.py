"""`fedcompass paper show` and `plot`: stored results beside the paper's numbers, and figures."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from fedcompass.cli.options import DataRoot, picture_file
from fedcompass.cli.text import plain_table
from fedcompass.errors import SettingsError

if TYPE_CHECKING:
    from fedcompass.paper.cells import Cell
    from fedcompass.paper.entry import Entry
    from fedcompass.paper.stored_runs import EntryRuns
    from fedcompass.sweeps.formats import TextTable

__all__ = [
    "CellsOption",
    "NameArgument",
    "ProfileOption",
    "RESULTS",
    "ResultsOption",
    "RowsOption",
    "plot",
    "show",
]

NameArgument = Annotated[
    str, typer.Argument(help="Such as table-1; `fedcompass paper list` has them.")
]
CellsOption = Annotated[
    str | None,
    typer.Option(help="Some cells: mnist-class/m=5/exp, mnist-class, *exp; commas between."),
]
RowsOption = Annotated[
    str | None, typer.Option(help="Some rows: fedavg,fedcompass; all unless given.")
]
RESULTS = Path("results")
ResultsOption = Annotated[
    Path,
    typer.Option("--results", help="Folder with the results; results/ here.", show_default=False),
]
ProfileOption = Annotated[
    str,
    typer.Option(help="as-written, or as-run: as the authors' public code of that time did it."),
]
_Shown = Annotated[int | None, typer.Option("--seeds", help="Only the first N seeds.", min=1)]
_WIDTH = 120  # of lines and headings; tables are as wide as they are
_LEGEND = (
    "2/3: two of three seeds reached it; -: fewer than half did, of these or of those that times "
    "are relative to; ·: not run yet"
)
_ORDERS_LEGEND = (
    "=, ≠: the order relative to {} is, or is not, the paper's (beside a dash: by runs that "
    "missed); ~: a tie; rank correlation: of the paper's column and ours, 1 if all rows come in "
    "the same order, -1 in the reverse one"
)
_AS_RUN_LEGEND = (
    "as written: the paper's formulas; as run: its authors' public code of that time, see "
    "docs/as-run.md"
)
_OURS_LEGEND = "ours: as written, but for what a row names after its @"


def show(
    name: NameArgument,
    seeds: _Shown = None,
    cells: CellsOption = None,
    rows: RowsOption = None,
    folder: ResultsOption = RESULTS,
    by_seed: Annotated[
        bool, typer.Option("--by-seed", help="What each run of a table came to, instead.")
    ] = False,
    profile: ProfileOption = "as-written",
) -> None:
    """Print paper | as written | as run for a table, or the numbers behind a figure."""
    from fedcompass.paper.cells import chosen
    from fedcompass.paper.entries import entry_named

    entry = entry_named(name).under(profile)
    seeds = None if seeds is None else entry.first_seed + seeds
    some = chosen(entry.cells, cells)
    if by_seed and entry.kind != "table":
        raise SettingsError(
            f"--by-seed is for entries of kind table; {entry.name} is of kind {entry.kind}; "
            "leave it out"
        )
    if rows is not None and entry.kind not in ("table", "curves"):
        raise SettingsError(
            f"--rows is for entries of kind table or curves; {entry.name} is of kind {entry.kind}; "
            "leave it out"
        )
    shown = entry_named(name).only(rows).under(profile).rows
    print(_folded(f"{entry.name}: {entry.title}"))
    for part in _parts(entry, folder, some, seeds, by_seed, shown):
        if isinstance(part, str):
            print(part)
        else:
            print(f"\n{_folded(part.title)}\n{plain_table(part.header, part.rows, part.left)}")


def _folded(line: str) -> str:
    return fill(line, _WIDTH, break_on_hyphens=False, break_long_words=False)


def _parts(
    entry: "Entry",
    folder: Path,
    cells: "list[Cell]",
    seeds: int | None,
    by_seed: bool,
    shown: tuple[str, ...],
) -> "Iterator[str | TextTable]":
    """What there is to print, in order."""
    from fedcompass.paper.stored_runs import StoredRuns

    match entry.kind:
        case "table" | "curves" | "medical":
            runs = StoredRuns.read(folder, cells).of(entry, cells, seeds)
            yield from _of_runs(runs, by_seed, shown)
        case "settings":
            from fedcompass.paper.numbers import SettingsTable, paper_tables

            table = paper_tables()[entry.name]
            assert isinstance(table, SettingsTable)
            yield plain_table(table.columns, table.rows, left=range(len(table.columns)))
        case "timeline":
            from fedcompass.paper.timelines import schedule, schedule_lines

            yield from schedule_lines(schedule(entry.name))
        case "finding":
            from fedcompass.paper.finding import Finding

            finding = Finding(StoredRuns.read(folder))
            yield from (f"- {line}" for line in finding.lines())
            yield from finding.tables()
        case "groups":
            from fedcompass.paper.groups import GROUPS_FILE, groups_grid, read_study

            yield groups_grid(read_study(folder / GROUPS_FILE))
        case _:
            yield f"a picture only; try: fedcompass paper plot {entry.name}"


def _of_runs(
    runs: "EntryRuns", by_seed: bool, shown: tuple[str, ...]
) -> "Iterator[str | TextTable]":
    from fedcompass.paper.medical_tables import medical_grid, medical_lines
    from fedcompass.paper.rendering import curve_grids, seed_grids

    some = runs.showing(shown)
    match runs.entry.kind:
        case "table" if by_seed:
            told = list(seed_grids(some))
            yield from told
            if not told:
                yield f"no results yet; run: fedcompass paper run {runs.entry.name}"
        case "table":
            yield from _of_table(runs, shown)
        case "curves":
            yield from curve_grids(some)
        case _:
            yield medical_grid(runs)
            yield from (f"\n{_folded(line)}" for line in medical_lines(runs))


def _of_table(runs: "EntryRuns", shown: tuple[str, ...]) -> "Iterator[str | TextTable]":
    from fedcompass.paper.comparing import as_run_beside, compared
    from fedcompass.paper.hyperparameters import as_run as row_as_run
    from fedcompass.paper.rendering import as_run_line, summary_lines, table_grids

    # All rows are compared, whatever is shown: a miss counts at the longest horizon among them.
    entry, comparison, as_run = runs.entry, compared(runs).showing(shown), as_run_beside(runs)
    first, *others = summary_lines(comparison)
    yield first
    if as_run is not None:
        as_run = as_run.showing(tuple(map(row_as_run, shown)))
        yield f"as run, {next(summary_lines(as_run))}"
    if lacking := as_run_line(entry, as_run, runs.cells):
        yield _folded(lacking)
    yield from map(_folded, _legends(entry, has_as_run=as_run is not None))
    yield from table_grids(comparison, as_run, runs.showing(shown))
    yield from (f"\n{_folded(line)}" for line in others)


def _legends(entry: "Entry", *, has_as_run: bool) -> Iterator[str]:
    """What the signs and headings of a table mean, as far as it has them."""
    from fedcompass.paper.rendering import version

    if entry.quantity == "time":
        yield _LEGEND
    if entry.numbers:
        yield _ORDERS_LEGEND.format(entry.reference)
    if has_as_run:
        yield _AS_RUN_LEGEND
    elif version(entry) == "ours":
        yield _OURS_LEGEND


def plot(
    name: NameArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Picture file; NAME.png here.")
    ] = None,
    seeds: _Shown = None,
    seed: Annotated[int, typer.Option(help="Of a partition or a fleet.")] = 0,
    data_root: DataRoot = None,
    folder: ResultsOption = RESULTS,
) -> None:
    """Draw a figure."""
    from fedcompass.paper.entries import entry_named

    entry = entry_named(name)
    path = output or Path(f"{entry.name}.png")
    with picture_file(path):
        match entry.kind:
            case "partition":
                _draw_partition(entry, path, seed, data_root)
            case "paces":
                _draw_paces(path, seed)
            case _:
                _draw(entry, path, folder, None if seeds is None else entry.first_seed + seeds)


def _draw(entry: "Entry", path: Path, folder: Path, seeds: int | None) -> None:
    """Draw what is stored, or a schedule."""
    from fedcompass.paper import figures, finding_figures
    from fedcompass.paper.groups import GROUPS_FILE, read_study
    from fedcompass.paper.stored_runs import StoredRuns

    match entry.kind:
        case "curves" | "medical":
            figures.draw_curves(StoredRuns.read(folder).of(entry, seeds=seeds), path)
        case "timeline":
            figures.draw_timeline(entry.name, path, entry.title)
        case "groups":
            figures.draw_groups(read_study(folder / GROUPS_FILE), path)
        case "times":
            finding_figures.draw_times(StoredRuns.read(folder), path)
        case "signs":
            finding_figures.draw_signs(StoredRuns.read(folder), path)
        case _:
            raise SettingsError(f"{entry.name} is a table; try: fedcompass paper show {entry.name}")


def _draw_partition(entry: "Entry", path: Path, seed: int, data_root: Path | None) -> None:
    from fedcompass.data.catalogue import load
    from fedcompass.data.partition import split_counts
    from fedcompass.report.figures.setup import draw_partition
    from fedcompass.settings.data import PartitionSettings

    (cell,) = entry.cells
    settings = PartitionSettings(kind=cell.settings.partition)  # type: ignore[arg-type]
    counts = split_counts(load(cell.settings.dataset, data_root), cell.clients, settings, seed)
    draw_partition(counts, path, f"{entry.title}, seed {seed}")


def _draw_paces(path: Path, seed: int) -> None:
    from fedcompass.report.figures.setup import draw_fleet
    from fedcompass.settings.simulation import FleetSettings
    from fedcompass.simulation.fleet import Fleet

    fleets = {
        "normal, σ = 0.3 μ": Fleet(FleetSettings(clients=50, speed="normal"), seed),
        "exponential": Fleet(FleetSettings(clients=50, speed="exponential"), seed),
    }
    draw_fleet(fleets, path)
