"""Carrying out a list of experiments, each one once, whatever stops it on the way."""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, TypeAlias

from fedcompass.errors import SettingsError
from fedcompass.experiment import Experiment
from fedcompass.simulation.executors.protocol import check_options
from fedcompass.sweeps.in_processes import in_processes
from fedcompass.sweeps.one_at_a_time import Place, one_at_a_time
from fedcompass.sweeps.pending import Pending
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.stacked_runs import stacked_runs
from fedcompass.sweeps.stopping import Stop
from fedcompass.sweeps.store import Store
from fedcompass.training.device import check_device
from fedcompass.vocabulary import Seconds

__all__ = ["SweepExecutor", "run_all"]

SweepExecutor: TypeAlias = Literal["serial", "processes", "stacked"]
"""Who runs: this process one run after the other, several, or this one with all runs in a stack."""


def run_all(
    experiments: Sequence[Experiment],
    store: Store,
    *,
    workers: int | None = None,
    device: str = "cpu",
    executor: str | None = None,
    budget: Seconds | None = None,
    max_stack: int | None = None,
    live: int | None = None,
    folder: Path | None = None,
    keep_as: Callable[[Experiment], str] | None = None,
    where: str | None = None,
) -> Generator[Record, None, None]:
    """Run what the store does not have yet, and give back each record once it is safe in there.

    A run that fails is recorded with its error and tried again next time. Runs that another process
    is at are left to it. What can be said at once is: only the runs wait for the first record to be
    asked for. "serial" and "processes" give the same bits; "stacked" and other devices
    round differently.

    Args:
        experiments: what to run, in this order.
        store: where the records go; any number of processes may share it.
        workers: processes or, on Ray, actors; default: one per core, CPU slot or GPU.
        device: where to train.
        executor: a `SweepExecutor`; default: "stacked" off the CPU, else "processes".
        budget: wall-clock seconds after which nothing new starts and live runs are put away.
        max_stack: most tasks in a stack; default: as many as pay and fit the free memory.
        live: runs side by side in a stack; default: as many as fill it.
        folder: where stopped runs wait to be taken up; None: they begin anew, as on Ray they do.
        keep_as: the name of a run's folder in `folder`, where it then stays when the run is done.
        where: "ray", "ray://host:port" or "host:port" for a Ray cluster; None: here.

    Raises:
        FedcompassError: nothing can be run so, or a process died.
        KeyboardInterrupt: at Ctrl-C, after live runs were put away; a second one does not wait.
    """
    chosen = _executor(executor, device, max_stack)
    stop = Stop(budget)
    pending = Pending(experiments, store, stop, None if keep_as else folder)
    pending.check()
    if where is not None:
        from fedcompass.sweeps.on_ray import OnRay

        records = OnRay(
            where,
            device=device,
            stacked=chosen == "stacked",
            workers=workers,
            max_stack=max_stack,
            stop=stop,
        ).records(pending)
    else:
        name = keep_as or Experiment.key
        records = _here(
            *(pending, stop, chosen, device, workers, max_stack, live),
            place=lambda experiment: folder and folder / name(experiment),
        )
    return _settled(records, pending, stop)


def _settled(
    records: Generator[Record, None, None], pending: Pending, stop: Stop
) -> Generator[Record, None, None]:
    """Each record, once it is safe in the store."""
    try:
        with stop.heeding_signals(), closing(records):
            for record in records:
                if pending.settle(record):
                    yield record
    finally:
        pending.release_all()  # only when nobody is at them any more
    if stop.interrupted:
        raise KeyboardInterrupt


def _here(
    pending: Pending,
    stop: Stop,
    chosen: SweepExecutor,
    device: str,
    workers: int | None,
    max_stack: int | None,
    live: int | None,
    place: Place,
) -> Generator[Record, None, None]:
    """Who carries them out on this machine."""
    check_device(device)
    count = min(workers or os.cpu_count() or 1, max(len(pending), 1))
    if chosen == "stacked":
        return stacked_runs(
            pending, device=device, max_stack=max_stack, live=live, place=place, stops=stop.is_due
        )
    if chosen == "processes" and count > 1:
        return in_processes(pending, workers=count, place=place, stop=stop)
    return one_at_a_time(pending, device=device, place=place, stops=stop.is_due)


def _executor(executor: str | None, device: str, max_stack: int | None) -> SweepExecutor:
    match executor or ("processes" if device == "cpu" else "stacked"):
        case "serial" | "processes" | "stacked" as chosen:
            pass
        case _:
            raise SettingsError(f"executor is {executor!r}; allowed: serial, processes, stacked")
    check_options(chosen, device, max_stack)
    return chosen
