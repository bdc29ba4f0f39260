"""Runs one after the other in a process: the same bits as `simulate` gives."""

from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TypeAlias

from fedcompass.experiment import Experiment
from fedcompass.simulation.executors import SerialExecutor
from fedcompass.simulation.problems import build_problem
from fedcompass.simulation.run import drive
from fedcompass.simulation.saving import Paused
from fedcompass.sweeps.pausable import opened
from fedcompass.sweeps.record import Record, failed_record, record_of
from fedcompass.training.device import device_name
from fedcompass.training.problem import Problem

__all__ = ["Place", "Stops", "run_one", "nowhere", "one_at_a_time"]

Stops: TypeAlias = Callable[[], bool]
"""Whether it is time to stop."""

Place: TypeAlias = Callable[[Experiment], Path | None]
"""Where a run's folder is; None: it has none, and begins anew when it was stopped."""


def one_at_a_time(
    pending: Iterable[Experiment], *, device: str, place: Place, stops: Stops
) -> Generator[Record, None, None]:
    """The record of each run that comes to its end, or fails, before it is to stop."""
    for experiment in pending:
        record = run_one(experiment, device=device, path=place(experiment), stops=stops)
        if record is not None:
            yield record


def run_one(
    experiment: Experiment,
    *,
    device: str,
    path: Path | None,
    stops: Stops,
    problem: Problem | None = None,
) -> Record | None:
    """Run one experiment; None if it was stopped first. Its folder stays until `Pending.settle`."""
    try:
        problem = problem or build_problem(experiment)
        executor = SerialExecutor(problem, experiment.local, experiment.seed, device)
        with opened(experiment, problem, executor, path=path, device=device) as run:
            drive(run.steps(stops=stops), executor)
            return record_of(run.result(), device_name(device))
    except Paused:
        return None
    except Exception as error:  # whatever a model or a setting did: the next run goes on
        return failed_record(experiment, error, device_name(device))


def nowhere(_experiment: Experiment) -> None:
    """The place of runs without a folder."""
