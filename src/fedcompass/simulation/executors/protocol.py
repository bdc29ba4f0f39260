"""Jobs a simulation hands out, and what it may expect of whoever carries them out.

In virtual time a task's result is needed only when its arrival is due, so an executor may train it
at any moment between `submit` and `result`. Who trains, when and where never changes a bit.
"""

from dataclasses import dataclass, field
from typing import Protocol, Self, TypeAlias, overload

from fedcompass.aggregation.layout import FlatState
from fedcompass.errors import SettingsError
from fedcompass.privacy.account import PrivacyPlan
from fedcompass.settings.aggregation import Payload
from fedcompass.vocabulary import Seconds, Steps

__all__ = [
    "EvalJob",
    "EvalResult",
    "Executor",
    "Job",
    "TrainJob",
    "TrainResult",
    "check_options",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainJob:
    """One local round of one client.

    key: unique among all jobs of the executor.
    client: the client's number in the problem.
    local_round: how many rounds it has done before.
    start: the model to start from; unchanged until the result is there. Jobs with the very same
        object share its copy in the workers' memory.
    needed_at: virtual time of its arrival; jobs are trained in about this order.
    steps_before: how many steps the client was given before; decays its learning rate, and says
        where its epoch goes on.
    privacy: train by DP-SGD with this noise; None: plainly.
    """

    key: int
    client: int
    local_round: int
    steps: Steps
    start: FlatState
    payload: Payload
    needed_at: Seconds
    steps_before: Steps = 0
    privacy: PrivacyPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvalJob:
    """One measurement of a model.

    key: unique among all jobs of the executor.
    state: the model; unchanged until the result is there.
    metrics: what to measure on the test set.
    client_metrics: what to measure on each client's samples; nothing by default.
    """

    key: int
    state: FlatState
    metrics: tuple[str, ...]
    client_metrics: tuple[str, ...] = ()


Job: TypeAlias = TrainJob | EvalJob


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainResult:
    """What the client sends.

    update: valid until the next call of `result`.
    seconds: time the training took, for the record of a run; it decides nothing.
    """

    update: FlatState
    steps: Steps
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """What was measured: by metric on the test set, and by client and metric if that was asked."""

    metrics: dict[str, float]
    by_client: tuple[dict[str, float], ...] = field(default=())
    seconds: Seconds


class Executor(Protocol):
    """Carries out jobs. Every job submitted is either asked for with `result` or discarded.

    Only `result` has to be written; what an executor need not do, it inherits.
    """

    @overload
    def result(self, job: TrainJob) -> TrainResult: ...
    @overload
    def result(self, job: EvalJob) -> EvalResult: ...
    def result(self, job: Job) -> TrainResult | EvalResult:
        """Wait for a job's result; it can be asked for once.

        Raises:
            TaskFailed: the job raised, or the process that had it died.
        """

    def submit(self, job: Job) -> None:
        """Take in a job; it may start at once."""
        return

    def discard(self, job: Job) -> None:
        """Say that a submitted job's result will not be asked for."""
        return

    def close(self) -> None:
        """Stop at once and free everything; a second call does nothing."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_options(executor: object, device: str, max_stack: int | None) -> None:
    """Refuse a device or a stack that an executor, by its name or of one's own, does not have.

    Raises:
        SettingsError: naming it.
    """
    if max_stack is not None and (executor != "stacked" or max_stack < 1):
        raise SettingsError(
            f"max_stack is {max_stack}; allowed: at least 1, and with the stacked executor only"
        )
    if device != "cpu" and executor not in ("serial", "stacked"):
        raise SettingsError(f"device is {device!r}; that goes with serial or stacked only")
