"""Where connections hand in tasks and the trainer takes them: one at a time, the newest wins."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeAlias

from fedcompass.deployment.site.worker_frames import Frame
from fedcompass.deployment.wire.messages import Arrays
from fedcompass.errors import FedcompassError, WorkerRefused
from fedcompass.vocabulary import Steps, TaskId

__all__ = ["SubmittedTask", "TaskQueue", "TaskKey"]

TaskKey: TypeAlias = tuple[str, TaskId]
"""The run and the task's number in it."""


@dataclass(eq=False, slots=True)
class SubmittedTask:
    """A task that was handed in.

    answer: resolved once, with the frame to send back or the reason there is none.
    stop: set when the training is to end after the present step.
    """

    key: TaskKey
    steps: Steps
    version: int
    arrays: Arrays
    answer: "Future[Frame]" = field(default_factory=Future)
    stop: threading.Event = field(default_factory=threading.Event)


class TaskQueue:
    """Holds at most one task in training, one that waits, and the last answer.

    The server gives a site one task at a time. So a task that is handed in again is the same task,
    and gets the same answer; another one means that the server has given the earlier one up, and
    the earlier one is stopped early.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._current: SubmittedTask | None = None
        self._waiting: SubmittedTask | None = None
        self._last: SubmittedTask | None = None  # the last one that was answered well
        self._closed = False

    def submit(self, job: SubmittedTask) -> "Future[Frame]":
        """Where the task's answer will be.

        Raises:
            WorkerRefused: the worker is stopping, or has a newer task of the same run.
        """
        with self._changed:
            if self._closed:
                raise WorkerRefused("the worker is stopping; ask again when it is back")
            for known in (self._last, self._current, self._waiting):
                if known is not None and known.key == job.key:
                    return known.answer
            for known in (self._current, self._waiting):
                if known is not None and known.key[0] == job.key[0] and known.key > job.key:
                    raise WorkerRefused(
                        f"task {job.key[1]} is older than task {known.key[1]}, which is in hand"
                    )
            self._replace(job)
            return job.answer

    def _replace(self, job: SubmittedTask) -> None:
        if self._current is not None:
            self._current.stop.set()
        if self._waiting is not None:
            newer = f"task {self._waiting.key[1]} was replaced by task {job.key[1]}"
            self._waiting.answer.set_exception(WorkerRefused(newer))
        self._waiting = job
        self._changed.notify_all()

    def take(self) -> SubmittedTask | None:
        """The next task, as soon as there is one; None once it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting is not None)
            if self._closed:
                return None
            self._current, self._waiting = self._waiting, None
            return self._current

    def answer(self, job: SubmittedTask, carry_out: Callable[[], Frame]) -> None:
        """Resolve a task that was taken with what its carrying out gives or raises."""
        try:
            frame = carry_out()
        except FedcompassError as error:
            self._put_away(job, remember=False)
            job.answer.set_exception(error)
        except BaseException as error:  # the process ends; whoever waits must not wait for that
            reason = f"the worker ends with {type(error).__name__}: {error}"
            job.answer.set_exception(WorkerRefused(" ".join(reason.split())))
            raise
        else:
            self._put_away(job, remember=True)
            job.answer.set_result(frame)

    def _put_away(self, job: SubmittedTask, *, remember: bool) -> None:
        with self._changed:
            self._current = None
            job.arrays = {}  # the start model is not needed again
            if remember:
                self._last = job

    def close(self) -> None:
        """Take nothing more; the task in training ends early, one that waits is refused."""
        with self._changed:
            self._closed = True
            if self._current is not None:
                self._current.stop.set()
            if self._waiting is not None:
                self._waiting.answer.set_exception(WorkerRefused("the worker is stopping"))
                self._waiting = None
            self._changed.notify_all()
