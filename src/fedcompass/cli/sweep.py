"""`fedcompass sweep`: a grid of experiments, each run once, in as many goes as it takes."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcompass.cli import options as opt
from fedcompass.cli.interrupts import going_on_later
from fedcompass.cli.options import parse_budget

if TYPE_CHECKING:
    from fedcompass.sweeps.store import Store
    from fedcompass.sweeps.sweep_file import Sweep

__all__ = ["RESULTS", "SWEEP_FILE", "sweep", "tell_changed_code", "usual_store"]

RESULTS = "results.jsonl"
SWEEP_FILE = "sweep.toml"
"""In a comparison's folder: the sweep that it is."""


def sweep(
    file: Annotated[Path, typer.Argument(help="A sweep's TOML file; see examples/sweep.toml.")],
    store: Annotated[
        Path | None, typer.Option(help="File of results; default: runs/NAME/results.jsonl.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Stop after such a time: 9m, 1h30m. Then go on any time.")
    ] = None,
    workers: opt.Workers = None,
    device: opt.Device = "auto",
    executor: opt.Executor = None,
    max_stack: opt.MaxStack = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="ray[://HOST:PORT]", help="A Ray cluster to run on; or HOST:PORT."),
    ] = None,
) -> None:
    """Run what a sweep's store does not have yet; the same command goes on where it stopped.

    Exits with 1 if runs failed. One that broke off, as nobody was left to train, is a result: it
    is kept and marked.
    """
    seconds = parse_budget(budget)
    from fedcompass.cli.sweep_progress import SweepProgress
    from fedcompass.sweeps.store import Store
    from fedcompass.sweeps.sweep_file import Sweep

    given = Sweep.from_toml(file)
    results = Store(store or usual_store(given))
    folder = results.path.parent / "in-progress"
    progress = SweepProgress(given, results, lambda experiment: folder / experiment.key())
    print(f"sweep: {results.path}: {progress.state()}", flush=True)
    options: dict[str, Any] = {
        "workers": workers,
        "device": opt.device_to_use(device, executor, on),
        "executor": executor,
        "budget": seconds,
        "max_stack": max_stack,
        "folder": folder,
        "where": on,
    }
    tell_changed_code(given, results)
    with progress.live:
        failed = _run_missing(given, results, progress, options)
    print(f"{progress.state()}; {_next(progress.is_complete, failed, file, store)}")
    if failed:
        raise typer.Exit(1)


def _run_missing(sweep: "Sweep", store: "Store", progress: Any, options: dict[str, Any]) -> int:
    """Run; how many failed."""
    from fedcompass.sweeps.running import run_all

    def tell() -> None:
        progress.live.say(f"stopped; {progress.state()}; the same command goes on")

    failed = 0
    with going_on_later(tell), closing(run_all(sweep.experiments(), store, **options)) as records:
        for record in records:
            failed += not record.is_done
            progress.update(record)
    return failed


def tell_changed_code(sweep: "Sweep", store: "Store") -> None:
    """Say which files of the user's own have changed since runs in the store were done."""
    files = {name: None for e in sweep.experiments() for name in store.changed_code(e)}
    for name in files:
        print(f"{name} has changed since runs in {store.path} were done: they are done again")


def _next(is_complete: bool, failed: int, file: Path, store: Path | None) -> str:
    if failed:
        return f"{failed} failed; the same command tries them again"
    if not is_complete:
        return "the same command goes on"
    where = f" --store {store}" if store else ""
    return f"see them: fedcompass table {file}{where}"


def usual_store(sweep: "Sweep") -> Path:
    """Where a sweep's results are unless said otherwise."""
    return Path("runs") / sweep.name / RESULTS
