"""Answers of sites: taken in piece by piece, judged once, and given the same receipt ever after."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import grpc

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.arriving import ArrivingFile, OneBehind
from fedcompass.deployment.wire.decoding import read_answer_part
from fedcompass.deployment.wire.limits import Limits, Transfer
from fedcompass.deployment.wire.short_texts import one_line
from fedcompass.deployment.wire.task_book import GivenTask, TaskBook, problem_of
from fedcompass.deployment.wire.visitors import Context, NotAdmitted, Visitor
from fedcompass.errors import WireError

__all__ = ["Answers", "Receive", "Received", "Verdict"]

_FORCED_BYTES = 16 << 20  # are forced to the disk while more of an answer comes in


@dataclass(frozen=True, slots=True)
class Received:
    """An answer to an open task, from the site it was given to.

    payload: a file of exactly the size and digest that were announced, removed afterwards; None:
        the task failed (`answer.error`) or there is a problem.
    problem: why the answer is refused whatever the payload, which was not sent then.
    """

    task: GivenTask
    answer: pb.Answer
    payload: Path | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an answer: told to its site, and told again if it asks again."""

    accepted: bool
    reason: str = ""  # one line, if it was not


Receive: TypeAlias = Callable[[Received], Awaitable[Verdict]]
"""Takes an answer in and returns when all that follows from it is on disk.

After a kill it may get an answer again that it has taken in; the verdict is to be the same.
"""


class Answers:
    """The call by which sites hand in answers; the folder has payloads that are coming in."""

    def __init__(self, folder: Path, book: TaskBook, receive: Receive, limits: Limits) -> None:
        self._folder, self._book, self.receive, self._limits = folder, book, receive, limits
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            if path.name.split(".")[0] not in book.ids:
                path.unlink()
        self._newest: dict[str, object] = {}  # task -> its upload that counts
        self._locks: dict[str, asyncio.Lock] = {}  # task -> held while its file is written
        self._settling: dict[str, asyncio.Task[pb.Receipt]] = {}

    def settling(self, task: GivenTask) -> bool:
        """Whether an answer to a task is whole and being taken in."""
        return task.id in self._settling

    def forget(self, task: GivenTask) -> None:
        """Remove what is left of a task that is closed."""
        self._newest.pop(task.id, None)
        self._locks.pop(task.id, None)
        for path in self._folder.glob(f"{task.id}*"):
            path.unlink(missing_ok=True)

    async def settled(self) -> None:
        """Wait until what is being taken in is on disk."""
        if self._settling:
            await asyncio.wait(self._settling.values())

    async def submit(self, visitor: Visitor, _: Any, context: Context) -> None:
        """Serve one answer: its head, `proceed`, its pieces, its receipt."""
        transfer = Transfer(self._limits, monotonic())
        first = await self._next_part(context, transfer)
        if first is None or first.WhichOneof("kind") != "answer":
            raise WireError("an answer begins with a piece; allowed: its head first")
        found = self._book.look_up(visitor.site, first.answer)
        if isinstance(found, GivenTask):
            found = await self._take(found, first.answer, context, transfer)
        await context.write(pb.AnswerReply(receipt=found).SerializeToString())

    async def _take(
        self, task: GivenTask, answer: pb.Answer, context: Context, transfer: Transfer
    ) -> pb.Receipt:
        if task.id not in self._settling:
            problem, payload = problem_of(task, answer), None
            if problem is None and not answer.error:
                payload = await self._upload(task, answer, context, transfer)
            known = self._book.look_up(task.site, answer)
            if isinstance(known, pb.Receipt):  # withdrawn meanwhile, or a second call was quicker
                return known
            if task.id not in self._settling:
                received = Received(task, answer, payload, problem)
                self._settling[task.id] = asyncio.create_task(self._settle(received))
        # The site may go away meanwhile: what has begun is finished.
        return await asyncio.shield(self._settling[task.id])

    async def _settle(self, received: Received) -> pb.Receipt:
        task = received.task
        try:
            verdict = await self.receive(received)
            receipt = self._book.close(
                task, received.answer, accepted=verdict.accepted, reason=one_line(verdict.reason)
            )
            self.forget(task)
            return receipt
        finally:
            del self._settling[task.id]

    async def _upload(
        self, task: GivenTask, answer: pb.Answer, context: Context, transfer: Transfer
    ) -> Path:
        """The payload of an answer, once it is whole; a newer upload of it ends this one."""
        self._newest[task.id] = this = object()
        lock = self._locks.setdefault(task.id, asyncio.Lock())
        size, digest = answer.payload_bytes, answer.digest
        async with lock:
            file = await asyncio.to_thread(ArrivingFile, self._folder / task.id, size, digest)
        proceed = pb.Proceed(offset=file.offset)
        await context.write(pb.AnswerReply(proceed=proceed).SerializeToString())
        came = forced = file.offset

        async def add(piece: bytes) -> None:
            async with lock:
                self._check_newest(task, this)
                await asyncio.to_thread(file.add, piece)

        async with OneBehind() as writing, OneBehind() as forcing:
            while came < size:
                part = await self._next_part(context, transfer)
                if part is None or part.WhichOneof("kind") != "data":
                    raise WireError(f"{came} of {size} bytes came; send the rest")
                data = part.data  # each look makes a copy
                await writing.do(add(data))
                came += len(data)
                transfer.moved += len(data)
                if came - forced >= _FORCED_BYTES:
                    await forcing.do(asyncio.to_thread(file.force))
                    forced = came
        async with lock:
            self._check_newest(task, this)
            return _finished(file)

    def _check_newest(self, task: GivenTask, upload: object) -> None:
        if self._newest.get(task.id) is not upload:
            raise NotAdmitted(grpc.StatusCode.ABORTED, "this answer is being sent a second time")

    async def _next_part(self, context: Context, transfer: Transfer) -> pb.AnswerPart | None:
        async with asyncio.timeout(max(0.0, transfer.seconds_allowed(monotonic()))):
            raw = await context.read()
        return None if raw is grpc.aio.EOF else read_answer_part(raw)


def _finished(file: ArrivingFile) -> Path:
    try:
        return file.finish()
    except WireError as error:  # it is not what was announced: the site looks at its own copy
        raise NotAdmitted(grpc.StatusCode.DATA_LOSS, str(error)) from None
