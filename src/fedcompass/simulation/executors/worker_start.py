"""Starting worker processes from the standard library's fork server, which has torch loaded.

Importing torch and what its optimizers need takes seconds. `spawn` pays that for every worker; a
`fork` of the simulation's own process is unsafe, because torch's thread pools do not survive it. A
fork server imports it once, and is kept for all later executors.
"""

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import send_handle
from types import ModuleType
from typing import Any, cast

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.settings.training import LocalSettings
from fedcompass.simulation.child_processes import kept_from_children
from fedcompass.simulation.executors.protocol import Job, TrainJob
from fedcompass.simulation.executors.shared_memory import (
    nameless_file,
    save_for_workers,
    shared_models,
)
from fedcompass.simulation.executors.training_worker import work
from fedcompass.training.problem import Problem

__all__ = ["WorkerHandle", "start_workers"]

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_PRELOADED = ["torch._dynamo", work.__module__]  # an optimizer loads the former


@dataclass(slots=True)
class WorkerHandle:
    """A worker process as its parent sees it.

    start, update: models in the memory that it shares with us.
    job: what it is at; None: it is free.
    is_wanted: whether anybody will ask for that job's result.
    """

    process: ForkServerProcess
    connection: Connection
    start: FlatState
    update: FlatState
    job: Job | None = None
    is_wanted: bool = True

    def give(self, job: Job) -> None:
        """Let the worker, which is free, carry out a job."""
        nothing = cast("FlatState", None)  # its model goes through the shared memory
        if isinstance(job, TrainJob):
            self.start.copy_(job.start)
            bare: Job = replace(job, start=nothing)
        else:
            self.start.copy_(job.state)
            bare = replace(job, state=nothing)
        self.job, self.is_wanted = job, True
        with suppress(OSError):  # it has died: the end of its connection says so
            self.connection.send(bare)


def start_workers(
    count: int, given: tuple[Problem, LocalSettings, int], layout: Layout
) -> list[WorkerHandle]:
    """Workers that train a problem by its settings and seed.

    Raises:
        SettingsError: a part of the problem cannot be found again by name in another process.
    """
    contents = nameless_file()
    try:
        main = save_for_workers(given, contents)
        return [_start(contents, main, layout) for _ in range(count)]
    finally:
        os.close(contents)


def _start(contents: int, main: dict[str, Any] | None, layout: Layout) -> WorkerHandle:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    ours, theirs = context.Pipe()
    models = nameless_file()
    process = context.Process(target=work, args=(theirs, main), daemon=True)
    with _clean_start(), theirs:
        process.start()
    assert process.pid is not None
    with suppress(OSError):  # it has died: the end of its connection says so
        send_handle(ours, contents, process.pid)
        send_handle(ours, models, process.pid)
    worker = WorkerHandle(process, ours, *shared_models(models, layout))
    os.close(models)
    return worker


@contextmanager
def _clean_start() -> Iterator[None]:
    """Processes started in here do not hear Ctrl-C, use one thread and import no main script.

    A worker whose problem needs the main script imports it itself, and can report what it raises.
    """
    main, before = sys.modules["__main__"], {name: os.environ.get(name) for name in _ENVIRONMENT}
    with kept_from_children():
        sys.modules["__main__"] = ModuleType("__main__")
        os.environ.update(_ENVIRONMENT)
        try:
            yield
        finally:
            sys.modules["__main__"] = main
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
