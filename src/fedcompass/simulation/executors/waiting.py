"""Jobs that no worker has yet, and which of them goes next."""

from fedcompass.simulation.executors.protocol import EvalJob, Job, TrainJob
from fedcompass.vocabulary import Seconds

__all__ = ["WaitingJobs"]

_NEAR = 0.05
"""Arrivals closer than this share of the time until then count as equally urgent."""


class WaitingJobs:
    """Picks what the simulation will ask for first, and among near-equals the longest.

    The longest first, because jobs due together (an arrival group, a round) end sooner that way.
    Evaluations give way to training, up to a number, since each keeps a model in memory.
    """

    def __init__(self, most_evaluations: int) -> None:
        self._training: dict[int, TrainJob] = {}
        self._evaluations: dict[int, EvalJob] = {}
        self._most_evaluations = most_evaluations
        self._now: Seconds = 0.0  # virtual time of the last result asked for
        self._asked_for: int | None = None

    def __len__(self) -> int:
        return len(self._training) + len(self._evaluations)

    def __contains__(self, key: int | None) -> bool:
        return key in self._training or key in self._evaluations

    def add(self, job: Job) -> None:
        """Take in a job."""
        if isinstance(job, TrainJob):
            self._training[job.key] = job
        else:
            self._evaluations[job.key] = job

    def ask_for(self, job: Job) -> None:
        """Let a job go first: its result is waited for."""
        self._asked_for = job.key
        if isinstance(job, TrainJob):
            self._now = max(self._now, job.needed_at)

    def remove(self, key: int) -> Job:
        """Take out a certain job."""
        return self._training.pop(key) if key in self._training else self._evaluations.pop(key)

    def pop(self) -> Job:
        """Take out the job that should go next."""
        if self._asked_for is not None and self._asked_for in self:
            return self.remove(self._asked_for)
        if not self._training or len(self._evaluations) > self._most_evaluations:
            return self._evaluations.pop(next(iter(self._evaluations)))
        first = min(job.needed_at for job in self._training.values())
        near = first + _NEAR * max(first - self._now, 0.0)
        candidates = (job for job in self._training.values() if job.needed_at <= near)
        return self._training.pop(max(candidates, key=lambda job: job.steps).key)
