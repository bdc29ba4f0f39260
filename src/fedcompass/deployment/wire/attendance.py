"""Which sites are connected: one stream each, heartbeats up, tasks down."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import grpc

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.decoding import WIRE_PROTOCOL, read_from_site
from fedcompass.deployment.wire.limits import Limits
from fedcompass.deployment.wire.visitors import Context, NotAdmitted, Visitor
from fedcompass.errors import WireError
from fedcompass.vocabulary import Seconds

__all__ = ["REMARKS", "Attendance", "Session"]

SECOND, ANEW = REMARKS = ("second process", "connected anew")
"""What the audit is to say about a site: that two processes have its certificate, or another one
than before."""

_STOP_ONE = "stop one of them; if nobody at the site knows both, its key was copied: revoke-site"
_BREATH: Seconds = 0.05  # between two messages of a stream: no site keeps the server busy


@dataclass(eq=False, slots=True)
class Session:
    """A site that is connected."""

    site: str
    hello: pb.Hello
    call: "asyncio.Task[object]"
    address: str  # where it connects from
    outgoing: "asyncio.Queue[pb.FromServer]" = field(default_factory=asyncio.Queue)
    replaced: bool = False  # the same process has connected anew
    rival: "Session | None" = None  # another process, which was turned away meanwhile


class Attendance:
    """The streams of the sites; `on_connect` is what a site is told first when it connects.

    `notice` is told about a site in one line, `remark` what the audit should say about it. The rest
    is as of `FederationService`.
    """

    def __init__(
        self,
        layout: str,
        on_connect: Callable[[str], list[pb.FromServer]],
        limits: Limits,
        notice: Callable[[str, str], None],
        remark: Callable[[str, str, str], None],
        changed: Callable[[], None],
        departed: "Callable[[Session], None]",
    ) -> None:
        self.sites: dict[str, Session] = {}  # connected now
        self._layout, self._on_connect, self._limits = layout, on_connect, limits
        self._notice, self._remark = notice, remark
        self._changed, self._departed = changed, departed
        self._newest: dict[str, Session] = {}  # of each site, also of one that has gone
        self._rivals: dict[str, str] = {}  # by site: a process that lived beside another

    def tell(self, site: str, message: pb.FromServer) -> bool:
        """Send a site a message; false: it is not connected."""
        session = self.sites.get(site)
        if session is not None:
            session.outgoing.put_nowait(message)
        return session is not None

    async def attend(self, visitor: Visitor, _: Any, context: Context) -> None:
        """Serve a site's stream until either side ends it."""
        hello = await self._hello(visitor.site, context)
        where = unquote(visitor.peer.partition(":")[2])  # ipv4:10.0.0.5:4242, ipv6:%5B::1%5D:4242
        session = Session(visitor.site, hello, visitor.call, where)
        self._replace(session)
        if session.hello.leaving:  # it is given nothing more, but hears what is still open
            self._notice(session.site, f"{session.site} takes no part: {session.hello.leaving}")
            self._departed(session)
        else:
            self._tell_of_another(session)
            self.sites[session.site] = self._newest[session.site] = session
            self._changed()
        speaking = asyncio.create_task(self._speak(session, context))
        try:
            await self._listen(session, context)
        except asyncio.CancelledError:
            if not session.replaced:
                raise
            visitor.call.uncancel()
        finally:
            speaking.cancel()
            if self.sites.get(session.site) is session:
                del self.sites[session.site]
                self._changed()

    async def _hello(self, site: str, context: Context) -> pb.Hello:
        async with asyncio.timeout(self._limits.silence):
            raw = await context.read()
        first = read_from_site(b"" if raw is grpc.aio.EOF else raw)
        if first.WhichOneof("kind") != "hello":
            raise WireError("the first message is no hello; use the same version on both sides")
        why = self._mismatch(first.hello)
        if why is not None:
            self._notice(site, f"{site}: {why}")
            raise NotAdmitted(grpc.StatusCode.FAILED_PRECONDITION, why)
        return first.hello

    def _mismatch(self, hello: pb.Hello) -> str | None:
        if hello.protocol != WIRE_PROTOCOL:
            return (
                f"the site speaks protocol {hello.protocol}, this server {WIRE_PROTOCOL}; "
                "use the same version of fedcompass on both"
            )
        if hello.layout != self._layout:
            return (
                "the site's model has other names, shapes or dtypes than the server's; "
                "use the same app.py on both"
            )
        return None

    def _replace(self, new: Session) -> None:
        """End the site's older stream if it is of the same process; else refuse the newer one."""
        old = self.sites.get(new.site)
        if old is None:
            return
        if old.hello.process != new.hello.process:
            told = f"{new.site}: a second process has connected with its certificate"
            self._notice(new.site, told)
            old.rival = new
            raise NotAdmitted(
                grpc.StatusCode.ALREADY_EXISTS,
                f"another process is connected as {new.site}; stop it, or wait until its "
                "connection is found dead",
            )
        old.replaced = True
        old.call.cancel()

    def _tell_of_rival(self, session: Session) -> None:
        """Say that a second process was turned away, now that the first is found to be alive."""
        rival, session.rival = session.rival, None
        if rival is not None:
            self._rivals[session.site] = rival.hello.process
            connected = f"the one that is connected is from {session.address}"
            why = f"from {rival.address}, turned away; {connected}; {_STOP_ONE}"
            self._remark(SECOND, session.site, why)

    def _tell_of_another(self, new: Session) -> None:
        """Say it if this is another process than the one before: a restart, or a copy."""
        before = self._newest.get(new.site)
        if before is None or before.hello.process == new.hello.process:
            return
        why = f"from {new.address}; the one before it was from {before.address}"
        if self._rivals.get(new.site) == new.hello.process:
            self._remark(SECOND, new.site, f"{why}, whose place it has taken; {_STOP_ONE}")
        else:
            self._remark(ANEW, new.site, f"another process, {why}")

    async def _listen(self, session: Session, context: Context) -> None:
        """Take in heartbeats until the site leaves or is silent for too long."""
        while True:
            async with asyncio.timeout(self._limits.silence):
                raw = await context.read()
            if raw is grpc.aio.EOF:
                return
            self._tell_of_rival(session)
            beat = read_from_site(raw).WhichOneof("kind") == "heartbeat"
            if beat and session.outgoing.empty():  # else it hears from us anyway
                session.outgoing.put_nowait(pb.FromServer(heartbeat=pb.Heartbeat()))
            await asyncio.sleep(_BREATH)

    async def _speak(self, session: Session, context: Context) -> None:
        """Send the welcome, what the site has not answered, and then what comes up."""
        welcome = pb.Welcome(protocol=WIRE_PROTOCOL, site=session.site)
        first = [pb.FromServer(welcome=welcome), *self._on_connect(session.site)]
        for message in first:
            await context.write(message.SerializeToString())
        while True:
            message = await session.outgoing.get()
            await context.write(message.SerializeToString())
