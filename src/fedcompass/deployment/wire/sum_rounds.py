"""The server's side of secure rounds: one call for each member, from its keys to its shares."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import process_time
from typing import Any

import grpc

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.sum_parts import Begin, parts_of, read_lacking, read_whole
from fedcompass.deployment.wire.visitors import Context, NotAdmitted, Visitor
from fedcompass.errors import MessageRefused, WireError
from fedcompass.secure_aggregation.codec import from_member, most_bytes, to_bytes
from fedcompass.secure_aggregation.messages import (
    KeysAdvertised,
    KeysListed,
    MemberLost,
    PhaseClosed,
    RoundFailed,
    Send,
    ServerEvent,
    SharesRevealed,
    SumOpened,
    ToMember,
)
from fedcompass.secure_aggregation.server_round import ServerRound
from fedcompass.secure_aggregation.terms import Terms
from fedcompass.vocabulary import ClientId, Seconds, TaskId

__all__ = ["RoundResult", "SumRounds"]

_ID_BYTES = 64


@dataclass(frozen=True, slots=True)
class RoundResult:
    """How a round ended.

    lost: tasks whose updates a member says it has no more.
    received, sent: bytes at the server.
    seconds: of CPU at the server.
    """

    end: SumOpened | RoundFailed
    lost: list[TaskId]
    received: int
    sent: int
    seconds: Seconds


@dataclass(eq=False)
class _OpenRound:
    """A round that is under way."""

    machine: ServerRound
    begins: Mapping[ClientId, Begin]
    ids: dict[ClientId, str]  # of the calls that have not come yet
    end: "asyncio.Future[SumOpened | RoundFailed]"
    outgoing: dict[ClientId, "asyncio.Queue[ToMember]"]
    certificates: dict[ClientId, str] = field(default_factory=dict)
    lost: list[TaskId] = field(default_factory=list)
    revealed: set[ClientId] = field(default_factory=set)  # have done their part
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    moved: asyncio.Event = field(default_factory=asyncio.Event)  # another phase, or the end
    received: int = 0
    sent: int = 0
    seconds: Seconds = 0.0

    @property
    def terms(self) -> Terms:
        return self.machine.terms


class SumRounds:
    """Opens rounds one after the other; it keeps nothing of one that is over.

    Args:
        tell: sends a message to a site that is connected; false: it is not.
        notice: is told, in one line, what an operator may want to know.
    """

    def __init__(
        self, tell: Callable[[str, pb.FromServer], bool], notice: Callable[[str], None]
    ) -> None:
        self._tell, self._notice = tell, notice
        self._open: _OpenRound | None = None
        self._losing: set[asyncio.Task[None]] = set()

    async def open(self, begins: Mapping[ClientId, Begin], phase_seconds: Seconds) -> RoundResult:
        """Let the members go through all phases, and say how it ended.

        Args:
            begins: what each member is asked for; the terms are the same for all.
            phase_seconds: those that have not answered after so long are not waited for.
        """
        terms = next(iter(begins.values())).terms
        opened = self._open = _OpenRound(
            ServerRound(terms),
            begins,
            {member: secrets.token_urlsafe(16) for member in terms.members},
            asyncio.get_running_loop().create_future(),
            {member: asyncio.Queue() for member in terms.members},
        )
        try:
            for member, call in list(opened.ids.items()):
                if not self._tell(member, pb.FromServer(sum=pb.SumRound(id=call))):
                    await self._lose(opened, member)
            end = await self._ended(opened, phase_seconds)
        finally:
            self._open = None
        for who, why in end.accused.items():
            self._notice(f"{who}: in merge {terms.merge} of {terms.run}: {why}")
        return RoundResult(end, opened.lost, opened.received, opened.sent, opened.seconds)

    async def _ended(self, opened: _OpenRound, patience: Seconds) -> SumOpened | RoundFailed:
        """Wait for each phase in turn, and close it when its time is up."""
        while not opened.end.done():
            phase = opened.machine.phase
            opened.moved.clear()
            try:
                async with asyncio.timeout(patience):
                    while opened.machine.phase is phase and not opened.end.done():
                        await opened.moved.wait()
                        opened.moved.clear()
            except TimeoutError:
                await self._feed(opened, PhaseClosed(context=opened.terms.context, phase=phase))
        return opened.end.result()

    async def _feed(self, opened: _OpenRound, event: ServerEvent) -> None:
        """Let the machine take in an event, outside the event loop, and pass on what it says."""
        async with opened.one_at_a_time:
            if opened.end.done():
                return
            outputs, seconds = await asyncio.to_thread(_handled, opened.machine, event)
            opened.seconds += seconds
            for output in outputs:
                if isinstance(output, Send):
                    opened.outgoing[output.to].put_nowait(output.message)
                else:
                    opened.end.set_result(output)
            opened.moved.set()

    async def _lose(self, opened: _OpenRound, member: ClientId) -> None:
        await self._feed(opened, MemberLost(context=opened.terms.context, member=member))

    async def serve(self, visitor: Visitor, _: Any, context: Context) -> None:
        """One member's call: what it is asked for, then message for message."""
        opened, member = self._open, visitor.site
        async with asyncio.timeout(30.0):
            first = await read_whole(context.read, _ID_BYTES)
        known = None if opened is None else opened.ids.get(member)
        if opened is None or known is None or first != known.encode():
            raise NotAdmitted(grpc.StatusCode.NOT_FOUND, "there is no sum that waits for this site")
        del opened.ids[member]
        certificate = context.auth_context()["x509_pem_cert"][0].decode()
        await self._send(opened, context, opened.begins[member].to_bytes())
        works = [
            asyncio.create_task(self._speak(opened, member, context)),
            asyncio.create_task(self._listen(opened, member, certificate, context)),
        ]
        try:
            done, _pending = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            for work in done:
                work.result()  # raises what ended it
        except MessageRefused as refused:
            raise WireError(str(refused)) from None
        finally:
            for work in works:
                work.cancel()
            if member not in opened.revealed and not opened.end.done():
                losing = asyncio.create_task(self._lose(opened, member))
                self._losing.add(losing)  # this call may be cancelled any moment
                losing.add_done_callback(self._losing.discard)

    async def _listen(
        self, opened: _OpenRound, member: ClientId, certificate: str, context: Context
    ) -> None:
        """Take in a member's messages until it has revealed its shares or is gone."""
        most = most_bytes(opened.terms)
        while (raw := await read_whole(context.read, most)) is not None:
            opened.received += len(raw)
            tasks = read_lacking(raw)
            if tasks is not None:
                opened.lost += [task for task in tasks if task in opened.begins[member].tasks]
                return
            message = await asyncio.to_thread(from_member, raw, opened.terms, member)
            if isinstance(message, KeysAdvertised):
                opened.certificates[member] = certificate
            await self._feed(opened, message)
            if isinstance(message, SharesRevealed):
                opened.revealed.add(member)
                return

    async def _speak(self, opened: _OpenRound, member: ClientId, context: Context) -> None:
        while True:
            message = await opened.outgoing[member].get()
            beside: dict[str, Any] = {}
            if isinstance(message, KeysListed):
                beside = {"certificates": opened.certificates}
            await self._send(opened, context, to_bytes(message, **beside))
            if isinstance(message, RoundFailed):
                return

    async def _send(self, opened: _OpenRound, context: Context, message: bytes) -> None:
        opened.sent += len(message)
        for part in parts_of(message):
            await context.write(part)


def _handled(machine: ServerRound, event: ServerEvent) -> tuple[list[Any], Seconds]:
    began = process_time()
    outputs = machine.handle(event)
    return list(outputs), process_time() - began
