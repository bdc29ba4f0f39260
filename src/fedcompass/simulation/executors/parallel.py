"""Training ahead of time in worker processes, one torch thread each, models in shared memory."""

import os
import weakref
from collections.abc import Iterable, Sequence
from multiprocessing import current_process
from multiprocessing.connection import wait
from typing import NoReturn, overload

from fedcompass.aggregation.layout import Layout
from fedcompass.errors import SettingsError, TaskFailed
from fedcompass.settings.training import LocalSettings
from fedcompass.simulation.executors.protocol import (
    EvalJob,
    EvalResult,
    Executor,
    Job,
    TrainJob,
    TrainResult,
)
from fedcompass.simulation.executors.training_worker import Report, SetupFailed, Trained
from fedcompass.simulation.executors.worker_start import WorkerHandle, start_workers
from fedcompass.training.bound import build_module
from fedcompass.training.problem import Problem
from fedcompass.vocabulary import Seconds

__all__ = ["ProcessesExecutor", "next_job"]

_SECONDS_TO_END = 1.0
_NEAR = 0.05
"""Arrivals closer than this share of the time until then count as equally urgent."""


class ProcessesExecutor(Executor):
    """An `Executor` that trains every job in flight in parallel, the most urgent first.

    Memory beside the problem: a model per unclaimed result and two per worker, plus what each
    worker trains with. To be used from one thread.
    """

    def __init__(
        self, problem: Problem, settings: LocalSettings, seed: int, workers: int | None = None
    ) -> None:
        workers = _checked(workers)
        self.layout = Layout.of(build_module(problem, seed))
        self._workers = start_workers(workers, (problem, settings, seed), self.layout)
        self._shut_down = weakref.finalize(self, _end_all, self._workers)
        self._by_connection = {worker.connection: worker for worker in self._workers}
        self._waiting: dict[int, Job] = {}  # jobs that no worker has yet
        self._now: Seconds = 0.0  # virtual time of the last result asked for
        self._finished: dict[int, TrainResult | EvalResult | TaskFailed] = {}
        self._over: TaskFailed | None = None  # why no more jobs are taken

    def submit(self, job: Job) -> None:
        """Hand the job to a worker, or keep it until one is free."""
        self._waiting[job.key] = job
        self._exchange(block=False)

    @overload
    def result(self, job: TrainJob) -> TrainResult: ...
    @overload
    def result(self, job: EvalJob) -> EvalResult: ...
    def result(self, job: Job) -> TrainResult | EvalResult:
        """Wait for the job; it goes first if no worker has it yet."""
        known = job.key in self._waiting or job.key in self._finished
        if not known and self._worker_at(job) is None:
            raise ValueError(f"job {job.key} was not submitted, or its result was taken already")
        if isinstance(job, TrainJob):
            self._now = max(self._now, job.needed_at)
        while job.key not in self._finished:
            self._exchange(block=True, first=job.key)
        outcome = self._finished.pop(job.key)
        if isinstance(outcome, TaskFailed):
            raise outcome
        return outcome

    def discard(self, job: Job) -> None:
        """Drop a job that waits; one that is being trained is dropped when it is done."""
        if job.key in self._waiting:
            del self._waiting[job.key]
        elif worker := self._worker_at(job):
            worker.is_wanted = False
        else:
            self._finished.pop(job.key, None)

    def close(self) -> None:
        """End the workers at once."""
        self._over = self._over or TaskFailed("the executor is closed; make a new one")
        self._shut_down()

    def _worker_at(self, job: Job) -> WorkerHandle | None:
        at_it = (w for w in self._workers if w.job is not None and w.job.key == job.key)
        return next(at_it, None)

    def _exchange(self, *, block: bool, first: int | None = None) -> None:
        """Hand out jobs, one of them first, and take in what has come; or wait until some has."""
        if self._over is not None:
            raise self._over
        self._hand_out(first)
        for connection in wait(list(self._by_connection), None if block else 0):
            worker = self._by_connection[connection]  # type: ignore[index]
            try:
                report: Report = worker.connection.recv()
            except (EOFError, OSError):
                self._fail(_death(worker))
            self._take_in(worker, report)
        self._hand_out(first)

    def _hand_out(self, first: int | None) -> None:
        for worker in self._workers:
            if worker.job is None and self._waiting:
                worker.give(self._waiting.pop(self._next(first)))

    def _next(self, first: int | None) -> int:
        if first is not None and first in self._waiting:
            return first
        most = 2 * len(self._workers)
        return next_job(self._waiting.values(), now=self._now, most_evaluations=most).key

    def _take_in(self, worker: WorkerHandle, report: Report) -> None:
        if isinstance(report, SetupFailed):
            self._fail(report.error)
        job, worker.job = worker.job, None
        assert job is not None
        if not worker.is_wanted:
            return
        if not isinstance(report, Trained):
            self._finished[job.key] = report
            return
        assert isinstance(job, TrainJob)
        update = worker.update.clone()
        self._finished[job.key] = TrainResult(
            update=update, steps=job.steps, seconds=report.seconds
        )

    def _fail(self, error: TaskFailed) -> NoReturn:
        self._over = error
        self._shut_down()
        raise error


def next_job(waiting: Iterable[Job], *, now: Seconds, most_evaluations: int) -> Job:
    """What the simulation will ask for first, and among near-equals the longest.

    The longest first, because jobs due together (an arrival group, a round) end sooner that way.
    Evaluations give way to training, up to a number, since each keeps a model in memory.

    Args:
        waiting: at least one job, in the order in which they came.
        now: virtual time of the last result asked for.
        most_evaluations: how many of them may wait.
    """
    waiting = list(waiting)
    training = [job for job in waiting if isinstance(job, TrainJob)]
    evaluations = [job for job in waiting if isinstance(job, EvalJob)]
    if not training or len(evaluations) > most_evaluations:
        return evaluations[0]
    first = min(job.needed_at for job in training)
    near = first + _NEAR * max(first - now, 0.0)
    return max((job for job in training if job.needed_at <= near), key=lambda job: job.steps)


def _checked(workers: int | None) -> int:
    if current_process().daemon:
        raise SettingsError(
            "a worker process that imports your script would start workers of its own; put the "
            "lines that run the simulation under: if __name__ == '__main__':"
        )
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if workers < 1:
        raise SettingsError(f"workers is {workers}; allowed: a whole number at least 1")
    return workers


def _death(worker: WorkerHandle) -> TaskFailed:
    match worker.job:
        case TrainJob(client=client, local_round=local_round):
            doing = f"training client {client}, local round {local_round}"
        case EvalJob():
            doing = "evaluating the model"
        case _:
            doing = "idle or starting"
    return TaskFailed(
        f"worker process {worker.process.pid} died while {doing}: it was killed or ran "
        "out of memory; free some or use fewer workers, then run again"
    )


def _end_all(workers: Sequence[WorkerHandle]) -> None:
    for worker in workers:
        worker.process.kill()
    for worker in workers:
        worker.process.join(_SECONDS_TO_END)
        worker.connection.close()
