"""Answers of sites: taken in piece by piece, judged once, and given the same receipt ever after."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
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
from fedcompass.vocabulary import Seconds

__all__ = ["MUST_WAIT", "Answers", "Receive", "Received", "Verdict"]

MUST_WAIT = "must wait"
"""What the audit is to say about a site whose answer has no room."""

_FORCED_BYTES = 16 << 20  # are forced to the disk while more of an answer comes in
_ABANDONED: Seconds = 3600.0  # for so long the beginning of an answer waits for its rest


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


@dataclass(eq=False, slots=True)
class _Upload:
    """The one of a site's uploads that counts: its newest.

    left: bytes that are still to come.
    """

    task: str
    left: int


class Answers:
    """The call by which sites hand in answers; the folder has payloads that are coming in.

    A site has one payload there at a time, and none that would leave less than `kept_free` bytes of
    the disk: `no_room` is then told of the site, and why.
    """

    def __init__(
        self,
        folder: Path,
        book: TaskBook,
        receive: Receive,
        limits: Limits,
        kept_free: Callable[[], int] = lambda: 0,
        no_room: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._folder, self._book, self.receive, self._limits = folder, book, receive, limits
        self._kept_free, self._no_room = kept_free, no_room
        self._settling: dict[str, asyncio.Task[pb.Receipt]] = {}  # by task
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            if _task_of(path) not in book.ids:
                path.unlink()
        for site in book.sites:  # what came last may go on
            for path in sorted(self._files(site), key=lambda file: file.stat().st_mtime)[:-1]:
                path.unlink()
        self._uploads: dict[str, _Upload] = {}  # of sites
        self._locks: dict[str, asyncio.Lock] = {}  # of sites: held while their files change

    def settling(self, task: GivenTask) -> bool:
        """Whether an answer to a task is whole and being taken in."""
        return task.id in self._settling

    def forget(self, task: GivenTask) -> None:
        """Remove what is left of a task that is closed."""
        upload = self._uploads.get(task.site)
        if upload is not None and upload.task == task.id:
            del self._uploads[task.site]
        for path in self._folder.glob(f"{task.id}*"):
            path.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove beginnings of answers whose rest has not come for long, or for want of room."""
        busy = {*self._settling, *(upload.task for upload in self._uploads.values())}
        with suppress(OSError):  # it is tried again
            room = self._room()
            for path in self._folder.iterdir():
                old = time() - path.stat().st_mtime > _ABANDONED
                if _task_of(path) not in busy and (old or room < 0):
                    path.unlink()

    def _files(self, site: str) -> Iterator[Path]:
        """What has come of a site's answers and is not being taken in."""
        tasks = {task.id for task in self._book.open_tasks(site)} - self._settling.keys()
        return (path for path in self._folder.iterdir() if _task_of(path) in tasks)

    def _room(self) -> int:
        """The bytes that are left for answers beside those that are announced."""
        announced = sum(upload.left for upload in self._uploads.values())
        return shutil.disk_usage(self._folder).free - self._kept_free() - announced

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
        """The payload of an answer, once it is whole; a newer upload of the site ends this one."""
        site, size = task.site, answer.payload_bytes
        self._uploads[site] = this = _Upload(task.id, size)
        lock = self._locks.setdefault(site, asyncio.Lock())
        try:
            async with lock:
                self._check_newest(site, this)
                path, digest = self._folder / task.id, answer.digest
                file = await asyncio.to_thread(ArrivingFile, path, size, digest)
                this.left = size - file.offset
                for other in self._files(site):
                    if other != file.part:
                        other.unlink(missing_ok=True)
                self._check_room(site, size)
            proceed = pb.Proceed(offset=file.offset)
            await context.write(pb.AnswerReply(proceed=proceed).SerializeToString())
            came = forced = file.offset

            async def add(piece: bytes) -> None:
                async with lock:
                    self._check_newest(site, this)
                    await asyncio.to_thread(file.add, piece)
                    this.left -= len(piece)

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
                self._check_newest(site, this)
                return _finished(file)
        finally:
            if self._uploads.get(site) is this:
                del self._uploads[site]

    def _check_newest(self, site: str, upload: _Upload) -> None:
        if self._uploads.get(site) is not upload:
            raise NotAdmitted(grpc.StatusCode.ABORTED, "this site is sending an answer anew")

    def _check_room(self, site: str, size: int) -> None:
        """Refuse an answer that would take the run's room, if tidying up does not help."""
        if self._room() < 0:
            self.tidy()
        if self._room() >= 0:
            return
        free, kept = shutil.disk_usage(self._folder).free, self._kept_free()
        self._no_room(
            site,
            f"the disk has no room for its answer of {size:,} bytes: {free:,} are free, {kept:,} "
            "of them for the run alone, and others are sending; it tries again",
        )
        raise NotAdmitted(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "the server's disk has no room for the answer now; trying again",
        )

    async def _next_part(self, context: Context, transfer: Transfer) -> pb.AnswerPart | None:
        async with asyncio.timeout(max(0.0, transfer.seconds_allowed(monotonic()))):
            raw = await context.read()
        return None if raw is grpc.aio.EOF else read_answer_part(raw)


def _task_of(path: Path) -> str:
    """The id of the task that a file in the folder belongs to."""
    return path.name.partition(".")[0]


def _finished(file: ArrivingFile) -> Path:
    try:
        return file.finish()
    except WireError as error:  # it is not what was announced: the site looks at its own copy
        raise NotAdmitted(grpc.StatusCode.DATA_LOSS, str(error)) from None
