"""No training at all: every update is zero. For looking at schedules and what they cost."""

from typing import overload

from fedcompass.aggregation.layout import FlatState
from fedcompass.simulation.executors.protocol import (
    EvalJob,
    EvalResult,
    Executor,
    Job,
    TrainJob,
    TrainResult,
)

__all__ = ["NoTraining"]


class NoTraining(Executor):
    """An `Executor` that answers at once with an update that changes nothing."""

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
