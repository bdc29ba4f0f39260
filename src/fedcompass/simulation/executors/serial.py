"""In the simulation's own process: one job at a time, when its result is due; or no training."""

from typing import overload

import torch

from fedcompass.aggregation.layout import FlatState
from fedcompass.settings.training import LocalSettings
from fedcompass.simulation.executors.one_job import (
    evaluate_one,
    one_thread,
    train_one,
)
from fedcompass.simulation.executors.protocol import (
    EvalJob,
    EvalResult,
    Executor,
    Job,
    TrainJob,
    TrainResult,
)
from fedcompass.training.local import LocalTrainer
from fedcompass.training.problem import Problem

__all__ = ["NoTraining", "SerialExecutor"]


class SerialExecutor(Executor):
    """An `Executor` without processes; needs two models of memory, works anywhere."""

    def __init__(
        self,
        problem: Problem,
        settings: LocalSettings,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.trainer = LocalTrainer(problem, settings, seed, device)
        self._update: FlatState | None = None  # reused by one result after the other

    @overload
    def result(self, job: TrainJob) -> TrainResult: ...
    @overload
    def result(self, job: EvalJob) -> EvalResult: ...
    def result(self, job: Job) -> TrainResult | EvalResult:
        """Carry out the job now."""
        with one_thread():
            if isinstance(job, EvalJob):
                return evaluate_one(self.trainer, job)
            if self._update is None:
                self._update = self.trainer.layout.empty(job.start.trainable.device)
            return train_one(self.trainer, job, self._update)

    def close(self) -> None:
        """Forget the update."""
        self._update = None


class NoTraining(Executor):
    """An `Executor` that answers at once with an update that changes nothing.

    For looking at schedules and what they cost.
    """

    def __init__(self) -> None:
        self._zero: FlatState | None = None

    @overload
    def result(self, job: TrainJob) -> TrainResult: ...
    @overload
    def result(self, job: EvalJob) -> EvalResult: ...
    def result(self, job: Job) -> TrainResult | EvalResult:
        """Zeros, or the very model the client got where it sends models."""
        if isinstance(job, EvalJob):
            return EvalResult(metrics=dict.fromkeys(job.metrics, 0.0), seconds=0.0)
        if self._zero is None:
            self._zero = job.start.clone()
            self._zero.trainable.zero_()
        update = self._zero if job.payload == "delta" else job.start
        return TrainResult(update=update, steps=job.steps, seconds=0.0)
