"""A run that can be put away between two events and taken up again by the next sweep."""

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fedcompass.errors import CheckpointError, FedcompassError, JournalError, TaskFailed
from fedcompass.experiment import Experiment
from fedcompass.runs.folder import RunFolder
from fedcompass.simulation.engine import Observer, Simulation
from fedcompass.simulation.executors import Executor, Job
from fedcompass.simulation.experiment_folder import create_run, experiment_of, resume_run
from fedcompass.simulation.run import CHECKPOINT_EVERY, Run
from fedcompass.sweeps.record import one_line
from fedcompass.training.problem import Problem
from fedcompass.vocabulary import Seconds

__all__ = ["Paused", "discard_folder", "opened", "pausable_steps"]


class Paused(FedcompassError):
    """The run was put away; its folder, if it has one, holds where it stood."""


def pausable_steps(
    run: Run, stops: Callable[[], bool], checkpoint_every: Seconds = CHECKPOINT_EVERY
) -> Generator[Job, Any, None]:
    """A run's steps, which end with `Paused` soon after it is asked to stop.

    Whatever else goes wrong in them is an error of ours, too.
    """
    saver = run.saver(checkpoint_every=checkpoint_every)
    try:
        yield from run.simulation.run(_Pausing(saver, stops, keeps=run.has_folder))
    except FedcompassError:
        raise
    except Exception as error:  # one run must not end a sweep
        raise TaskFailed(one_line(error)) from error


class _Pausing:
    """An `Observer` around another: saves once more, then pauses; at once if nothing is kept."""

    def __init__(self, inner: Observer, stops: Callable[[], bool], *, keeps: bool) -> None:
        self._inner, self._stops, self._keeps = inner, stops, keeps

    def after_event(self, simulation: Simulation) -> None:
        """Pause, if there is nowhere to save."""
        self._inner.after_event(simulation)
        if not self._keeps and self._stops():
            raise Paused("stopped")

    def wants_checkpoint(self) -> bool:
        """Whether it is time again, or time to stop."""
        return self._stops() or self._inner.wants_checkpoint()

    def checkpoint(self, simulation: Simulation) -> None:
        """Save, and pause if it is time to."""
        self._inner.checkpoint(simulation)
        if self._stops():
            raise Paused("stopped")


@contextmanager
def opened(
    experiment: Experiment,
    problem: Problem,
    executor: Executor,
    *,
    path: Path | None,
    device: str,
    keys: Iterator[int] | None = None,
) -> Iterator[Run]:
    """A run ready to be driven: taken up where it was put away in `path`, else from its start.

    The folder stays as it is; remove it with `discard_folder` when the record is safe.
    """

    def new_run() -> Run:
        folder = None if path is None else _folder(path, experiment)
        if folder is not None:
            stack.enter_context(folder.lock())
        return Run(experiment, problem, executor, folder=folder, device=device, keys=keys)

    with executor, ExitStack() as stack:
        try:
            run = new_run()
        except (CheckpointError, JournalError):  # damaged, or of another version: begin anew
            stack.close()
            discard_folder(path)
            run = new_run()
        stack.callback(run.close)
        yield run


def _folder(path: Path, experiment: Experiment) -> RunFolder:
    try:
        folder = resume_run(path)
        kept = folder.begun and experiment_of(folder).key() == experiment.key()
    except FedcompassError:  # nothing there, or nothing that can be taken up
        kept = False
    if kept:
        return RunFolder(path)
    discard_folder(path)
    return create_run(path, experiment)


def discard_folder(path: Path | None) -> None:
    """Remove a run's folder, if there is one."""
    if path is not None and path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
