"""A run that can be put away between two events and taken up again by the next sweep."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedcompass.errors import CheckpointError, FedcompassError, JournalError
from fedcompass.experiment import Experiment
from fedcompass.runs.folder import RunFolder
from fedcompass.simulation.executors import Executor
from fedcompass.simulation.experiment_folder import create_run, experiment_of, resume_run
from fedcompass.simulation.run import Run
from fedcompass.training.problem import Problem

__all__ = ["discard_folder", "opened"]


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
