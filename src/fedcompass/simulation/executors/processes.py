"""Training ahead of time in worker processes, one torch thread each, models in shared memory."""

import os
import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn, Self, assert_never, overload

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.errors import SettingsError, TaskFailed
from fedcompass.settings.training import LocalSettings
from fedcompass.simulation.executors.crew import Crew, WorkerDied
from fedcompass.simulation.executors.orders import order_record
from fedcompass.simulation.executors.protocol import (
    EvalJob,
    EvalResult,
    Job,
    TrainJob,
    TrainResult,
)
from fedcompass.simulation.executors.shared import SharedMemory, SharedStates
from fedcompass.simulation.executors.shipping import pack
from fedcompass.simulation.executors.waiting import WaitingJobs
from fedcompass.simulation.executors.worker import (
    Failed,
    Measured,
    Report,
    Started,
    Took,
    Trained,
)
from fedcompass.simulation.executors.zygote import IN_WORKER
from fedcompass.training.bound import build_module
from fedcompass.training.problem import Problem

__all__ = ["ProcessesExecutor"]


@dataclass(frozen=True, slots=True)
class _Handed:
    """A job that is with the workers, the slot of its start and the slot for its update."""

    job: Job
    start: int
    out: int | None


class ProcessesExecutor:
    """An `Executor` that trains every job in flight in parallel, the most urgent first.

    Memory beside the problem: a model per unclaimed result and two per worker, plus what each
    worker trains with. To be used from one thread.
    """

    def __init__(
        self, problem: Problem, settings: LocalSettings, seed: int, workers: int | None = None
    ) -> None:
        workers = _checked(workers)
        self.layout = Layout.of(build_module(problem, seed))
        goods = SharedMemory()
        parcel = pack((problem, settings, seed), goods)
        self._states = SharedStates(self.layout)
        self._starts = _StartSlots(self._states)
        self._crew = Crew(workers, parcel, self._states.memory.descriptor, goods.descriptor)
        self._shut_down = weakref.finalize(self, _shut_down, self._crew, self._states, goods)
        self._waiting = WaitingJobs(most_evaluations=2 * workers)
        self._handed: dict[int, _Handed] = {}
        self._finished: dict[int, TrainResult | EvalResult | TaskFailed] = {}
        self._updates: dict[int, int] = {}  # finished job -> the slot of its update
        self._discarded: set[int] = set()  # handed jobs whose result nobody wants
        self._lent: int | None = None  # the job whose update the caller may be reading
        self._over: TaskFailed | None = None  # why no more jobs are taken

    def submit(self, job: Job) -> None:
        """Hand the job to a worker, or keep it until one has room."""
        self._waiting.add(job)
        self._exchange(block=False)

    @overload
    def result(self, job: TrainJob) -> TrainResult: ...
    @overload
    def result(self, job: EvalJob) -> EvalResult: ...
    def result(self, job: Job) -> TrainResult | EvalResult:
        """Wait for the job; it goes first if no worker has it yet."""
        self._end_loan()
        self._hurry(job)
        while job.key not in self._finished:
            self._exchange(block=True)
        outcome = self._finished.pop(job.key)
        if isinstance(outcome, TaskFailed):
            raise outcome
        if isinstance(job, TrainJob):
            self._lent = job.key
        return outcome

    def release(self, job: TrainJob) -> None:
        """Let the slot of the job's update be used again."""
        if self._lent == job.key:
            self._end_loan()

    def discard(self, job: Job) -> None:
        """Drop a job that waits; one that is being trained is dropped when it is done."""
        if job.key in self._waiting:
            self._waiting.remove(job.key)
        elif job.key in self._handed:
            self._discarded.add(job.key)
        elif self._finished.pop(job.key, None) is not None:
            self._free_update(job.key)

    def close(self) -> None:
        """End the workers at once."""
        self._over = self._over or TaskFailed("the executor is closed; make a new one")
        self._shut_down()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _hurry(self, job: Job) -> None:
        if isinstance(job, TrainJob):
            self._waiting.now = max(self._waiting.now, job.needed_at)
        if job.key in self._waiting:
            if self._over is None:
                self._hand_out(self._waiting.remove(job.key))
        elif job.key not in self._handed and job.key not in self._finished:
            raise ValueError(f"job {job.key} was not submitted, or its result was taken already")

    def _exchange(self, *, block: bool) -> None:
        """Hand out what there is room for and take in what has come."""
        if self._over is not None:
            raise self._over
        self._feed()
        try:
            for report in self._crew.reports(block=block):
                self._take_in(report)
        except WorkerDied as death:
            self._fail(_obituary(death, self._handed))
        self._feed()

    def _feed(self) -> None:
        while len(self._waiting) and len(self._handed) < self._crew.capacity:
            self._hand_out(self._waiting.pop())

    def _hand_out(self, job: Job) -> None:
        trains = isinstance(job, TrainJob)
        start = self._starts.acquire(job.start if isinstance(job, TrainJob) else job.state)
        out = self._states.take() if trains else None
        self._handed[job.key] = _Handed(job, start, out)
        self._crew.hand_out(order_record(job, start, out))

    def _take_in(self, report: Report) -> None:
        match report:
            case Started() | Took():
                pass
            case Trained():
                self._on_trained(report)
            case Measured():
                self._end_job(report.key)
                self._finish(report.key, report.result)
            case Failed():
                self._on_failed(report)
            case _:
                assert_never(report)

    def _on_trained(self, report: Trained) -> None:
        handed = self._end_job(report.key)
        assert isinstance(handed.job, TrainJob)
        assert handed.out is not None
        self._updates[report.key] = handed.out
        update, steps = self._states[handed.out], handed.job.steps
        self._finish(report.key, TrainResult(update=update, steps=steps, seconds=report.seconds))

    def _on_failed(self, report: Failed) -> None:
        error = TaskFailed(report.message)
        error.add_note(report.trace)
        if report.key is None:
            self._fail(error)
        handed = self._end_job(report.key)
        if handed.out is not None:
            self._states.give_back(handed.out)
        self._finish(report.key, error)

    def _end_job(self, key: int) -> _Handed:
        handed = self._handed.pop(key)
        self._starts.release(handed.start)
        return handed

    def _finish(self, key: int, outcome: TrainResult | EvalResult | TaskFailed) -> None:
        if key in self._discarded:
            self._discarded.remove(key)
            self._free_update(key)
        else:
            self._finished[key] = outcome

    def _end_loan(self) -> None:
        if self._lent is not None:
            self._free_update(self._lent)
        self._lent = None

    def _free_update(self, key: int) -> None:
        slot = self._updates.pop(key, None)
        if slot is not None:
            self._states.give_back(slot)

    def _fail(self, error: TaskFailed) -> NoReturn:
        self._over = error
        self._shut_down()
        raise error


class _StartSlots:
    """Slots that hold start models; jobs that start from the same object share one."""

    def __init__(self, states: SharedStates) -> None:
        self._states = states
        self._by_state: dict[int, int] = {}  # id of a state -> its slot
        self._users: dict[int, int] = {}  # slot -> how many handed jobs start from it
        self._held: dict[
            int, FlatState
        ] = {}  # slot -> its state, held so that its id stays its own

    def acquire(self, state: FlatState) -> int:
        """The slot that holds a state, written now if none does."""
        slot = self._by_state.get(id(state))
        if slot is None:
            slot = self._by_state[id(state)] = self._states.take()
            self._states[slot].copy_(state)
            self._held[slot], self._users[slot] = state, 0
        self._users[slot] += 1
        return slot

    def release(self, slot: int) -> None:
        """One job less starts from the slot; the last one frees it."""
        self._users[slot] -= 1
        if self._users[slot] == 0:
            del self._by_state[id(self._held.pop(slot))], self._users[slot]
            self._states.give_back(slot)


def _checked(workers: int | None) -> int:
    if IN_WORKER in os.environ:
        raise SettingsError(
            "a worker process that imports your script would start workers of its own; put the "
            "lines that run the simulation under: if __name__ == '__main__':"
        )
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if workers < 1:
        raise SettingsError(f"workers is {workers}; allowed: a whole number at least 1")
    return workers


def _obituary(death: WorkerDied, handed: dict[int, _Handed]) -> TaskFailed:
    job = handed[death.key].job if death.key in handed else None
    match job:
        case TrainJob():
            doing = f"training client {job.client}, local round {job.local_round}"
        case EvalJob():
            doing = "evaluating the model"
        case _:
            doing = "idle or starting"
    return TaskFailed(
        f"worker process {death.pid or '(not started)'} died while {doing}: it was killed or ran "
        "out of memory; free some or use fewer workers, then run again"
    )


def _shut_down(crew: Crew, states: SharedStates, goods: SharedMemory) -> None:
    crew.close()
    states.close()
    goods.close()
