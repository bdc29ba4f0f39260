"""Training in the simulation's own process, one job at a time, when its result is due."""

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

__all__ = ["SerialExecutor"]


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
