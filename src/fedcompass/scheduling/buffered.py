"""FedBuff's schedule: every K answers are merged; nobody waits."""

from pydantic import Field

from fedcompass.scheduling.immediate import Immediate
from fedcompass.scheduling.policy import FixedStepsSettings

__all__ = ["BufferedSettings", "buffered"]


class BufferedSettings(FixedStepsSettings):
    """FedBuff's schedule."""

    buffer_size: int = Field(default=10, ge=1)
    """K: answers per merge."""


def buffered(settings: BufferedSettings) -> Immediate:
    """K updates, one new version (FedBuff); with K = 1 it is FedAsync's schedule."""
    return Immediate(settings, merge_after=settings.buffer_size)
