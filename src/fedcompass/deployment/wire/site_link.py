"""A site's side of the wire: attends, fetches models, keeps answers until their receipt."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from functools import cached_property
from pathlib import Path
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Any, Never, TypeAlias

import grpc

import fedcompass
from fedcompass.deployment.backoff import Backoff
from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.connections import SERVICE, Identity, open_channel
from fedcompass.deployment.wire.decoding import WIRE_PROTOCOL, read_from_server
from fedcompass.deployment.wire.limits import Limits
from fedcompass.deployment.wire.model_files import ModelFiles
from fedcompass.deployment.wire.outbox import Outbox
from fedcompass.deployment.wire.short_texts import KEPT, one_line
from fedcompass.deployment.wire.site_calls import GONE, UNSENT, fetch, hand_in, why_ended, write
from fedcompass.errors import FedcompassError, WireError
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from fedcompass.deployment.wire.kept_updates import KeptUpdates
    from fedcompass.deployment.wire.sum_member import SumMember

__all__ = ["SiteLink", "Train"]

_BACKOFF = Backoff(first=0.4, longest=3.0)
_KEPT_MODELS = 2
_FORCED_AFTER: Seconds = 2.0  # answers that have no receipt by then
_TRY_AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, UNSENT}


class _Left(Exception):
    """All is handed in, and the site may go."""


Train: TypeAlias = Callable[[pb.Task, Path, Path], Awaitable[pb.Answer]]
"""Trains from the model in one file, writes the payload into another, and says what came of it.

Is cancelled when the task is withdrawn or a newer one comes.
"""


class SiteLink:
    """A site's connection, for as long as it is asked to `run`; broken ones are made anew.

    Args:
        folder: for models and answers; one process at a time.
        address: host:port of the server.
        identity: the site's certificate and key.
        samples: how many it has.
        layout: the digest of its model's names, shapes and dtypes.
        train: does the work.
        proxy: http://host:port of an HTTP CONNECT proxy.
        limits: how long silence may last.
        notice: is told in one line what happens to the connection.
        leaving: why the site takes no further tasks, and only hands in what it has; empty: it
            takes part.
    """

    def __init__(
        self,
        folder: Path,
        address: str,
        identity: Identity,
        *,
        samples: int,
        layout: str,
        train: Train,
        proxy: str | None = None,
        limits: Limits | None = None,
        notice: Callable[[str], None] = lambda _: None,
        leaving: str = "",
    ) -> None:
        self._address, self._identity, self._proxy = address, identity, proxy
        self._limits, self._notice, self.train = limits or Limits(), notice, train
        self._hello = pb.Hello(
            protocol=WIRE_PROTOCOL,
            software=fedcompass.__version__,
            process=secrets.token_hex(16),
            samples=samples,
            layout=layout,
            leaving=leaving,
        )
        self._models = ModelFiles(folder / "models")
        self._outbox = Outbox(folder / "answers")
        self._kept_at = folder / "kept"
        self._newest: list[str] = []  # models, the newest last
        self.task: pb.Task | None = None  # in training, or about to be
        self._work: asyncio.Task[None] | None = None
        self._summing: asyncio.Task[None] | None = None
        self._to_send = asyncio.Event()
        self._channel: Any = None  # the connection, or the last one
        self.name: str | None = None  # what the roster calls this site; None: not connected
        self._in_step = False  # the server has said, on this connection, what it waits for

    @cached_property
    def _kept(self) -> "KeptUpdates":
        """The site's updates that wait for sums."""
        # With numpy, which a site without secure sums does not load.
        from fedcompass.deployment.wire.kept_updates import KeptUpdates

        return KeptUpdates(self._kept_at)

    @cached_property
    def _member(self) -> "SumMember":
        """The site's part in sums, as long as this process lives."""
        from fedcompass.deployment.wire.sum_member import SumMember

        return SumMember(self.name or "", self._identity, self._kept, self._notice)

    @property
    def _leaving(self) -> str:
        """Why the site leaves, once all it has done is handed in; empty: it stays."""
        return self._hello.leaving

    async def run(self) -> str:
        """Take part until cancelled, or until the site leaves: the reason, in one line.

        Whatever a connection fails of, it is tried again.
        """
        failures, last = 0, ""
        try:
            while True:
                began = monotonic()
                try:
                    told = await self._one_connection()
                except _Left:
                    return self._leaving
                if self._leaving and all(a.budget_spent for a in self._outbox.waiting.values()):
                    self._notice(told)
                    return self._leaving  # there is nothing to hand in, and nobody to be told
                if told != last:  # a server may be away for days
                    self._notice(told)
                last = told
                failures = 0 if monotonic() - began > self._limits.silence else failures + 1
                await asyncio.sleep(_pause(failures))
        finally:
            for work in (self._work, self._summing):
                if work is not None:
                    work.cancel()

    async def _one_connection(self) -> str:
        """Attend and send answers until the connection ends; why it did."""
        self._in_step = False
        try:
            async with open_channel(self._address, self._identity, self._proxy) as self._channel:
                await _until_one_fails(self._attend(), self._send_answers())
        except _Left:
            raise
        except Exception as error:
            return why_ended(error)
        finally:
            self.name = None

    async def _attend(self) -> Never:
        call = self._channel.stream_stream(f"/{SERVICE}/Attend")()
        try:
            await write(call, pb.FromSite(hello=self._hello))
            await self._hear(call)  # welcome
            await _until_one_fails(self._beat(call), self._listen(call))
        finally:
            call.cancel()

    def _leave_if_done(self) -> None:
        """Go, if the site wants to and nothing that it has done is left here."""
        if self._leaving and self._in_step and self.task is None and not self._outbox.waiting:
            raise _Left

    async def _beat(self, call: Any) -> Never:
        while True:
            heartbeat = pb.Heartbeat(task="" if self.task is None else self.task.id)
            await write(call, pb.FromSite(heartbeat=heartbeat))
            await asyncio.sleep(self._limits.heartbeat)

    async def _listen(self, call: Any) -> Never:
        while True:
            await self._hear(call)

    async def _hear(self, call: Any) -> None:
        async with asyncio.timeout(self._limits.silence):
            raw = await call.read()
        if raw is grpc.aio.EOF:
            raise WireError("the server has ended the connection; connecting again")
        message = read_from_server(raw)
        match message.WhichOneof("kind"):
            case "welcome":
                self.name = message.welcome.site
                self._notice(f"connected as {self.name}")
                self._to_send.set()
            case "task":
                self._take(message.task)
            case "sum":
                self._join_sum(message.sum.id)
            case "withdrawn" if self.task is not None and self.task.id == message.withdrawn.task:
                self._drop_work()
            case "heartbeat":
                self._in_step = True  # open tasks are told before it
                self._leave_if_done()
            case _:
                pass

    def _join_sum(self, call: str) -> None:
        """Take part in a secure round, beside whatever else is done; the last one is given up."""
        if self._summing is not None:
            self._summing.cancel()
        self._summing = asyncio.create_task(self._sum(call))

    async def _sum(self, call: str) -> None:
        try:
            await self._member.take_part(self._channel, call)
        except grpc.aio.AioRpcError as error:
            self._notice(one_line(f"a sum ended: {error.details()}"))
        except (FedcompassError, OSError, grpc.aio.UsageError) as error:
            self._notice(one_line(f"left a sum: {error}"))
        except Exception as error:  # its update waits for the next sum, but nobody would know why
            self._notice(one_line(f"left a sum: {type(error).__name__}: {error}"))

    def _take(self, task: pb.Task) -> None:
        if task.id in self._outbox.waiting:
            return  # done: it is on its way
        if self.task is not None and self.task.id == task.id:
            return  # at it
        self._drop_work()
        if task.refused:
            self._notice(f"the server refused the last answer: {task.refused}")
        self.task = task
        self._work = asyncio.create_task(self._do_task(task))

    def _drop_work(self) -> None:
        if self._work is not None:
            self._work.cancel()
        self.task = self._work = None

    async def _do_task(self, task: pb.Task) -> None:
        """Fetch, train, and keep the answer; a failure is an answer, too."""
        if (answer := await self._answer_to(task)) is not None:
            await self._keep(task, answer)
        self.task = self._work = None
        self._to_send.set()
        await asyncio.sleep(_FORCED_AFTER)  # it is sent meanwhile
        try:
            await asyncio.to_thread(self._outbox.force, task.id)
        except OSError as error:
            self._notice(f"an answer may not outlive a power failure until it is sent: {error}")

    async def _answer_to(self, task: pb.Task) -> pb.Answer | None:
        """What came of a task; None: it was given up."""
        if self._leaving:
            return pb.Answer(error=self._leaving, budget_spent=True, samples=self._hello.samples)
        try:
            if (model := await self._model(task)) is None:
                return None
            return await self.train(task, model, self._outbox.trained(task.id))
        except FedcompassError as error:
            return pb.Answer(error=str(error) or type(error).__name__)
        except Exception as error:
            return pb.Answer(error=f"{type(error).__name__}: {error}")

    async def _keep(self, task: pb.Task, answer: pb.Answer) -> None:
        """Put an answer on disk, however often that takes: the disk may be full for a while."""
        answer.task = task.id
        if answer.error:
            answer.error = one_line(answer.error) or "failed"
            self._notice(f"task {task.number} failed: {answer.error}")
        else:
            answer.form = task.form
        failures = 0
        while task.id not in self._outbox.waiting:
            try:
                if answer.form == KEPT:  # the update stays here, and the answer says that it is
                    trained = self._outbox.trained(task.id)
                    await asyncio.to_thread(self._kept.keep, task.run, task.number, trained)
                await asyncio.to_thread(self._outbox.keep, answer)
            except WireError as error:
                answer = pb.Answer(task=task.id, error=one_line(str(error)))
            except OSError as error:
                failures += 1
                self._notice(f"an answer cannot be written: {error}; trying again")
                await asyncio.sleep(_pause(failures))

    async def _model(self, task: pb.Task) -> Path | None:
        """The model to start from, fetched unless it is here; None: the task was given up."""
        path = await asyncio.to_thread(self._models.whole, task.model)
        failures = 0
        while path is None:
            try:
                file = await asyncio.to_thread(self._models.arriving, task.model, task.model_bytes)
                await fetch(self._channel, task, file, self._limits)
                path = await asyncio.to_thread(self._models.arrived, file)
            except grpc.aio.AioRpcError as error:
                if error.code() in GONE:
                    return None
            except asyncio.CancelledError:
                if _is_cancelled():  # else it was the connection that was closed
                    raise
            except grpc.aio.UsageError:
                pass  # the connection was closed before the call: the next one may be open
            except (OSError, WireError) as error:  # a timeout is an OSError, too
                self._notice(f"the model did not arrive: {error}; trying again")
            if path is None:
                failures += 1
                await asyncio.sleep(_pause(failures))
        if task.model not in self._newest:
            self._newest = [*self._newest, task.model][-_KEPT_MODELS:]
        self._models.keep_only(self._newest)
        return path

    async def _send_answers(self) -> Never:
        """Send every answer that is kept, and each new one, until it has its receipt."""
        failures: dict[str, int] = {}
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            for answer in list(self._outbox.waiting.values()):
                payload = self._outbox.payload(answer.task)
                try:
                    receipt = await hand_in(self._channel, answer, payload, self._limits)
                except grpc.aio.AioRpcError as error:
                    self._not_sent(answer, error)
                    self._to_send.set()
                    failures[answer.task] = failures.get(answer.task, 0) + 1
                    await asyncio.sleep(_pause(failures[answer.task]))
                    continue
                if not receipt.accepted:
                    self._notice(f"the server refused an answer: {receipt.reason}")
                self._outbox.drop(answer.task)
                if answer.budget_spent:
                    self._hello.leaving = answer.error
            self._leave_if_done()

    def _not_sent(self, answer: pb.Answer, error: Any) -> None:
        """Find out whether it makes sense to try again on this connection."""
        code = error.code()
        if code is grpc.StatusCode.DATA_LOSS:
            self._outbox.verify(answer)
        elif code not in _TRY_AGAIN or self.name is None:
            raise error
        self._notice(why_ended(error))


async def _until_one_fails(*endless: Coroutine[Any, Any, Never]) -> Never:
    """Run endless works side by side; raises what the first one did.

    A task group of Python 3.11 would leave its own task marked as cancelled.
    """
    works = [asyncio.create_task(work) for work in endless]
    try:
        done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
    error = done.pop().exception()
    assert error is not None
    raise error


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _pause(failures: int) -> Seconds:
    """Twice as long after every failure in a row, with chance: sites do not come all at once."""
    longest = _BACKOFF.after(max(failures, 1))
    return uniform(longest / 2, longest)
