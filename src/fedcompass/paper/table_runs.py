"""Carrying out the runs of a table or figure into the stores of a folder."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from fedcompass.as_run import HABITS
from fedcompass.paper.cells import Cell
from fedcompass.paper.cost import tasks_in_a_row
from fedcompass.paper.entry import Entry, TableRun
from fedcompass.paper.stored_runs import StoredRuns
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from fedcompass.experiment import Experiment
    from fedcompass.sweeps.record import Record

__all__ = ["experiments_of", "longest_first", "missing", "run_entry", "store_of"]

STOPPED_RUNS = Path("runs") / "paper"
"""Where runs wait that a budget or Ctrl-C stopped; they go on next time."""


def missing(
    entry: Entry, cells: Sequence[Cell], seeds: Sequence[int], results: StoredRuns
) -> list[TableRun]:
    """The runs that no store has yet."""
    planned = entry.plan(cells, seeds)
    return [
        run
        for run in planned
        if not results.has(run.cell, run.row, run.seed, to_target=entry.to_target)
    ]


def store_of(run: TableRun) -> str:
    """The file its record goes to: one for each dataset, and one for runs as the authors ran."""
    _, _, choices = run.row.partition("@")
    as_run = set(choices.split("+")) & {"as-run", "first-habits", *HABITS}
    return f"{run.cell.settings.dataset}{'-as-run' if as_run else ''}.jsonl"


def experiments_of(runs: Sequence[TableRun], data_root: Path | None) -> "list[Experiment]":
    """The experiments of planned runs, in their order."""
    from fedcompass.experiment import Experiment

    place = {} if data_root is None else {"root": str(data_root)}
    return [
        Experiment(**{**run.settings, "data": {**run.settings["data"], **place}}) for run in runs
    ]


def longest_first(runs: Sequence[TableRun]) -> list[TableRun]:
    """The order for runs side by side: whoever takes longest should not begin last."""
    return sorted(runs, key=tasks_in_a_row, reverse=True)


def run_entry(
    runs: Sequence[TableRun],
    folder: Path,
    *,
    budget: Seconds | None = None,
    resume: bool = True,
    device: str = "cpu",
    executor: str | None = None,
    workers: int | None = None,
    max_stack: int | None = None,
    data_root: Path | None = None,
) -> "Iterator[tuple[TableRun, Record]]":
    """Run what is planned, store by store; each run with its record once that is safe, or failed.

    Args:
        runs: what to run, in this order; in stacks the longest first.
        folder: where the stores are.
        budget: wall-clock seconds in all; what is left over is done next time.
        resume: take up runs that were stopped, and put away those that the budget stops.
        device: where to train.
        executor: who trains, as in `fedcompass.sweeps.run_all`.
        workers: processes.
        max_stack: most tasks in a stack.
        data_root: where the datasets lie.
    """
    from fedcompass.sweeps.running import run_all
    from fedcompass.sweeps.store import Store

    if executor == "stacked" or (executor is None and device != "cpu"):
        runs = longest_first(runs)
    began = monotonic()
    by_store: dict[str, list[TableRun]] = {}
    for run in runs:
        by_store.setdefault(store_of(run), []).append(run)
    for store, own in by_store.items():
        left = None if budget is None else budget - (monotonic() - began)
        if left is not None and left <= 0:
            return
        experiments = experiments_of(own, data_root)
        by_key = {e.key(): run for e, run in zip(experiments, own, strict=True)}
        records = run_all(
            experiments,
            Store(folder / store),
            workers=workers,
            device=device,
            executor=executor,
            budget=left,
            max_stack=max_stack,
            folder=STOPPED_RUNS if resume else None,
        )
        with closing(records):
            for record in records:
                yield by_key[record.key], record
