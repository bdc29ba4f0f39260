"""Estimating how fast a client is: seconds per step, and the fixed cost of a task beside it."""

from math import floor

from pydantic import Field

from fedcompass.settings import Settings
from fedcompass.vocabulary import Seconds, Steps, fact

__all__ = ["INSTANT", "Pace", "PaceSettings", "observed"]

INSTANT: Seconds = 1e-6
"""Instants closer than this are equal, and this fraction of a step counts as the whole step.

Paces such as 2/3 must not turn 50 steps into 49, nor an arrival on time into a late one.
"""

_FASTEST: Seconds = 1e-9
"""A pace is never below this, so that an answer in no time at all does not divide by zero."""


class PaceSettings(Settings):
    """How a client's pace is estimated from its answers."""

    newest_weight: float = Field(default=1.0, gt=0, le=1)
    """Weight of the newest answer in an exponential average; 1, the paper: only the last counts."""

    overhead_aware: bool = False
    """Model a task as overhead + steps x pace where the driver reports compute time apart."""


@fact
class Pace:
    """What a client's tasks cost: `overhead` once and `seconds_per_step` for every step."""

    seconds_per_step: Seconds  # S
    overhead: Seconds

    def seconds_for(self, steps: Steps) -> Seconds:
        """How long a task of so many steps is expected to take."""
        return self.overhead + steps * self.seconds_per_step

    def steps_within(self, seconds: Seconds) -> Steps:
        """How many steps are expected to fit; negative if not even the overhead does."""
        return floor((seconds - self.overhead) / self.seconds_per_step + INSTANT)


def observed(
    settings: PaceSettings,
    previous: Pace | None,
    steps: Steps,
    elapsed: Seconds,
    compute_seconds: Seconds | None,
) -> Pace:
    """The estimate after one more answer of `steps` steps that took `elapsed` seconds in all.

    An impossible compute time (negative, not a number, longer than the task took) is ignored:
    `elapsed`, which the driver measured, counts instead.
    """
    if settings.overhead_aware and compute_seconds is not None and 0 <= compute_seconds <= elapsed:
        seconds_per_step = max(compute_seconds / steps, _FASTEST)
        overhead = elapsed - compute_seconds
    else:
        seconds_per_step = max(elapsed / steps, _FASTEST)
        overhead = 0.0
    newest = settings.newest_weight
    if previous is None or newest == 1.0:
        return Pace(seconds_per_step=seconds_per_step, overhead=overhead)
    return Pace(
        seconds_per_step=newest * seconds_per_step + (1 - newest) * previous.seconds_per_step,
        overhead=newest * overhead + (1 - newest) * previous.overhead,
    )
