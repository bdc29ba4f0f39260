"""`fedcompass paper show` and `plot`: stored results beside the paper's numbers, and figures."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcompass.cli.options import DataRoot, picture_file
from fedcompass.cli.text import plain_table
from fedcompass.errors import SettingsError

if TYPE_CHECKING:
    from fedcompass.paper.cells import Cell
    from fedcompass.paper.entry import Entry
    from fedcompass.paper.stored_runs import StoredRuns
    from fedcompass.sweeps.formats import TextTable

__all__ = ["CellsOption", "NameArgument", "ProfileOption", "ResultsOption", "plot", "show"]

NameArgument = Annotated[
    str, typer.Argument(help="Such as table-1; `fedcompass paper list` has them.")
]
CellsOption = Annotated[
    str | None,
    typer.Option(help="Some cells: mnist-class/m=5/exp, mnist-class, *exp; commas between."),
]
ResultsOption = Annotated[
    Path | None, typer.Option("--results", help="Folder with the results; results/ here.")
]
ProfileOption = Annotated[
    str,
    typer.Option(help="as-written, or as-run: as the authors' public code of that time did it."),
]
_Shown = Annotated[int | None, typer.Option("--seeds", help="Only the first N seeds.", min=1)]
_LEGEND = (
    "2/3: two of three seeds reached it; -: fewer than half did, of these or of those that times "
    "are relative to; ·: not run yet"
)

_AS_RUN_LEGEND = (
    "as written: the paper's formulas; as run: its authors' public code of that time, see "
    "docs/as-run.md; =, ≠: the order relative to {} is, or is not, the paper's; ~: a tie"
)


def show(
    name: NameArgument,
    seeds: _Shown = None,
    cells: CellsOption = None,
    results: ResultsOption = None,
    by_seed: Annotated[
        bool, typer.Option("--by-seed", help="What each run of a table came to, instead.")
    ] = False,
    profile: ProfileOption = "as-written",
) -> None:
    """Print paper | as written | as run for a table, or the numbers behind a figure."""
    from fedcompass.paper.entries import entry_named
    from fedcompass.paper.stored_runs import StoredRuns, results_folder

    entry, folder = entry_named(name).under(profile), results_folder(results)
    seeds = None if seeds is None else entry.first_seed + seeds
    some = _chosen_cells(entry, cells)
    if by_seed and entry.kind != "table":
        raise SettingsError(
            f"--by-seed is for entries of kind table; {entry.name} is of kind {entry.kind}; "
            "leave it out"
        )
    print(f"{entry.name}: {entry.title}")
    match entry.kind:
        case "table" if by_seed:
            _show_seeds(entry, StoredRuns.read(folder, some), some, seeds)
        case "table":
            _show_table(entry, StoredRuns.read(folder, some), some, seeds)
        case "curves":
            _show_curves(entry, StoredRuns.read(folder, some), some, seeds)
        case "medical":
            _show_medical(entry, StoredRuns.read(folder, some), some, seeds)
        case "settings":
            _show_settings(entry)
        case "timeline":
            from fedcompass.paper.timelines import schedule, schedule_lines

            print("\n".join(schedule_lines(schedule(entry.name))))
        case "finding":
            _show_finding(StoredRuns.read(folder))
        case "groups":
            from fedcompass.paper.groups import GROUPS_FILE, groups_grid, read_study

            _print_grid(groups_grid(read_study(folder / GROUPS_FILE)))
        case _:
            print(f"a picture only; try: fedcompass paper plot {entry.name}")


def _show_table(
    entry: "Entry", results: "StoredRuns", cells: "list[Cell]", seeds: int | None
) -> None:
    from fedcompass.paper.comparing import as_run_beside, compared
    from fedcompass.paper.rendering import (
        agreement_grids,
        as_run_line,
        grids,
        summary_lines,
        wins_grids,
    )

    comparison = compared(entry, results, cells, seeds)
    as_run = as_run_beside(entry, results, cells, seeds)
    first, *others = summary_lines(comparison)
    print(first)
    if as_run is not None:
        print(f"as run, {next(summary_lines(as_run))}")
    if lacking := as_run_line(entry, as_run, cells):
        print(lacking)
    if entry.quantity == "time":
        print(_LEGEND)
    if as_run is not None:
        print(_AS_RUN_LEGEND.format(entry.reference))
    agreement = () if as_run is None else agreement_grids(comparison, as_run)
    by_groups = _by_groups(entry, results, cells, seeds)
    for grid in (*grids(comparison, as_run), *agreement, *wins_grids(comparison), *by_groups):
        _print_grid(grid)
    for line in others:
        print(f"\n{line}")


def _by_groups(
    entry: "Entry", results: "StoredRuns", cells: "list[Cell]", seeds: int | None
) -> "Iterator[TextTable]":
    if any(row.startswith("1/Q=") for row in entry.rows):
        from fedcompass.paper.by_groups import by_groups_grids  # with NumPy, for the fleets

        yield from by_groups_grids(entry, results, cells, seeds)


def _show_finding(results: "StoredRuns") -> None:
    from fedcompass.paper.finding import Finding

    finding = Finding(results)
    for line in finding.lines():
        print(f"- {line}")
    for table in finding.tables():
        _print_grid(table)


def _show_seeds(
    entry: "Entry", results: "StoredRuns", cells: "list[Cell]", seeds: int | None
) -> None:
    from fedcompass.paper.rendering import seed_grids

    shown = list(seed_grids(entry, results, cells, seeds))
    for grid in shown:
        _print_grid(grid)
    if not shown:
        print(f"no results yet; run: fedcompass paper run {entry.name}")


def _show_curves(
    entry: "Entry", results: "StoredRuns", cells: "list[Cell]", seeds: int | None
) -> None:
    from fedcompass.paper.rendering import curve_grids

    for grid in curve_grids(entry, results, cells, seeds):
        _print_grid(grid)


def _show_medical(
    entry: "Entry", results: "StoredRuns", cells: "list[Cell]", seeds: int | None
) -> None:
    from fedcompass.paper.medical_tables import medical_grid, medical_lines

    _print_grid(medical_grid(entry, results, cells, seeds))
    for line in medical_lines(entry, results, cells, seeds):
        print(f"\n{line}")


def _show_settings(entry: "Entry") -> None:
    from fedcompass.paper.numbers import SettingsTable, paper_tables

    table = paper_tables()[entry.name]
    assert isinstance(table, SettingsTable)
    rows = [list(row) for row in table.rows]
    print(plain_table(list(table.columns), rows, left=range(len(table.columns))))


def plot(
    name: NameArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Picture file; NAME.png here.")
    ] = None,
    seeds: _Shown = None,
    seed: Annotated[int, typer.Option(help="Of a partition or a fleet.")] = 0,
    data_root: DataRoot = None,
    results: ResultsOption = None,
) -> None:
    """Draw a figure."""
    from fedcompass.paper.entries import entry_named
    from fedcompass.paper.stored_runs import StoredRuns, results_folder

    entry, folder = entry_named(name), results_folder(results)
    path = output or Path(f"{entry.name}.png")
    seeds = None if seeds is None else entry.first_seed + seeds
    with picture_file(path):
        match entry.kind:
            case "curves" | "medical":
                from fedcompass.paper.figures import draw_curves

                draw_curves(entry, StoredRuns.read(folder), path, seeds)
            case "timeline":
                from fedcompass.paper.figures import draw_timeline

                draw_timeline(entry.name, path, entry.title)
            case "groups":
                from fedcompass.paper.figures import draw_groups
                from fedcompass.paper.groups import GROUPS_FILE, read_study

                draw_groups(read_study(folder / GROUPS_FILE), path)
            case "times" | "signs":
                from fedcompass.paper import finding_figures

                draw = getattr(finding_figures, f"draw_{entry.kind}")
                draw(StoredRuns.read(folder), path)
            case "partition":
                _draw_partition(entry, path, seed, data_root)
            case "paces":
                _draw_paces(path, seed)
            case _:
                raise SettingsError(
                    f"{entry.name} is a table; try: fedcompass paper show {entry.name}"
                )


def _draw_partition(entry: "Entry", path: Path, seed: int, data_root: Path | None) -> None:
    from fedcompass.data.catalogue import load
    from fedcompass.data.partition import PartitionSettings, class_counts, partition
    from fedcompass.report.figures.setup import draw_partition

    (cell,) = entry.cells
    dataset = load(cell.settings.dataset, data_root)
    settings = PartitionSettings(kind=cell.settings.partition)  # type: ignore[arg-type]
    targets, classes = dataset.train_targets, dataset.classes
    parts = partition(targets, classes, cell.clients, settings, seed, dataset.train_centers)
    draw_partition(class_counts(parts, targets, classes), path, f"{entry.title}, seed {seed}")


def _draw_paces(path: Path, seed: int) -> None:
    from fedcompass.report.figures.setup import draw_fleet
    from fedcompass.simulation.fleet import Fleet, FleetSettings

    fleets = {
        "normal, σ = 0.3 μ": Fleet(FleetSettings(clients=50, speed="normal"), seed),
        "exponential": Fleet(FleetSettings(clients=50, speed="exponential"), seed),
    }
    draw_fleet(fleets, path)


def _chosen_cells(entry: "Entry", pattern: str | None) -> "list[Cell]":
    from fedcompass.paper.cells import chosen

    return chosen(entry.cells, pattern)


def _print_grid(grid: "TextTable") -> None:
    print(f"\n{grid.title}")
    print(plain_table(grid.header, grid.rows, grid.left))
