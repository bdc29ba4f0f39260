"""How much and how slowly a site may send, how long silence may last, how much is said; pure."""

from collections.abc import Callable
from dataclasses import dataclass

from fedcompass.vocabulary import Seconds

__all__ = ["Limits", "Notices", "Transfer"]

_AT_ONCE = 5  # lines about a site that are said as they come
_BETWEEN: Seconds = 60.0  # lines about it after these


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


@dataclass(slots=True)
class _Said:
    """About one site.

    room: lines that may be said, at `at`.
    unsaid: lines since the last that was said, and the newest of them.
    """

    room: float
    at: Seconds
    unsaid: int = 0
    newest: str = ""


class Notices:
    """Lines about sites: of each some as they come, then one a minute, with a count of the others.

    What a site can cause as often as it likes must not fill the disk. It is told the time; `say`
    gets a site and a line.
    """

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say
        self._sites: dict[str, _Said] = {}

    def about(self, site: str, line: str, now: Seconds) -> None:
        """Say a line about a site, now or in a count."""
        said = self._sites.setdefault(site, _Said(_AT_ONCE, now))
        said.unsaid, said.newest = said.unsaid + 1, line
        self._catch_up(site, said, now)

    def catch_up(self, now: Seconds) -> None:
        """Say what was left out, once there is room for it."""
        for site, said in self._sites.items():
            self._catch_up(site, said, now)

    def _catch_up(self, site: str, said: _Said, now: Seconds) -> None:
        said.room = min(_AT_ONCE, said.room + (now - said.at) / _BETWEEN)
        said.at = now
        if said.unsaid and said.room >= 1:
            others = said.unsaid - 1
            more = (
                f" (lines about {site} left out since the one before: {others})" if others else ""
            )
            self._say(site, said.newest + more)
            said.room, said.unsaid = said.room - 1, 0
