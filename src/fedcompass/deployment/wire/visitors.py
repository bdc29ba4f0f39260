"""Who is calling: the certificate's fingerprint on the roster, and what each site has open."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import grpc
from cryptography import x509

from fedcompass.deployment.wire.limits import Limits
from fedcompass.deployment.wire.site_roster import RosterFile, fingerprint_of
from fedcompass.vocabulary import Seconds

__all__ = ["Context", "NotAdmitted", "Visitor", "Visitors"]

Context: TypeAlias = Any
"""A grpc.aio.ServicerContext: grpc has no types."""

_NOT_LISTED = "this certificate is not on the server's roster; ask the federation's operator"
_EXPIRED = "this certificate has expired; ask the federation's operator for a new one"


class NotAdmitted(Exception):
    """A call that is refused: the status code and one line."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


@dataclass(eq=False, slots=True)
class Visitor:
    """One call that is under way.

    cut_off: why it is being ended; None: it is not.
    """

    site: str
    fingerprint: str
    expires: datetime
    peer: str  # its TCP connection
    call: "asyncio.Task[object]"
    transfer: bool
    cut_off: str | None = None


class Visitors:
    """The calls that are under way, by site."""

    def __init__(self, roster: RosterFile, limits: Limits) -> None:
        self._file, self._limits = roster, limits
        self._present: set[Visitor] = set()

    def enter(self, certificate: bytes, peer: str, *, transfer: bool) -> Visitor:
        """Let the call of the running task in.

        Raises:
            NotAdmitted: the certificate is not listed or has expired, or the site does too much
                at a time.
        """
        fingerprint = fingerprint_of(certificate)
        expires = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
        site = self._file.roster.names.get(fingerprint)
        why = self._why_not(fingerprint, expires)
        if site is None or why is not None:
            raise NotAdmitted(grpc.StatusCode.PERMISSION_DENIED, why or _NOT_LISTED)
        call = asyncio.current_task()
        assert call is not None
        visitor = Visitor(site, fingerprint, expires, peer, call, transfer)
        self._check_room(visitor)
        self._present.add(visitor)
        return visitor

    def _why_not(self, fingerprint: str, expires: datetime) -> str | None:
        if fingerprint not in self._file.roster.names:
            return _NOT_LISTED
        return _EXPIRED if expires < datetime.now(UTC) else None

    def _check_room(self, new: Visitor) -> None:
        own = [visitor for visitor in self._present if visitor.site == new.site]
        connections = Counter(visitor.peer for visitor in own)
        most = self._limits.site_connections
        if new.peer not in connections and len(connections) >= most:
            raise NotAdmitted(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"site {new.site} has {most} connections open; allowed: {most}. Close some",
            )
        if new.transfer and len(own) > self._limits.transfers:
            raise NotAdmitted(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"site {new.site} has too many transfers open; allowed: {self._limits.transfers}",
            )

    def leave(self, visitor: Visitor) -> None:
        """A call is over."""
        self._present.discard(visitor)

    async def end_all(self, grace: Seconds) -> None:
        """End every call; transfers have so long to end by themselves."""
        if transfers := [visitor.call for visitor in self._present if visitor.transfer]:
            await asyncio.wait(transfers, timeout=grace)
        if left := [visitor.call for visitor in self._present]:
            for call in left:
                call.cancel()
            await asyncio.wait(left, timeout=grace)

    def review(self) -> str | None:
        """End the calls of sites that are admitted no longer; what is wrong with the roster."""
        try:
            return self._file.refresh()
        finally:  # whatever is wrong with the roster: a certificate may have expired
            for visitor in self._present:
                why = self._why_not(visitor.fingerprint, visitor.expires)
                if why is not None and visitor.cut_off is None:
                    visitor.cut_off = why
                    visitor.call.cancel()
