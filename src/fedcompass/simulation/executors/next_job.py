"""Which of the waiting jobs a free worker gets."""

from collections.abc import Iterable

from fedcompass.simulation.executors.protocol import EvalJob, Job, TrainJob
from fedcompass.vocabulary import Seconds

__all__ = ["next_job"]

_NEAR = 0.05
"""Arrivals closer than this share of the time until then count as equally urgent."""


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
