"""How much and how slowly a site may send, and how long silence may last; pure."""

from dataclasses import dataclass

from fedcompass.vocabulary import Seconds

__all__ = ["Limits", "Transfer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the wire allows.

    heartbeat: how often each side says that it is there.
    silence: without a word for so long the other side is gone.
    stall: the longest wait for one piece of a transfer.
    grace: how long a transfer may be slower than `least_rate`.
    least_rate: bytes per second that a transfer has to make on the whole.
    transfers: uploads and downloads of one site at a time.
    site_connections: TCP connections over which one certificate may make calls at a time.
    connections: TCP connections of all, those in the TLS handshake among them; fewer where the
        process may not have twice as many files open.
    handshake: the longest TLS handshake.
    """

    heartbeat: Seconds = 5.0
    silence: Seconds = 20.0
    stall: Seconds = 60.0
    grace: Seconds = 30.0
    least_rate: float = 8 * 1024.0
    transfers: int = 4
    site_connections: int = 4
    connections: int = 1024
    handshake: Seconds = 5.0


@dataclass(slots=True)
class Transfer:
    """One transfer, and how slow it may be; it is told the time.

    began: when it started.
    moved: bytes since then.
    """

    limits: Limits
    began: Seconds
    moved: int = 0

    def seconds_allowed(self, now: Seconds) -> Seconds:
        """How long the next piece may take; 0 or less: the transfer is too slow as it is."""
        earned = self.limits.grace + self.moved / self.limits.least_rate
        return min(self.limits.stall, self.began + earned - now)
