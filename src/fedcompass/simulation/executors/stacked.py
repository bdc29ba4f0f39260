"""Training all pending tasks of all live runs in one stack, when the first result is due."""

from collections.abc import Callable, Generator, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, overload

import torch

from fedcompass.errors import FedcompassError, TaskFailed
from fedcompass.settings.training import LocalSettings
from fedcompass.simulation.executors.protocol import (
    EvalJob,
    EvalResult,
    Job,
    TrainJob,
    TrainResult,
)
from fedcompass.simulation.executors.workshop import Workshop
from fedcompass.training.problem import Problem

__all__ = ["StackedExecutor", "Workshop", "drive_stacked"]


class StackedExecutor:
    """An `Executor` for one run that trains whatever is pending together.

    Args:
        problem: the run's.
        settings: how clients train.
        seed: the run's.
        device, max_stack: of its own workshop, unless it is given one that runs share.
    """

    def __init__(
        self,
        problem: Problem,
        settings: LocalSettings,
        seed: int,
        device: torch.device | str = "cpu",
        max_stack: int | None = None,
        *,
        workshop: Workshop | None = None,
    ) -> None:
        self._workshop = workshop or Workshop(device, max_stack)
        self._context = self._workshop.context(problem, settings, seed)

    @property
    def how(self) -> str:
        """How its tasks are trained: "stacked", "vmap (why)" or "one at a time (why)"."""
        trainer = self._context.trainer
        return trainer if isinstance(trainer, str) else trainer.how

    def submit(self, job: Job) -> None:
        """Collect the job until a result is needed."""
        self._workshop.submit(job, self._context)

    @overload
    def result(self, job: TrainJob) -> TrainResult: ...
    @overload
    def result(self, job: EvalJob) -> EvalResult: ...
    def result(self, job: Job) -> TrainResult | EvalResult:
        """The job's result; trains everything pending if it is not there yet."""
        return self._workshop.result(job)

    def release(self, job: TrainJob) -> None:
        """Do nothing: an update lives as long as it is referred to."""

    def discard(self, job: Job) -> None:
        """Forget the job."""
        self._workshop.discard(job)

    def close(self) -> None:
        """Drop what was not begun."""
        self._workshop.forget(self._context)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def drive_stacked(
    simulations: Iterable[Generator[Job, Any, None]],
    workshop: Workshop,
    *,
    has_room: Callable[[int], bool] = lambda live: live < 256,
) -> Iterator[tuple[int, FedcompassError | None]]:
    """Drive simulations side by side; give back (its number, its error if any) as each one ends.

    Every live simulation goes on until it needs a result that is not there; then everything they
    wait for is trained together. The first ones are served first.

    Args:
        simulations: the generators of `Run.steps`, whose executors belong to `workshop`; the next
            one is taken when another has ended, so they may be made on the way.
        workshop: trains.
        has_room: whether another one may go on beside so many live ones.
    """
    source = enumerate(simulations)
    waiting: dict[int, tuple[Generator[Job, Any, None], Job]] = {}
    while True:
        for number in list(waiting):
            steps, job = waiting.pop(number)
            yield from _advanced(number, steps, job, workshop, waiting)
        while has_room(len(waiting)) and (fresh := next(source, None)) is not None:
            yield from _advanced(*fresh, None, workshop, waiting)
        if not waiting:
            return
        workshop.work([job for _, job in waiting.values()])


def _advanced(
    number: int,
    steps: Generator[Job, Any, None],
    job: Job | None,
    workshop: Workshop,
    waiting: dict[int, tuple[Generator[Job, Any, None], Job]],
) -> Iterator[tuple[int, FedcompassError | None]]:
    """Go on with one simulation; put it among the waiting, or give it back if it ended."""
    try:
        job = next(steps) if job is None else job
        while workshop.is_done(job):
            try:
                result = workshop.result(job)
            except TaskFailed as error:
                job = steps.throw(error)
            else:
                job = steps.send(result)
        waiting[number] = steps, job
    except StopIteration:
        yield number, None
    except FedcompassError as error:
        yield number, error
