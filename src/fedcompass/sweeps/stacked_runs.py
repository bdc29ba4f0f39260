"""Runs side by side in one process, all their pending tasks trained as one stack."""

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from itertools import count
from math import inf
from typing import Any

from fedcompass.errors import FedcompassError
from fedcompass.experiment import Experiment
from fedcompass.simulation.executors import Job
from fedcompass.simulation.executors.stacked import StackedExecutor, drive_stacked
from fedcompass.simulation.executors.stacked_jobs import StackedJobs
from fedcompass.simulation.problems import build_problem
from fedcompass.simulation.run import Run
from fedcompass.sweeps.one_at_a_time import Place, Stops
from fedcompass.sweeps.pausable import Paused, opened, pausable_steps
from fedcompass.sweeps.record import Record, failed_record, record_of
from fedcompass.training.device import device_name
from fedcompass.training.problem import Problem

__all__ = ["StackedRuns"]

_CLIENTS_ON_GPU = 1024  # of all live runs: a few of each run's tasks are due at a time
_CLIENTS_ON_CPU = 64  # a CPU's stacks are small: more would only cost memory
_FEWEST_RUNS = 4


class StackedRuns:
    """Drives runs whose jobs are trained in the same stacks.

    Args:
        device: where to train.
        max_stack: most tasks in a stack; None: as many as pay and fit the free memory.
        live: how many runs side by side; None: as many as fill the stacks, by their clients.
        place: where runs' folders are.
        stops: whether to.
    """

    def __init__(
        self,
        *,
        device: str,
        max_stack: int | None,
        live: int | None,
        place: Place,
        stops: Stops,
    ) -> None:
        self._device, self._place, self._stops = device, place, stops
        self._stacked_jobs = StackedJobs(device, max_stack)
        self._live = live
        self._name = device_name(device, "stacked")
        self._keys = count()
        self._runs: dict[int, tuple[Run, ExitStack]] = {}  # by their number in the drive
        self._not_begun: list[Record] = []  # failures

    def records(
        self, pending: Iterator[Experiment], problems: dict[str, Problem] | None = None
    ) -> Generator[Record, None, None]:
        """The record of each run as it ends or fails; at a stop the live ones are put away."""
        with ExitStack() as everything:
            everything.callback(self._close_all)
            steps = self._begun(pending, problems or {})
            for number, error in drive_stacked(steps, self._stacked_jobs, has_room=self._has_room):
                yield from self._drain()
                record = self._ended(number, error)
                if record is not None:
                    yield record
            yield from self._drain()

    def _has_room(self, live: int) -> bool:
        if self._live is not None:
            return live < self._live
        clients = sum(run.experiment.fleet.clients for run, _ in self._runs.values())
        most = _CLIENTS_ON_CPU if self._device.startswith("cpu") else _CLIENTS_ON_GPU
        return live < _FEWEST_RUNS or clients < most

    def _begun(
        self, pending: Iterator[Experiment], problems: dict[str, Problem]
    ) -> Iterator[Generator[Job, Any, None]]:
        """The steps of each run, made when there is room for it."""
        numbers = count()
        for experiment in pending:
            try:
                run, stack = self._opened(experiment, problems.get(experiment.key()))
            except Exception as error:  # whatever a model or a setting did: the next run goes on
                self._not_begun.append(failed_record(experiment, error, self._name))
                continue
            self._runs[next(numbers)] = run, stack
            # Saving hundreds of live runs now and then would cost more than a crash does.
            yield pausable_steps(run, self._stops, checkpoint_every=inf)

    def _opened(self, experiment: Experiment, problem: Problem | None) -> tuple[Run, ExitStack]:
        problem = problem or build_problem(experiment)
        executor = StackedExecutor(
            problem, experiment.local, experiment.seed, stacked_jobs=self._stacked_jobs
        )
        with ExitStack() as stack:
            path = self._place(experiment)
            run = stack.enter_context(
                opened(
                    experiment, problem, executor, path=path, device=self._device, keys=self._keys
                )
            )
            return run, stack.pop_all()
        raise AssertionError("an ExitStack lets errors pass")

    def _ended(self, number: int, error: FedcompassError | None) -> Record | None:
        run, stack = self._runs.pop(number)
        with stack:
            if isinstance(error, Paused):
                return None
            if error is not None:
                return failed_record(run.experiment, error, self._name)
            return record_of(run.result(), self._name)

    def _drain(self) -> Iterator[Record]:
        while self._not_begun:
            yield self._not_begun.pop(0)

    def _close_all(self) -> None:
        """Let go of every folder, when the drive was left before its end."""
        while self._runs:
            self._runs.popitem()[1][1].close()
