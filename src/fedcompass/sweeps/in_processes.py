"""Runs in several processes, one each: they share nothing, so this scales with the cores."""

import multiprocessing
import signal
from collections.abc import Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from pathlib import Path
from time import monotonic

from fedcompass.errors import TaskFailed
from fedcompass.experiment import Experiment
from fedcompass.freed_memory import keep_freed_memory
from fedcompass.simulation.child_processes import end_with_parent, kept_from_children
from fedcompass.sweeps.one_at_a_time import Place, run_one
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.stopping import Stop
from fedcompass.vocabulary import Seconds

__all__ = ["in_processes"]

_LOOK_EVERY: Seconds = 0.2  # whether it is time to stop
_GRACE: Seconds = 60.0  # for runs to get to the end of a local round and save


def in_processes(
    pending: Iterator[Experiment], *, workers: int, place: Place, stop: Stop
) -> Generator[Record, None, None]:
    """The record of each run as it ends or fails; at a stop the live ones are put away.

    Raises:
        TaskFailed: a process died; nothing but its run's time since its last checkpoint is lost.
    """
    context = multiprocessing.get_context("spawn")  # forking a process that uses torch is unsafe
    stops = context.Event()
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(stops,))
    running: set[Future[Record | None]] = set()
    try:
        while True:
            while len(running) < workers and (experiment := next(pending, None)) is not None:
                with kept_from_children():  # the first one starts the processes
                    running.add(pool.submit(_run_one, experiment, place(experiment)))
            if not running:
                return
            if stop.is_due() and not stops.is_set():
                stops.set()
                given_up = monotonic() + _GRACE
            ended, running = wait(running, _LOOK_EVERY, FIRST_COMPLETED)
            yield from (record for future in ended if (record := future.result()) is not None)
            if stops.is_set() and monotonic() > given_up:
                return
    except BrokenProcessPool:
        raise TaskFailed(
            "a process died (out of memory?); the same command goes on, with fewer --workers if so"
        ) from None
    finally:
        for process in list((pool._processes or {}).values()):
            process.terminate()  # checkpoints are written whole or not at all
        pool.shutdown(wait=True, cancel_futures=True)


_stops: Event | None = None  # a worker process's own


def _begin(stops: Event) -> None:
    """Prepare a worker: Ctrl-C is the main process's affair."""
    global _stops
    _stops = stops
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    keep_freed_memory()


def _run_one(experiment: Experiment, path: Path | None) -> Record | None:
    return run_one(experiment, device="cpu", path=path, stops=_stop_is_due)


def _stop_is_due() -> bool:
    """Whether the main process says so."""
    return _stops is None or _stops.is_set()
