"""A run that can be put away between two events and taken up again by the next sweep."""

import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fedcompass.errors import CheckpointError, FedcompassError, JournalError, TaskFailed
from fedcompass.experiment import Experiment
from fedcompass.runs.folder import RunFolder
from fedcompass.runs.journal import FileJournal
from fedcompass.runs.tally import Tally
from fedcompass.simulation.engine import Simulation
from fedcompass.simulation.executors import Executor, Job
from fedcompass.simulation.experiment_folder import create_run, experiment_of, resume_run
from fedcompass.simulation.run import CHECKPOINT_EVERY, Run
from fedcompass.simulation.saving import Saver
from fedcompass.sweeps.record import one_line
from fedcompass.training.problem import Problem
from fedcompass.vocabulary import Seconds

__all__ = ["PausableRun", "Paused", "discard_folder", "opened"]


class Paused(FedcompassError):
    """The run was put away; its folder, if it has one, holds where it stood."""


class PausableRun(Run):
    """A `Run` whose steps end with `Paused` soon after it is asked to stop."""

    def pausable_steps(
        self, stops: Callable[[], bool], checkpoint_every: Seconds = CHECKPOINT_EVERY
    ) -> Generator[Job, Any, None]:
        """The simulation's generator; whatever goes wrong in it is an error of ours."""
        saver = _PausingSaver(
            self._folder,
            self._journal,
            self._tally,
            identity=self._identity,
            every=checkpoint_every,
            stops=stops,
        )
        try:
            yield from self.simulation.run(saver)
        except FedcompassError:
            raise
        except Exception as error:  # one run must not end a sweep
            raise TaskFailed(one_line(error)) from error


class _PausingSaver(Saver):
    """Saves now and then, and once more before it pauses; without a folder it pauses at once."""

    def __init__(
        self,
        folder: RunFolder | None,
        journal: FileJournal | None,
        tally: Tally,
        *,
        identity: Mapping[str, Any],
        every: Seconds,
        stops: Callable[[], bool],
    ) -> None:
        super().__init__(folder, journal, tally, identity=identity, every=every)
        self._stops = stops
        self._keeps = folder is not None

    def after_event(self, simulation: Simulation) -> None:
        """Pause, if there is nowhere to save."""
        if not self._keeps and self._stops():
            raise Paused("stopped")

    def wants_checkpoint(self) -> bool:
        """Whether it is time again, or time to stop."""
        return self._stops() or super().wants_checkpoint()

    def checkpoint(self, simulation: Simulation) -> None:
        """Save, and pause if it is time to."""
        super().checkpoint(simulation)
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
) -> Iterator[PausableRun]:
    """A run ready to be driven: taken up where it was put away in `path`, else from its start.

    The folder stays as it is; remove it with `discard_folder` when the record is safe.
    """

    def new_run() -> PausableRun:
        folder = None if path is None else _folder(path, experiment)
        if folder is not None:
            stack.enter_context(folder.lock())
        return PausableRun(experiment, problem, executor, folder=folder, device=device, keys=keys)

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
