"""A site on the roster that breaks every rule it can; it keeps to them in between, to get tasks.

What it does to a task follows from the task's number: one that is asked for again after a crash
is answered in the same way.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

import grpc
import numpy as np
from tests.deployment.wire.loopback_wire import Caller, answer_to
from tests.faults.ledger import Ledger
from tests.faults.toy_training import toy_trained

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.connections import Identity, open_channel
from fedcompass.deployment.wire.decoding import PIECE_BYTES

BROKEN = (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError, EOFError)
"""What a call ends with when the server dies, or has had enough."""

PATIENCE = 30.0  # seconds, for one answer of the server
MANY = 20  # uploads that are begun


@dataclass(frozen=True, slots=True)
class Work:
    """A task, what it starts from, and the honest answer to it."""

    caller: Caller
    task: pb.Task
    model: bytes
    payload: bytes

    @property
    def answer(self) -> pb.Answer:
        return self.answered(self.payload)

    def answered(self, payload: bytes, **fields: Any) -> pb.Answer:
        known = {"steps_done": self.task.steps, "seconds": 0.1, "samples": 40, "loss": 0.5}
        return answer_to(self.task.id, payload, **{"form": self.task.form, **known, **fields})


async def submit(caller: Caller, answer: pb.Answer, payload: bytes) -> pb.Receipt:
    """Hand in an answer as a site should; its receipt."""
    call = caller.open_submit()
    try:
        async with asyncio.timeout(PATIENCE):
            await caller.write(call, answer)
            reply = await _reply(call)
            if reply.WhichOneof("kind") == "proceed":
                for start in range(reply.proceed.offset, len(payload), PIECE_BYTES):
                    await caller.write_piece(call, payload[start : start + PIECE_BYTES])
                reply = await _reply(call)
    finally:
        call.cancel()
    receipt: pb.Receipt = reply.receipt
    return receipt


async def _reply(call: Any) -> pb.AnswerReply:
    raw = await call.read()
    if raw is grpc.aio.EOF:
        raise EOFError("the call ended without a receipt")
    reply: pb.AnswerReply = pb.AnswerReply.FromString(raw)
    return reply


DoTask: TypeAlias = Callable[[Caller, pb.Task], Awaitable[None]]
Misdeed: TypeAlias = Callable[["Rogue", Work], Awaitable[None]]


class Rogue:
    """Takes part as `name` until it is cancelled.

    Args:
        name: on the roster.
        number: of the site, for its training.
        address: the server's.
        identity: its certificate.
        layouts: the digests of the right model, and of one with other shapes of the same size.
        ledger: is told what it does.
        anothers_tasks: ids of tasks that the other sites have open.
        misdeeds: what to choose from, by their names in `MISDEEDS`.
        pause: seconds between two tasks.
    """

    def __init__(
        self,
        name: str,
        number: int,
        address: str,
        identity: Identity,
        layouts: tuple[str, str],
        ledger: Ledger,
        anothers_tasks: Callable[[], list[str]],
        *,
        misdeeds: list[str],
        pause: float = 0.5,
    ) -> None:
        self.name, self._number, self._address, self._identity = name, number, address, identity
        self._layout, self._other_layout = layouts
        self.ledger, self.anothers_tasks = ledger, anothers_tasks
        self.misdeeds, self._pause = misdeeds, pause
        self.do_task: DoTask = self._misbehave  # what it does to a task
        self._chosen: dict[int, str] = {}  # by a task's number
        self.lied: set[int] = set()  # numbers of tasks that it never answered honestly
        self.old: list[tuple[pb.Answer, bytes]] = []  # answers that have their receipt

    async def live(self) -> None:
        while True:
            try:
                async with open_channel(self._address, self._identity) as channel:
                    await self._attend(Caller(channel))
            except BROKEN:
                await asyncio.sleep(0.5)

    def _hello(self, layout: str | None = None) -> pb.FromSite:
        hello = pb.Hello(
            protocol=1,
            software="0.1.0",
            process=secrets.token_hex(16),
            samples=40 + self._number,
            layout=layout or self._layout,
        )
        return pb.FromSite(hello=hello)

    async def _attend(self, caller: Caller) -> None:
        await self.with_wrong_shapes(caller)
        call = await caller.attend(self._hello())
        beating = asyncio.create_task(self._beat(call))
        try:
            while True:
                raw = await call.read()
                if raw is grpc.aio.EOF:
                    return
                message = pb.FromServer.FromString(raw)
                if message.WhichOneof("kind") == "welcome":
                    await self.a_second_time(caller)
                elif message.WhichOneof("kind") == "task":
                    await self.do_task(caller, message.task)
        finally:
            beating.cancel()
            call.cancel()

    async def _beat(self, call: Any) -> None:
        while True:
            await call.write(pb.FromSite(heartbeat=pb.Heartbeat()).SerializeToString())
            await asyncio.sleep(3)

    async def _misbehave(self, caller: Caller, task: pb.Task) -> None:
        await asyncio.sleep(self._pause)
        try:
            async with asyncio.timeout(PATIENCE):
                model = await caller.fetch(task.id)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return  # given up meanwhile
            raise
        payload = toy_trained(model, self._number, task.number, task.steps)
        misdeed = self._chosen.setdefault(task.number, Random(task.number).choice(self.misdeeds))
        work = Work(caller, task, model, payload)
        if misdeed in LIES:
            self.lied.add(task.number)
        self.ledger.caused(misdeed)
        await MISDEEDS[misdeed](self, work)
        if misdeed not in LIES:
            await self._honestly(work)

    async def _honestly(self, work: Work) -> None:
        receipt = await submit(work.caller, work.answer, work.payload)
        if receipt.accepted:
            self.old = [*self.old[-50:], (work.answer, work.payload)]

    async def with_wrong_shapes(self, caller: Caller) -> None:
        """Connect with a model of as many values in other shapes."""
        fault = "a site: its model has other shapes of the same size"
        hello = self._hello(self._other_layout)
        await self._turned_away(fault, caller, hello, grpc.StatusCode.FAILED_PRECONDITION)

    async def a_second_time(self, caller: Caller) -> None:
        """Connect again as another process with the same certificate."""
        fault = "a site: a second process with its certificate"
        await self._turned_away(fault, caller, self._hello(), grpc.StatusCode.ALREADY_EXISTS)

    async def _turned_away(
        self, fault: str, caller: Caller, hello: pb.FromSite, code: grpc.StatusCode
    ) -> None:
        call = await caller.attend(hello)
        try:
            async with asyncio.timeout(PATIENCE):
                await call.read()
            self.ledger.caused(fault)
            self.ledger.went_wrong(fault, "it was welcome")
        except grpc.aio.AioRpcError as error:
            if error.code() is not code:
                raise  # the server is away
            self.ledger.caused(fault)
        finally:
            call.cancel()


async def _again(rogue: Rogue, work: Work) -> None:
    first = await submit(work.caller, work.answer, work.payload)
    for _ in range(2):
        again = await submit(work.caller, work.answer, work.payload)
        if again != first:
            rogue.ledger.went_wrong("an answer: sent three times", f"{again} after {first}")


async def _twice_at_once(rogue: Rogue, work: Work) -> None:
    both = (submit(work.caller, work.answer, work.payload) for _ in range(2))
    await asyncio.gather(*both, return_exceptions=True)


async def _old_one(rogue: Rogue, work: Work) -> None:
    for answer, payload in Random(work.task.number).sample(rogue.old, min(len(rogue.old), 1)):
        receipt = await submit(work.caller, answer, payload)
        if not receipt.accepted:
            rogue.ledger.went_wrong("an answer: an old one repeated", receipt.reason)


async def _old_one_changed(rogue: Rogue, work: Work) -> None:
    for answer, payload in rogue.old[-1:]:
        other = payload[:-4] + b"\0\0\0\0"
        receipt = await submit(work.caller, answer_to(answer.task, other), other)
        if receipt.accepted:
            rogue.ledger.went_wrong("an answer: an old one with other content", "accepted")


async def _anothers(rogue: Rogue, work: Work) -> None:
    fault = "an answer: to another site's task"
    for task in rogue.anothers_tasks():
        receipt = await submit(work.caller, answer_to(task, work.payload), work.payload)
        if receipt.accepted:
            rogue.ledger.went_wrong(fault, f"accepted for {task}")
        try:
            await work.caller.fetch(task)
            rogue.ledger.went_wrong(fault, "its model was handed out")
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise


async def _with_other_bytes(rogue: Rogue, work: Work) -> None:
    """Bytes that were damaged on their way: another digest than was announced."""
    damaged = work.payload[:-1] + bytes([work.payload[-1] ^ 1])
    try:
        receipt = await submit(work.caller, work.answer, damaged)
        # Accepted already, in a life of the server before this one; else it is refused.
        if not receipt.task:
            rogue.ledger.went_wrong("an answer: bytes damaged on their way", str(receipt))
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.DATA_LOSS:
            raise


async def _broken_off(rogue: Rogue, work: Work) -> None:
    call = work.caller.open_submit()
    await work.caller.write(call, work.answer, work.payload[: len(work.payload) // 3])
    call.cancel()


async def _begun_and_not_ended(rogue: Rogue, work: Work) -> None:
    """Many answers under new digests, each but for its last byte."""
    for _ in range(MANY):
        call = work.caller.open_submit()
        try:
            async with asyncio.timeout(PATIENCE):
                answer = work.answered(work.payload, digest=secrets.token_hex(32))
                await work.caller.write(call, answer)
                await call.read()  # `proceed`
                await work.caller.write_piece(call, work.payload[:-1])
            await asyncio.sleep(0.02)
        finally:
            call.cancel()


async def _garbage(rogue: Rogue, work: Work) -> None:
    chance = Random(work.task.number)
    for method in ("Attend", "FetchModel", "Submit"):
        try:
            await work.caller.send_raw(method, b"\xff" + chance.randbytes(chance.randint(1, 2000)))
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                raise


def _lie(answer: Callable[[Work], tuple[pb.Answer, bytes]]) -> Misdeed:
    async def lie(rogue: Rogue, work: Work) -> None:
        await submit(work.caller, *answer(work))

    return lie


def _not_finite(work: Work) -> tuple[pb.Answer, bytes]:
    payload = np.float32(np.nan).tobytes() + work.payload[4:]
    return work.answered(payload), payload


def _huge(work: Work) -> tuple[pb.Answer, bytes]:
    payload = np.full(len(work.payload) // 4, 3e38, np.float32).tobytes()
    return work.answered(payload), payload


def _of_another_size(work: Work) -> tuple[pb.Answer, bytes]:
    payload = work.payload * Random(work.task.number).choice([2, 10])
    return work.answered(payload), payload


LIES: dict[str, Misdeed] = {
    "an answer: not finite": _lie(_not_finite),
    "an answer: 3e38 in every weight": _lie(_huge),
    "an answer: 10^9 steps": _lie(
        lambda work: (work.answered(work.payload, steps_done=10**9), work.payload)
    ),
    "an answer: of another size": _lie(_of_another_size),
    "an answer: in another form": _lie(
        lambda work: (work.answered(work.payload, form="change-bfloat16"), work.payload)
    ),
}
MISDEEDS: dict[str, Misdeed] = {
    "an answer: sent three times": _again,
    "an answer: sent twice at once": _twice_at_once,
    "an answer: an old one repeated": _old_one,
    "an answer: an old one with other content": _old_one_changed,
    "an answer: to another site's task": _anothers,
    "an answer: bytes damaged on their way": _with_other_bytes,
    "an answer: broken off": _broken_off,
    "an answer: twenty begun under new digests, none ended": _begun_and_not_ended,
    "calls: garbage in place of messages": _garbage,
    **LIES,
}
