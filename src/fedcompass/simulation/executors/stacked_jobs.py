"""Carries out the pending jobs of any number of runs, those of one kind in the same stacks."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedcompass.errors import TaskFailed
from fedcompass.settings.training import LocalSettings
from fedcompass.simulation.executors.one_job import (
    begin_evaluating,
    one_thread,
    train_one,
)
from fedcompass.simulation.executors.protocol import (
    EvalJob,
    EvalResult,
    Job,
    TrainJob,
    TrainResult,
)
from fedcompass.training.local import LocalTrainer, model_steps
from fedcompass.training.model_steps import ModelSteps
from fedcompass.training.problem import Problem
from fedcompass.training.stacked import StackedTask, StackedTrainer
from fedcompass.training.stacked.chosen_trainer import stacked_trainer
from fedcompass.training.streams import row_stream

__all__ = ["RunContext", "StackedJobs"]

_JobT = TypeVar("_JobT", TrainJob, EvalJob)
_AnyJob = TypeVar("_AnyJob", bound=Job)
_T = TypeVar("_T")
_TASKS_AT_ONCE = 512  # of a round of work; more would only make runs wait for each other
_KINDS_KEPT = 2  # a model on a GPU holds its graph's memory
_Outcome = TrainResult | EvalResult | TaskFailed


class RunContext:
    """What the jobs of one run have in common.

    problem: the run's, with its samples on the device.
    kind: equal for runs whose tasks can be in the same stacks.
    trainer: for their stacks; or why there are none.
    """

    def __init__(
        self,
        problem: Problem,
        settings: LocalSettings,
        seed: int,
        device: torch.device,
        kind: tuple[Any, ...],
        trainer: StackedTrainer | str,
        alone: Callable[[Problem, LocalSettings, int, Any], ModelSteps],
    ) -> None:
        self.problem, self.kind, self.trainer = problem, kind, trainer
        self._steps_alone = alone
        self._settings, self._seed, self._device = settings, seed, device
        self._alone: LocalTrainer | None = None

    @property
    def stacks(self) -> bool:
        """Whether tasks train together."""
        return isinstance(self.trainer, StackedTrainer)

    def task(self, job: TrainJob) -> StackedTask:
        """A job as a task of a stack: the batches it would draw alone."""
        return StackedTask(
            start=job.start,
            samples=self.problem.clients[job.client],
            stream=row_stream(
                self._settings.sampling,
                seed=self._seed,
                client=job.client,
                local_round=job.local_round,
                steps_before=job.steps_before,
            ),
            steps=job.steps,
            payload=job.payload,
            rate_scale=self._settings.rate_scale(job.steps_before, job.steps),
        )

    def train_alone(self, job: TrainJob) -> TrainResult:
        """Train one job without a stack."""
        trainer = self.trainer_alone()
        return train_one(trainer, job, trainer.layout.empty(job.start.trainable.device))

    def begin_alone(self, job: EvalJob) -> Callable[[], EvalResult]:
        """Start one evaluation without a stack; call what is given back for its result."""
        return begin_evaluating(self.trainer_alone(), job)

    def trainer_alone(self) -> LocalTrainer:
        """What trains without a stack, built when it is first needed.

        Raises:
            SettingsError: the model, or how it is to be trained, does not go with the device.
        """
        if self._alone is None:
            steps = self._steps_alone(self.problem, self._settings, self._seed, self.kind)
            given = self.problem, self._settings, self._seed, self._device
            self._alone = LocalTrainer(*given, steps=steps)
        return self._alone


class StackedJobs:
    """Trains and measures for any number of runs; tasks of one kind go into the same stacks.

    Args:
        device: where to train; the runs' models may lie elsewhere, but the same device is faster.
        max_stack: most tasks in a stack; None: as many as pay and fit the free memory.
    """

    def __init__(self, device: torch.device | str = "cpu", max_stack: int | None = None) -> None:
        self.device = torch.device(device)
        self._max_stack = max_stack
        self._moved: dict[int, tuple[Tensor, Tensor]] = {}  # as `Problem.to` keeps them
        self._trainers: dict[Any, StackedTrainer | str] = {}  # or why there is none
        self._steps_alone: dict[Any, ModelSteps] = {}  # of the latest kinds without a stack
        self._pending: dict[Job, RunContext] = {}
        self._outcomes: dict[Job, _Outcome] = {}
        self._owners: dict[Job, RunContext] = {}  # of the jobs in either

    def context(self, problem: Problem, settings: LocalSettings, seed: int) -> "RunContext":
        """What jobs of one run need; runs whose tasks are of one kind share a trainer."""
        here = problem.to(self.device, self._moved)
        kind = _kind(here, settings)
        if kind not in self._trainers:
            self._trainers[kind] = self._new_trainer(here, settings)
        trainer = self._trainers[kind]
        made = RunContext(here, settings, seed, self.device, kind, trainer, self._steps_of)
        if isinstance(trainer, str):
            made.trainer_alone()  # here it is this run's fault if its model cannot be trained
        return made

    def _steps_of(
        self, problem: Problem, settings: LocalSettings, seed: int, kind: Any
    ) -> ModelSteps:
        """What takes a kind's steps one at a time: compiled once for runs side by side."""
        found = self._steps_alone.get(kind)
        if found is None:
            found = model_steps(problem, settings, seed, self.device)
            if found.model.replaces_buffers or found.model.has_frozen:
                return found  # its unsaved buffers and frozen parameters may depend on the seed
            while len(self._steps_alone) >= _KINDS_KEPT:
                del self._steps_alone[next(iter(self._steps_alone))]  # runs of it keep theirs
            self._steps_alone[kind] = found
        return found

    def _new_trainer(self, problem: Problem, settings: LocalSettings) -> StackedTrainer | str:
        made = stacked_trainer(problem, settings, self.device, self._max_stack)
        how = made if isinstance(made, str) else made.how
        if how != "stacked":
            warnings.warn(f"tasks of this model train by {how}", stacklevel=4)
        return made

    def submit(self, job: Job, context: "RunContext") -> None:
        """Take in a job."""
        self._pending[job] = self._owners[job] = context

    def is_done(self, job: Job) -> bool:
        """Whether a job's result can be had without further training."""
        return job in self._outcomes

    def result(self, job: Job) -> TrainResult | EvalResult:
        """A job's result; carries out everything pending if it is not there yet.

        Raises:
            TaskFailed: the job raised.
            ValueError: the job was never submitted.
        """
        if job not in self._outcomes:
            if job not in self._pending:
                raise ValueError(f"job {job.key} was not submitted, or was asked for before")
            self.work([job])
        outcome = self._outcomes.pop(job)
        del self._owners[job]
        if isinstance(outcome, TaskFailed):
            raise outcome
        return outcome

    def discard(self, job: Job) -> None:
        """Forget a job."""
        for jobs in (self._pending, self._outcomes, self._owners):
            jobs.pop(job, None)

    def forget(self, context: "RunContext") -> None:
        """Drop a run's jobs, done or not, and the models they hold."""
        for job in [job for job, owner in self._owners.items() if owner is context]:
            self.discard(job)

    def work(self, awaited: Sequence[Job] = ()) -> None:
        """Carry out pending jobs, all of the awaited ones among them.

        Of many tasks the awaited ones are trained first, then what each run needs next, so that a
        run with many tasks in a row does not wait for those that nobody needs yet. Where there are
        no stacks nothing is gained by training ahead, and a run may end before it needs a task.
        """
        with one_thread():
            begun: dict[EvalJob, Callable[[], EvalResult] | TaskFailed] = {}
            for measuring in _grouped(self._pending, EvalJob):
                begun |= self._evaluate(measuring)
            due = self._due(awaited)
            for training in _grouped(due, TrainJob):
                self._train(training)
            # Last of all: a value waits for everything the GPU was given.
            self._outcomes |= {job: _finished(result) for job, result in begun.items()}
        self._pending = {
            job: context
            for job, context in self._pending.items()
            if isinstance(job, TrainJob) and job not in due
        }

    def _due(self, awaited: Sequence[Job]) -> "dict[TrainJob, RunContext]":
        """The tasks to train now."""
        needed = set(awaited)
        tasks = {
            job: context
            for job, context in self._pending.items()
            if isinstance(job, TrainJob) and (context.stacks or job in needed)
        }
        if len(tasks) <= _TASKS_AT_ONCE:
            return tasks
        first = [job for job in awaited if isinstance(job, TrainJob) and job in tasks]
        turns: dict[RunContext, int] = {}  # how many tasks of each run come before
        others: list[tuple[int, TrainJob]] = []
        for job in sorted(tasks.keys() - set(first), key=lambda job: (job.needed_at, job.key)):
            turns[tasks[job]] = turn = turns.get(tasks[job], 0) + 1
            others.append((turn, job))
        others.sort(key=lambda item: item[0])
        room = max(0, _TASKS_AT_ONCE - len(first))
        return {job: tasks[job] for job in (*first, *(job for _, job in others[:room]))}

    def _train(self, jobs: "dict[TrainJob, RunContext]") -> None:
        trainer = next(iter(jobs.values())).trainer

        def stacked() -> dict[TrainJob, TrainResult]:
            began = time.perf_counter()
            assert isinstance(trainer, StackedTrainer)
            updates = trainer.train([context.task(job) for job, context in jobs.items()])
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            per_step = (time.perf_counter() - began) / sum(job.steps for job in jobs)
            return {
                job: TrainResult(update=update, steps=job.steps, seconds=per_step * job.steps)
                for job, update in zip(jobs, updates, strict=True)
            }

        if any(job.privacy for job in jobs):
            warnings.warn("private tasks train one at a time", stacklevel=2)
            trainer = "one at a time (private)"
        self._outcomes |= self._attempt(trainer, stacked) or {
            job: _tried(partial(context.train_alone, job)) for job, context in jobs.items()
        }

    def _evaluate(
        self, jobs: "dict[EvalJob, RunContext]"
    ) -> dict[EvalJob, Callable[[], EvalResult] | TaskFailed]:
        """Measure in stacks; give back those that cannot be, begun one by one."""
        first = next(iter(jobs.values()))
        trainer, problem = first.trainer, first.problem

        def stacked() -> dict[EvalJob, EvalResult]:
            began = time.perf_counter()
            assert isinstance(trainer, StackedTrainer)
            found = trainer.evaluator.evaluate(
                [job.state for job in jobs], problem.test, next(iter(jobs)).metrics, problem.loss
            )
            seconds = (time.perf_counter() - began) / len(jobs)
            return {
                job: EvalResult(metrics=metrics, seconds=seconds)
                for job, metrics in zip(jobs, found, strict=True)
            }

        by_client = next(iter(jobs)).client_metrics
        if not by_client and (found := self._attempt(trainer, stacked)):
            self._outcomes |= found
            return {}
        return {job: _tried(partial(context.begin_alone, job)) for job, context in jobs.items()}

    def _attempt(
        self, trainer: StackedTrainer | str, work: Callable[[], dict[Any, Any]]
    ) -> dict[Any, Any] | None:
        """What `work` gives; None if it cannot be done in stacks, or something in them raised.

        Then each job is done by itself, which also finds out whose fault an exception was.
        """
        while isinstance(trainer, StackedTrainer):
            try:
                return work()
            except torch.OutOfMemoryError:
                if not trainer.halve():
                    return None
            except Exception as error:
                warnings.warn(
                    f"a stack of tasks failed ({type(error).__name__}: {error}); "
                    "its tasks are done one at a time",
                    stacklevel=2,
                )
                return None
        return None


def _grouped(
    pending: "Mapping[_AnyJob, RunContext]", wanted: type[_JobT]
) -> "Sequence[dict[_JobT, RunContext]]":
    """Jobs of one sort that can be in the same stacks."""
    groups: dict[Any, dict[_JobT, RunContext]] = {}
    for job, context in pending.items():
        if isinstance(job, wanted):
            groups.setdefault((context.kind, _measured(job, context)), {})[job] = context
    return list(groups.values())


def _measured(job: Job, context: RunContext) -> tuple[Any, ...]:
    """What evaluations of one stack have in common besides."""
    if isinstance(job, TrainJob):
        return ()
    return id(context.problem.test.inputs), job.metrics, job.client_metrics


def _tried(work: Callable[[], _T]) -> _T | TaskFailed:
    try:
        return work()
    except TaskFailed as error:
        return error


def _finished(begun: Callable[[], EvalResult] | TaskFailed) -> EvalResult | TaskFailed:
    return begun if isinstance(begun, TaskFailed) else _tried(begun)


def _kind(problem: Problem, settings: LocalSettings) -> tuple[Any, ...]:
    """What tasks of one stack have in common; each has a learning rate of its own."""
    settings = settings.model_copy(update={"rate_decay": 1.0, "rate_decay_steps": 1})
    model: Any = problem.model
    if isinstance(model, partial):
        model = (model.func, repr((model.args, sorted(model.keywords.items()))))
    stored = {(id(samples.inputs), id(samples.targets)) for samples in problem.clients}
    return model, settings, problem.loss, problem.transform, problem.augment, frozenset(stored)
