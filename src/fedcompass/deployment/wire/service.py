"""The server's side of the wire: who may call, models for tasks, and the calls themselves."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import grpc

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.answers import MUST_WAIT, Answers, Receive
from fedcompass.deployment.wire.arriving import Pieces
from fedcompass.deployment.wire.attendance import REMARKS, Attendance, Session
from fedcompass.deployment.wire.connections import SERVICE
from fedcompass.deployment.wire.decoding import read_model_request
from fedcompass.deployment.wire.limits import Limits, Notices, Transfer
from fedcompass.deployment.wire.published_models import PublishedModels
from fedcompass.deployment.wire.short_texts import one_line
from fedcompass.deployment.wire.site_roster import RosterFile
from fedcompass.deployment.wire.task_book import GivenTask, TaskBook
from fedcompass.deployment.wire.visitors import Context, NotAdmitted, Visitor, Visitors
from fedcompass.errors import FedcompassError, WireError
from fedcompass.runs.files import FolderLock
from fedcompass.vocabulary import ClientId, Seconds

if TYPE_CHECKING:
    from fedcompass.deployment.wire.sum_parts import Begin
    from fedcompass.deployment.wire.sum_rounds import RoundResult, SumRound

__all__ = ["FederationService"]

_REVIEW: Seconds = 1.0  # how often the roster is looked at


class FederationService:
    """Serves sites; one event loop, which must be running when it is made.

    Args:
        folder: for tasks, receipts, models and uploads; one server at a time.
        roster: who may take part.
        layout: the digest of the model's names, shapes and dtypes.
        receive: takes answers in.
        limits: what sites may do.
        notice: is told, in one line, what an operator may want to know.
        changed: is called when a site has come or gone.
        departed: is called with a site that says it takes no further part.
        remark: is told what the run's audit should say about a site: what it is, the site, why.
        kept_free: how many bytes of the folder's disk answers have to leave.

    Raises:
        BlockingIOError: another server has the folder.
        RunFolderError: the folder is damaged.
    """

    def __init__(
        self,
        folder: Path,
        roster: RosterFile,
        layout: str,
        receive: Receive,
        limits: Limits | None = None,
        notice: Callable[[str], None] = lambda _: None,
        changed: Callable[[], None] = lambda: None,
        departed: Callable[[Session], None] = lambda _: None,
        remark: Callable[[str, str, str], None] = lambda *_: None,
        kept_free: Callable[[], int] = lambda: 0,
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = FolderLock(folder)
        self.limits, self._say = limits or Limits(), notice
        self._notices = Notices(lambda _, line: notice(line))
        self._remarks = {what: Notices(partial(remark, what)) for what in (*REMARKS, MUST_WAIT)}
        self._book = TaskBook(folder / "tasks.jsonl")
        if self._book.damaged:
            notice(
                f"{folder / 'tasks.jsonl'}: {self._book.damaged} damaged lines were left out; "
                "their tasks are given again, and nothing accepted is lost"
            )
        self._models = PublishedModels()
        shutil.rmtree(folder / "models", ignore_errors=True)  # of an earlier version
        self._answers = Answers(
            folder / "uploads",
            self._book,
            receive,
            self.limits,
            kept_free,
            partial(self._remark, MUST_WAIT),
        )
        self._attendance = Attendance(
            layout, self._orders, self.limits, self._notice, self._remark, changed, departed
        )
        self._roster, self._visitors = roster, Visitors(roster, self.limits)
        self._sum: SumRound | None = None  # under way
        self._reviews = asyncio.get_running_loop().create_task(self._review())

    @property
    def sites(self) -> dict[str, Session]:
        """Those connected now."""
        return self._attendance.sites

    def is_listed(self, site: str) -> bool:
        """Whether a site is on the roster."""
        return site in self._roster.roster.names.values()

    def publish(self, pieces: Pieces) -> tuple[str, int]:
        """Let sites fetch a model, whose pieces nobody may change; its digest and size."""
        return self._models.publish(pieces)

    def give(self, new: GivenTask) -> GivenTask:
        """Give a site a task, or the one of the same run and number that it has.

        A site that is away gets it when it connects.
        """
        task = self._book.give(new)
        if task is new:
            self._attendance.tell(task.site, pb.FromServer(task=task.message()))
        return task

    def withdraw(self, task: GivenTask) -> None:
        """Give up on a task, and tell its site."""
        if self._book.open_task(task.site, task.id) is None or self._answers.settling(task):
            return
        self._book.withdraw(task)
        self._answers.forget(task)
        withdrawn = pb.Withdrawn(task=task.id)
        self._attendance.tell(task.site, pb.FromServer(withdrawn=withdrawn))

    def confirm(self, task: GivenTask) -> None:
        """Say of an answer that comes again that it was taken in."""
        self._book.confirm(task)
        self._answers.forget(task)

    async def sum(
        self, begins: "Mapping[ClientId, Begin]", phase_seconds: Seconds
    ) -> "RoundResult":
        """Have the sum of sites' kept updates opened, and nothing but the sum.

        Raises:
            MissingExtra: the cryptography is not installed.
        """
        from fedcompass.deployment.wire.sum_rounds import SumRound

        self._sum = SumRound(begins, self._attendance.tell, self._notice)
        try:
            return await self._sum.run(phase_seconds)
        finally:
            self._sum = None

    async def _serve_sum(self, visitor: Visitor, request: Any, context: Context) -> None:
        if self._sum is None:
            raise NotAdmitted(grpc.StatusCode.NOT_FOUND, "there is no sum under way")
        await self._sum.serve(visitor, request, context)

    def open_tasks(self, site: str | None = None) -> list[GivenTask]:
        """What a site, or any, has not answered."""
        return self._book.open_tasks(site)

    def keep_models(self, digests: set[str]) -> None:
        """Forget the models that neither an open task nor the caller needs."""
        self._models.keep_only(digests | self._book.models)

    async def end_calls(self, grace: Seconds) -> None:
        """End the calls that are under way; transfers have so long to end by themselves."""
        await self._visitors.end_all(grace)

    async def close(self) -> None:
        """Let go of the folder; no call may be under way any more."""
        self._reviews.cancel()
        await self._answers.settled()
        self._lock.release()

    def handler(self) -> Any:
        """The four calls, for `grpc.aio.Server.add_generic_rpc_handlers`."""
        attend, submit = self._attendance.attend, self._answers.submit
        stream = grpc.stream_stream_rpc_method_handler
        methods = {
            "Attend": stream(self._admitted(attend)),
            "FetchModel": grpc.unary_stream_rpc_method_handler(
                self._admitted(self._fetch_model, transfer=True)
            ),
            "Submit": stream(self._admitted(submit, transfer=True)),
            "Sum": stream(self._admitted(self._serve_sum)),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _review(self) -> None:
        while True:  # as long as there are sites: without it nobody would be shut out any more
            try:
                problem = self._visitors.review()
                if problem is not None:
                    self._say(problem)
                for said in (self._notices, *self._remarks.values()):
                    said.catch_up(monotonic())
                self._answers.tidy()
            except Exception as error:
                what = one_line(f"{type(error).__name__}: {error}")
                self._say(f"who may take part cannot be reviewed: {what}; trying again")
            await asyncio.sleep(_REVIEW)

    def _notice(self, site: str, line: str) -> None:
        self._notices.about(site, line, monotonic())

    def _remark(self, what: str, site: str, why: str) -> None:
        self._remarks[what].about(site, why, monotonic())

    def _orders(self, site: str) -> list[pb.FromServer]:
        """What a site that connects has to do."""
        waiting = [t for t in self._book.open_tasks(site) if not self._answers.settling(t)]
        return [pb.FromServer(task=task.message()) for task in waiting]

    def _admitted(
        self, serve: Callable[[Visitor, Any, Context], Awaitable[None]], *, transfer: bool = False
    ) -> Callable[[Any, Context], Awaitable[None]]:
        """A call for those on the roster; what goes wrong in it becomes a status of one line."""

        async def call(request: Any, context: Context) -> None:
            visitor: Visitor | None = None
            try:
                certificate = context.auth_context()["x509_pem_cert"][0]
                visitor = self._visitors.enter(certificate, context.peer(), transfer=transfer)
                await serve(visitor, request, context)
            except asyncio.CancelledError:  # the site has gone, the server stops, or we cut it off
                if visitor is not None and visitor.cut_off is not None:
                    visitor.call.uncancel()
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, visitor.cut_off)
            except (NotAdmitted, FedcompassError, OSError) as error:
                await context.abort(*self._status(error, visitor))
            finally:
                if visitor is not None:
                    self._visitors.leave(visitor)

        return call

    def _status(self, error: Exception, visitor: Visitor | None) -> tuple[grpc.StatusCode, str]:
        """What a site is told about a call that failed."""
        who = "a stranger" if visitor is None else visitor.site
        match error:
            case NotAdmitted():
                return error.code, error.message
            case TimeoutError():
                return grpc.StatusCode.DEADLINE_EXCEEDED, "too slow, or silent"
            case WireError():
                self._notice(who, f"{who}: {error}")
                return grpc.StatusCode.INVALID_ARGUMENT, one_line(str(error))
            case _:
                self._notice(who, f"the server could not serve {who}: {error}")
                return grpc.StatusCode.UNAVAILABLE, "the server cannot go on now; try again"

    async def _fetch_model(self, visitor: Visitor, raw: bytes, context: Context) -> None:
        request = read_model_request(raw)
        task = self._book.open_task(visitor.site, request.task)
        if task is None:
            raise NotAdmitted(grpc.StatusCode.NOT_FOUND, "this site has no open task of this id")
        if task.model not in self._models:
            raise NotAdmitted(grpc.StatusCode.UNAVAILABLE, "the model is not here yet; try again")
        transfer = Transfer(self.limits, monotonic())
        for data in self._models.pieces(task.model, request.offset):
            async with asyncio.timeout(max(0.0, transfer.seconds_allowed(monotonic()))):
                await context.write(pb.Piece(data=data).SerializeToString())
            transfer.moved += len(data)
