"""Secure aggregation: whether the server sees updates or only their sums."""

from typing import Literal

from pydantic import Field

from fedcompass.settings import Settings

__all__ = ["SecureSettings"]


class SecureSettings(Settings):
    """Whether merges are sums of masked updates, and how values become integers."""

    enabled: bool = False
    """The server sees only sums of updates of three clients or more (docs/privacy.md)."""

    bits: Literal[32, 64] = 32
    """Of an integer; 64 doubles the bytes and makes the rounding negligible."""

    clip: float = Field(default=1.0, ge=1e-6, le=1e6)
    """No value of an update times its weight may be larger than this."""

    phase_seconds: float = Field(default=30.0, gt=0)
    """A federation waits so long for each message of a site in a round, then goes on without."""
