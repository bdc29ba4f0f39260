"""Training all pending tasks of all live runs in one stack, when the first result is due."""

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar, overload

import torch

from fedcompass.errors import FedcompassError, TaskFailed
from fedcompass.settings.training import LocalSettings
from fedcompass.simulation.executors.protocol import (
    EvalJob,
    EvalResult,
    Executor,
    Job,
    TrainJob,
    TrainResult,
)
from fedcompass.simulation.executors.stacked_jobs import StackedJobs
from fedcompass.training.problem import Problem

__all__ = ["StackedExecutor", "StackedJobs", "drive_stacked"]

_T = TypeVar("_T")


class StackedExecutor(Executor):
    """An `Executor` for one run that trains whatever is pending together.

    Args:
        problem: the run's.
        settings: how clients train.
        seed: the run's.
        device, max_stack: of its own `StackedJobs`, unless it is given one that runs share.
    """

    def __init__(
        self,
        problem: Problem,
        settings: LocalSettings,
        seed: int,
        device: torch.device | str = "cpu",
        max_stack: int | None = None,
        *,
        stacked_jobs: StackedJobs | None = None,
    ) -> None:
        self._stacked_jobs = stacked_jobs or StackedJobs(device, max_stack)
        self._context = self._stacked_jobs.context(problem, settings, seed)

    @property
    def how(self) -> str:
        """How its tasks are trained: "stacked", "vmap (why)" or "one at a time (why)"."""
        trainer = self._context.trainer
        return trainer if isinstance(trainer, str) else trainer.how

    @property
    def stacks(self) -> bool:
        """Whether its tasks train together with others, of its own and other runs."""
        return self._context.stacks

    def submit(self, job: Job) -> None:
        """Collect the job until a result is needed."""
        self._stacked_jobs.submit(job, self._context)

    @overload
    def result(self, job: TrainJob) -> TrainResult: ...
    @overload
    def result(self, job: EvalJob) -> EvalResult: ...
    def result(self, job: Job) -> TrainResult | EvalResult:
        """The job's result; trains everything pending if it is not there yet."""
        return self._stacked_jobs.result(job)

    def discard(self, job: Job) -> None:
        """Forget the job."""
        self._stacked_jobs.discard(job)

    def close(self) -> None:
        """Drop what was not begun."""
        self._stacked_jobs.forget(self._context)


def drive_stacked(
    simulations: Iterable[Generator[Job, Any, _T]],
    stacked_jobs: StackedJobs,
    *,
    has_room: Callable[[int], bool] = lambda live: live < 256,
) -> Generator[tuple[int, _T | FedcompassError], None, None]:
    """Drive simulations side by side; give back (its number, what it returned) as each one ends.

    Every live simulation goes on until it needs a result that is not there; then everything they
    wait for is trained together. The first ones are served first. One that raised gives its error.

    Args:
        simulations: the generators of `Run.steps`, whose executors share `stacked_jobs`; the next
            one is taken when another has ended, so they may be made on the way.
        stacked_jobs: what trains.
        has_room: whether another one may go on beside so many live ones.
    """
    source = enumerate(simulations)
    waiting: dict[int, tuple[Generator[Job, Any, _T], Job]] = {}
    try:
        while True:
            for number in list(waiting):
                steps, job = waiting.pop(number)
                yield from _advanced(number, steps, job, stacked_jobs, waiting)
            while has_room(len(waiting)) and (fresh := next(source, None)) is not None:
                yield from _advanced(*fresh, None, stacked_jobs, waiting)
            if not waiting:
                return
            stacked_jobs.work([job for _, job in waiting.values()])
    finally:
        for steps, _ in waiting.values():
            steps.close()


def _advanced(
    number: int,
    steps: Generator[Job, Any, _T],
    job: Job | None,
    stacked_jobs: StackedJobs,
    waiting: dict[int, tuple[Generator[Job, Any, _T], Job]],
) -> Iterator[tuple[int, _T | FedcompassError]]:
    """Go on with one simulation; put it among the waiting, or give it back if it ended."""
    try:
        job = next(steps) if job is None else job
        while stacked_jobs.is_done(job):
            try:
                result = stacked_jobs.result(job)
            except TaskFailed as error:
                job = steps.throw(error)
            else:
                job = steps.send(result)
        waiting[number] = steps, job
    except StopIteration as end:
        yield number, end.value
    except FedcompassError as error:
        yield number, error
