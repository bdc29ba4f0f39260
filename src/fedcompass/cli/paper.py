"""`fedcompass paper`: the paper's tables and figures: list them, run them, compare, draw."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcompass.cli import options as opt
from fedcompass.cli.options import parse_budget
from fedcompass.cli.paper_views import (
    RESULTS,
    CellsOption,
    NameArgument,
    ProfileOption,
    ResultsOption,
    RowsOption,
    plot,
    show,
)
from fedcompass.cli.text import plain_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedcompass.paper.cells import Cell
    from fedcompass.paper.cost import StepRange
    from fedcompass.paper.entry import Entry, TableRun
    from fedcompass.paper.stored_runs import StoredRuns
    from fedcompass.sweeps.record import Record

__all__ = ["paper"]

paper = typer.Typer(
    help="The paper's tables and figures, with our numbers beside them.", no_args_is_help=True
)
paper.command()(show)
paper.command()(plot)


@paper.command("list")
def _list(
    cells: Annotated[bool, typer.Option("--cells", help="Also every cell's address.")] = False,
) -> None:
    """Print the name of every table and figure, and what it is."""
    from fedcompass.paper.entries import catalogue

    entries = catalogue().values()
    rows = [
        [entry.name, entry.kind, str(len(entry.cells) or ""), str(len(entry.rows) or ""),
         entry.label, _short(entry.title)]
        for entry in entries
    ]  # fmt: skip
    print(plain_table(["name", "kind", "cells", "rows", "label", "title"], rows, left=(0, 1, 4, 5)))
    for entry in entries if cells else ():
        print(f"\n{entry.name}: {', '.join(map(str, entry.cells)) or 'no cells'}")


@paper.command("run")
def _run(
    name: NameArgument,
    seeds: Annotated[
        int, typer.Option(help="How many seeds: 0 to N-1 (medical: 1 to N).", min=1)
    ] = 3,
    cells: CellsOption = None,
    rows: RowsOption = None,
    profile: ProfileOption = "as-written",
    budget: Annotated[str | None, typer.Option(help="Stop after 90s, 9m, 2h; go on later.")] = None,
    resume: Annotated[
        bool, typer.Option(help="Take up stopped runs; finished ones are never run again.")
    ] = True,
    device: opt.Device = "auto",
    executor: opt.Executor = None,
    workers: opt.Workers = None,
    max_stack: opt.MaxStack = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is missing.")] = False,
    data_root: opt.DataRoot = None,
    folder: ResultsOption = RESULTS,
) -> None:
    """Run what a table or figure needs and the results do not have yet.

    Cell by cell; in stacks (on a GPU) all at once, the longest runs first.
    """
    from fedcompass.paper.cells import chosen
    from fedcompass.paper.entries import entry_named
    from fedcompass.paper.stored_runs import StoredRuns
    from fedcompass.paper.table_runs import missing, run_entry, store_of

    entry = entry_named(name).only(rows).under(profile)
    if entry.kind == "groups":
        _run_groups(folder)
        return
    some = chosen(entry.cells, cells)
    if not entry.rows:
        print(f"{entry.name} needs no runs; try: fedcompass paper plot {entry.name}")
        return
    numbers = range(entry.first_seed, entry.first_seed + seeds)
    runs = missing(entry, some, numbers, StoredRuns.read(folder))
    planned = len(some) * len(entry.rows) * seeds
    print(f"{entry.name}: {planned - len(runs)} of {planned} runs are in {folder}/")
    if dry_run:
        _print_plan(runs)
        return
    ended = run_entry(
        runs,
        folder,
        budget=parse_budget(budget),
        resume=resume,
        device=opt.device_to_use(device, executor),
        executor=executor,
        workers=workers,
        max_stack=max_stack,
        data_root=data_root,
    )
    failed = _follow(ended, len(runs))
    results = StoredRuns.read(folder)
    _say_what_is_left(entry, len(missing(entry, some, numbers, results)), failed)
    _say_what_they_give(entry, some, results)
    stores = dict.fromkeys(str(folder / store_of(run)) for run in runs)
    if stores:
        print(f"stored in {', '.join(stores)}")
    if failed:
        raise typer.Exit(1)


def _follow(ended: "Iterable[tuple[TableRun, Record]]", runs: int) -> int:
    """Print each run as it ends; how many failed."""
    failed = 0
    for done, (run, record) in enumerate(ended, start=1):
        failed += not record.is_done
        print(f"[{done}/{runs}] {_told(run, record)}", flush=True)
    return failed


def _say_what_is_left(entry: "Entry", left: int, failed: int) -> None:
    if failed:
        print(f"{failed} runs failed; they are tried again next time", file=sys.stderr)
    elif left:
        print(f"{left} runs are left; the same command goes on with them")
    else:
        print(f"all runs are there; see: fedcompass paper show {entry.name}")


def _say_what_they_give(entry: "Entry", cells: "list[Cell]", results: "StoredRuns") -> None:
    """The sentences of docs/as-run.md that these runs are counted in."""
    from fedcompass.paper.finding import Finding

    lines = list(Finding(results).about(entry, cells))
    if lines:
        print("with all runs that are stored:")
    for line in lines:
        print(f"- {line}")


def _run_groups(folder: Path) -> None:
    from fedcompass.paper.groups import GROUPS_FILE, study, write_study

    print("following 1,000 fleets, some minutes; nothing is trained", file=sys.stderr, flush=True)
    write_study(study(1000), folder / GROUPS_FILE)
    print(f"written: {folder / GROUPS_FILE}")


def _told(run: "TableRun", record: "Record") -> str:
    outcome = record.outcome
    if outcome is None:
        what = f"failed: {record.error}"
    else:
        time = outcome.time_to_target
        top = "-" if outcome.top is None else f"{outcome.top:.4f}"
        target = f"{100 * run.cell.settings.target:g}%"
        reached = f"missed {target}" if time is None else f"{target} after {time:.0f} virtual s"
        what = f"{reached}, top {top}"
    return f"{run.cell} {run.row} seed {run.seed}: {what}"


def _print_plan(runs: "list[TableRun]") -> None:
    from fedcompass.paper.cost import expected_steps

    by_cell: dict[str, list[StepRange]] = {}
    for run in runs:
        by_cell.setdefault(str(run.cell), []).append(expected_steps(run))
    by_cell["all"] = [steps for some in by_cell.values() for steps in some]
    # Runs for a table of times may end at their target at any time: no least to tell.
    has_least = any(steps.least for steps in by_cell["all"])
    lines = [
        [cell, str(len(some)), *_totals(some, has_least=has_least)]
        for cell, some in by_cell.items()
        if some
    ]
    heading = ["local steps, at least", "at most"] if has_least else ["local steps, at most"]
    print(plain_table(["cell", "runs", *heading], lines, left=(0,)))


def _totals(steps: "list[StepRange]", *, has_least: bool) -> list[str]:
    least, most = (f"{sum(some):,.0f}" for some in zip(*steps, strict=True))
    return [least, most] if has_least else [most]


@paper.command("report")
def _report(
    pages: Annotated[
        Path, typer.Argument(help="The page to write into, or a folder of pages.")
    ] = Path("docs"),
    folder: ResultsOption = RESULTS,
) -> None:
    """Write our tables into the documentation, between its markers."""
    from fedcompass.paper.pages import write_report

    for page, sections in write_report(pages, folder).items():
        print(f"{page}: {sections} sections written")


def _short(title: str, most: int = 78) -> str:
    return title if len(title) <= most else title[: most - 1].rstrip() + "…"
