"""The server's side of secure rounds: one call for each member, from its keys to its shares."""

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from time import process_time
from typing import Any

import grpc

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.short_texts import one_line
from fedcompass.deployment.wire.sum_parts import Begin, parts_of, read_lacking, read_whole
from fedcompass.deployment.wire.visitors import Context, NotAdmitted, Visitor
from fedcompass.errors import MessageRefused, WireError
from fedcompass.secure_aggregation.message_codec import from_member, most_bytes, to_bytes
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
from fedcompass.vocabulary import ClientId, Seconds, TaskId

__all__ = ["RoundResult", "SumRound"]

_ID_BYTES = 64


@dataclass(frozen=True, slots=True)
class RoundResult:
    """How a round ended.

    lost: tasks whose updates no other sum will have: their members say that they have them no
        more, or have revealed shares of a sum that failed.
    received, sent: bytes at the server.
    seconds: of CPU at the server.
    accused: who sent something wrong, and what.
    among: of a sum that failed: one of these was wrong; empty: nobody was, as far as can be told.
    """

    end: SumOpened | RoundFailed
    lost: list[TaskId]
    received: int
    sent: int
    seconds: Seconds
    accused: Mapping[ClientId, str] = field(default_factory=dict)
    among: Collection[ClientId] = ()


class SumRound:
    """One round, from when its members are asked until it has ended.

    Args:
        begins: what each member is asked for; the terms are the same for all.
        tell: sends a message to a site that is connected; false: it is not.
        notice: is told about a member, in one line, what an operator may want to know.
    """

    def __init__(
        self,
        begins: Mapping[ClientId, Begin],
        tell: Callable[[str, pb.FromServer], bool],
        notice: Callable[[str, str], None],
    ) -> None:
        self._begins, self._tell, self._notice = begins, tell, notice
        terms = self._terms = next(iter(begins.values())).terms
        self._machine = ServerRound(terms)
        # Of the calls that have not come yet.
        self._ids = {member: secrets.token_urlsafe(16) for member in terms.members}
        self._end: asyncio.Future[SumOpened | RoundFailed] = (
            asyncio.get_running_loop().create_future()
        )
        self._outgoing: dict[ClientId, asyncio.Queue[ToMember]] = {
            member: asyncio.Queue() for member in terms.members
        }
        self._certificates: dict[ClientId, str] = {}
        self._lost: list[TaskId] = []
        self._revealed: set[ClientId] = set()  # have done their part
        self._spent: set[ClientId] = set()  # have sent shares, right or wrong
        self._refused: dict[ClientId, str] = {}  # who sent what cannot be right
        self._one_at_a_time = asyncio.Lock()
        self._moved = asyncio.Event()  # another phase, or the end
        self._received, self._sent, self._seconds = 0, 0, 0.0
        self._losing: set[asyncio.Task[None]] = set()

    async def run(self, phase_seconds: Seconds) -> RoundResult:
        """Let the members go through all phases, and say how it ended.

        Args:
            phase_seconds: those that have not answered after so long are not waited for.
        """
        for member, call in list(self._ids.items()):
            if not self._tell(member, pb.FromServer(sum=pb.SumRound(id=call))):
                await self._lose(member)
        while not self._end.done():
            await self._close_phase(phase_seconds)
        end = self._end.result()
        accused, among, lost = {**self._refused, **end.accused}, set[ClientId](), self._lost
        for who, why in accused.items():
            self._notice(who, f"{who}: in merge {self._terms.merge} of {self._terms.run}: {why}")
        if isinstance(end, RoundFailed):
            among = {*end.among, *self._refused}
            spent = (task for member in self._spent for task in self._begins[member].tasks)
            lost = [*lost, *spent]
        return RoundResult(
            end, lost, self._received, self._sent, self._seconds, accused, sorted(among)
        )

    async def _close_phase(self, patience: Seconds) -> None:
        """Wait until all have done their part of the phase, and close it when its time is up."""
        phase = self._machine.phase
        try:
            async with asyncio.timeout(patience):
                while self._machine.phase is phase and not self._end.done():
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            await self._feed(PhaseClosed(context=self._terms.context, phase=phase))

    async def _feed(self, event: ServerEvent) -> None:
        """Let the machine take in an event, outside the event loop, and pass on what it says."""
        async with self._one_at_a_time:
            if self._end.done():
                return
            outputs, seconds = await asyncio.to_thread(_handled, self._machine, event)
            self._seconds += seconds
            for output in outputs:
                if isinstance(output, Send):
                    self._outgoing[output.to].put_nowait(output.message)
                else:
                    self._end.set_result(output)
            self._moved.set()

    async def _lose(self, member: ClientId) -> None:
        await self._feed(MemberLost(context=self._terms.context, member=member))

    async def serve(self, visitor: Visitor, _: Any, context: Context) -> None:
        """One member's call: what it is asked for, then message for message."""
        member = visitor.site
        async with asyncio.timeout(30.0):
            first = await read_whole(context.read, _ID_BYTES)
        if member not in self._ids or first != self._ids[member].encode():
            raise NotAdmitted(grpc.StatusCode.NOT_FOUND, "there is no sum that waits for this site")
        del self._ids[member]
        works = [
            asyncio.create_task(self._speak(member, context)),
            asyncio.create_task(self._listen(member, context)),
        ]
        try:
            done, _pending = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            for work in done:
                work.result()  # raises what ended it
        except (MessageRefused, WireError) as refused:
            if member in self._machine.awaited:  # else it came too late
                self._refused[member] = one_line(str(refused))
            raise WireError(str(refused)) from None
        finally:
            for work in works:
                work.cancel()
            if member not in self._revealed and not self._end.done():
                losing = asyncio.create_task(self._lose(member))
                self._losing.add(losing)  # this call may be cancelled any moment
                losing.add_done_callback(self._losing.discard)

    async def _listen(self, member: ClientId, context: Context) -> None:
        """Take in a member's messages until it has revealed its shares or is gone."""
        most = most_bytes(self._terms)
        while (raw := await read_whole(context.read, most)) is not None:
            self._received += len(raw)
            tasks = read_lacking(raw)
            if tasks is not None:
                self._lost += [task for task in tasks if task in self._begins[member].tasks]
                return
            message = await asyncio.to_thread(from_member, raw, self._terms, member)
            if isinstance(message, KeysAdvertised):
                certificate = context.auth_context()["x509_pem_cert"][0]
                self._certificates[member] = certificate.decode()
            if isinstance(message, SharesRevealed):
                self._spent.add(member)  # before the last of them ends the round
            await self._feed(message)
            if isinstance(message, SharesRevealed):
                self._revealed.add(member)
                return

    async def _speak(self, member: ClientId, context: Context) -> None:
        await self._send(context, self._begins[member].to_bytes())
        while True:
            message = await self._outgoing[member].get()
            listed = isinstance(message, KeysListed)
            beside = {"certificates": self._certificates} if listed else {}
            await self._send(context, to_bytes(message, **beside))
            if isinstance(message, RoundFailed):
                return

    async def _send(self, context: Context, message: bytes) -> None:
        self._sent += len(message)
        for part in parts_of(message):
            await context.write(part)


def _handled(machine: ServerRound, event: ServerEvent) -> tuple[list[Any], Seconds]:
    began = process_time()
    outputs = machine.handle(event)
    return list(outputs), process_time() - began
