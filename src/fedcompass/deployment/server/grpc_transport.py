"""gRPC as the engine: the wire's service in a thread of its own, and replies as they come.

A site gets the receipt of an answer once the loop that pulled it has gone on: then all that follows
from it is on disk.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.deployment.wire.answers import Received, Verdict
from fedcompass.deployment.wire.attendance import Session
from fedcompass.deployment.wire.connections import Identity, listen
from fedcompass.deployment.wire.limits import Limits
from fedcompass.deployment.wire.payloads import (
    PayloadFile,
    layout_digest,
    payload_bytes,
    payload_pieces,
    read_payload,
)
from fedcompass.deployment.wire.service import FederationService
from fedcompass.deployment.wire.short_texts import KEPT
from fedcompass.deployment.wire.site_roster import RosterFile
from fedcompass.deployment.wire.task_book import GivenTask
from fedcompass.deployment.wire.transport import (
    Assignment,
    Greeting,
    MessageId,
    NodeId,
    Remark,
    Reply,
)
from fedcompass.errors import LayoutMismatch, ProjectError, RunFolderError, TransportBroken
from fedcompass.vocabulary import ClientId, ModelVersion, Seconds, TaskId

if TYPE_CHECKING:
    from fedcompass.deployment.wire.sum_parts import Begin
    from fedcompass.deployment.wire.sum_rounds import RoundResult

__all__ = ["GrpcTransport", "reply_of"]

_NOBODY_ASKS: Seconds = 30.0  # after a restart, tasks that are outstanding are pushed much sooner
_GRACE: Seconds = 0.5  # for receipts that are on their way when the server stops
_CLOSED = "nobody waits for this answer: its task was given up, or is of another run"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _FilePayload:
    """A payload on the server's disk; where there is a problem it was not even sent."""

    file: PayloadFile | None
    size: int  # as announced
    problem: str | None

    def state(self, layout: Layout, start: FlatState) -> FlatState:
        if self.file is None or self.problem is not None:
            raise LayoutMismatch(self.problem or "the answer has no model")
        return read_payload(self.file.path, layout, self.file.form, start)


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A reply, and where its verdict goes."""

    reply: Reply
    at: Seconds
    verdict: "asyncio.Future[Verdict]"


class GrpcTransport:
    """Serves sites from when it is made until `close`.

    Args:
        folder: for tasks, receipts, models and uploads; one server at a time.
        roster: the file of who may take part.
        layout: the model's.
        identity: the server's certificate.
        address: host:port to listen at; port 0: any that is free.
        form: how updates travel; KEPT: they stay at their sites until a sum is asked for.
        limits: what sites may do.
        notice: is told, in one line, what an operator may want to know.
        kept_free: how many bytes of the folder's disk answers have to leave.

    Raises:
        ProjectError: the folder or the address is taken, or roster or certificate are damaged.
        RunFolderError: the folder is damaged or cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        roster: Path,
        layout: Layout,
        identity: Identity,
        address: str,
        *,
        form: str = "model",
        limits: Limits | None = None,
        notice: Callable[[str], None] = lambda _: None,
        kept_free: Callable[[], int] = lambda: 0,
    ) -> None:
        self._folder, self._roster, self._identity = folder, roster, identity
        self._layout, self._form, self._address = layout, form, address
        self._limits, self._notice, self._kept_free = limits, notice, kept_free
        self._lock = threading.Lock()  # of the four below
        self._departed: list[Reply] = []
        self._remarks: list[Remark] = []
        self._arrived: dict[MessageId, _Arrival] = {}  # in order
        self._handed_out: list[_Arrival] = []
        self._wake = threading.Event()
        self._published: tuple[str, ModelVersion, str, int] | None = None  # its digest and size
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._service: FederationService
        self.port = 0
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.result()

    def nodes(self) -> set[NodeId]:
        """The sites that are connected now, by the names that the roster gives them."""
        self._acknowledge()
        return self.attending()

    def attending(self) -> set[NodeId]:
        """The same in the midst of an event: answers that were pulled need not be on disk yet."""
        if not self._thread.is_alive():
            raise TransportBroken("the server's network thread has ended; see its log")
        return set(self._service.sites)

    def is_revoked(self, node: NodeId) -> bool:
        """Whether a site is on the roster no longer."""
        return not self._service.is_listed(str(node))

    def confirm(self, run: str, tasks: Collection[TaskId]) -> None:
        """Give the receipts that a server which died still owed to these tasks' sites."""
        self._call(self._confirm(run, set(tasks)))

    def departures(self) -> list[Reply]:
        """The sites that came only to say that they take no further part, since the last call."""
        with self._lock:
            departed, self._departed = self._departed, []
        return departed

    def remarks(self) -> list[Remark]:
        """What the service has noticed about sites since the last call."""
        with self._lock:
            remarks, self._remarks = self._remarks, []
        return remarks

    def greeting(self, node: NodeId) -> Greeting | None:
        """The name that the roster has for a site, and how many samples it said it has."""
        session = self._service.sites.get(str(node))
        return None if session is None else _greeting_of(session)

    def push(self, node: NodeId, assignment: Assignment) -> MessageId | None:
        """Give a site a task, in place of what else it has open."""
        digest, size = self._publish(assignment)
        task = GivenTask(
            site=str(node),
            run=assignment.run,
            number=assignment.task,
            steps=assignment.steps,
            version=assignment.version,
            model=digest,
            model_bytes=size,
            form=self._form,
            payload_bytes=0 if self._form == KEPT else payload_bytes(self._layout, self._form),
            refused=assignment.refused or "",
            steps_before=assignment.steps_before,
        )
        return self._call(self._give(task))

    def pull(self, messages: Collection[MessageId]) -> list[Reply]:
        """The replies that are here; the next call says that these are dealt with."""
        self._acknowledge()
        now = monotonic()
        with self._lock:
            wanted = set(messages)
            found = [a for m, a in self._arrived.items() if m in wanted]
            stale = [
                a for m, a in self._arrived.items() if m not in wanted and now - a.at > _NOBODY_ASKS
            ]
            for arrival in found + stale:
                del self._arrived[arrival.reply.message]
            self._handed_out += found
        self._conclude(stale, Verdict(False, _CLOSED))
        return [arrival.reply for arrival in found]

    def wait(self, seconds: Seconds) -> None:
        """Wait until a reply is here or a site has come or gone, but no longer than so."""
        self._acknowledge()
        self._wake.wait(seconds)
        self._wake.clear()

    def sum(self, begins: "Mapping[ClientId, Begin]", phase_seconds: Seconds) -> "RoundResult":
        """Have the sum of sites' kept updates opened; waits for it."""
        return self._call(self._service.sum(begins, phase_seconds))

    def close(self) -> None:
        """End the service; answers that were not dealt with are sent again to the next server."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _acknowledge(self) -> None:
        """What was handed out is on disk: give the receipts."""
        with self._lock:
            done, self._handed_out = self._handed_out, []
        self._conclude(done, Verdict(True))

    def _conclude(self, arrivals: list[_Arrival], verdict: Verdict) -> None:
        for arrival in arrivals:
            self._loop.call_soon_threadsafe(_set_result, arrival.verdict, verdict)

    def _depart(self, session: Session) -> None:
        departed = Reply(
            message="",
            node=session.site,
            error=session.hello.leaving,
            greeting=_greeting_of(session),
            budget_spent=True,
        )
        with self._lock:
            self._departed.append(departed)
        self._wake.set()

    def _remark(self, what: str, site: str, why: str) -> None:
        with self._lock:
            self._remarks.append(Remark(site, what, why))

    def _publish(self, assignment: Assignment) -> tuple[str, int]:
        """Let sites fetch a model, unless it is the one before."""
        version = (assignment.run, assignment.version)
        if self._published is None or self._published[:2] != version:
            pieces = payload_pieces(self._layout, "model", assignment.model)
            self._published = (*version, *self._service.publish(pieces))
        return self._published[2:]

    def _call(self, work: "Coroutine[Any, Any, _T]") -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _give(self, task: GivenTask) -> MessageId | None:
        service = self._service
        if task.site not in service.sites:
            return None
        task = service.give(task)
        for other in service.open_tasks(task.site):
            if other.id != task.id:  # given up by the server, or of another run
                with self._lock:
                    late = self._arrived.pop(other.id, None)
                self._conclude([] if late is None else [late], Verdict(False, _CLOSED))
                service.withdraw(other)
        service.keep_models({task.model})
        return task.id

    async def _confirm(self, run: str, tasks: set[TaskId]) -> None:
        for task in self._service.open_tasks():
            if task.run != run or task.number not in tasks:
                continue
            with self._lock:
                again = self._arrived.pop(task.id, None)
            if again is None:
                self._service.confirm(task)
            else:
                self._conclude([again], Verdict(True))

    async def _receive(self, received: Received) -> Verdict:
        """Hand an answer to whoever pulls, and wait until it is dealt with."""
        task, verdict = received.task.id, asyncio.Future[Verdict](loop=self._loop)
        with self._lock:
            self._arrived[task] = _Arrival(reply_of(received), monotonic(), verdict)
        self._wake.set()
        try:
            return await verdict
        finally:
            with self._lock:
                self._arrived.pop(task, None)

    def _run(self, started: "Future[None]") -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve(started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, started: "Future[None]") -> None:
        service = self._service = self._open()
        try:
            server, self.port = await listen(
                service.handler(), self._address, self._identity, service.limits
            )
        except BaseException:
            await service.close()
            raise
        started.set_result(None)
        await self._stop.wait()
        self._give_up_waiting()
        stopping = asyncio.create_task(server.stop(3 * _GRACE))  # from now on it takes no calls
        await service.end_calls(_GRACE)  # what gRPC has to end, it logs as an error
        self._give_up_waiting()
        await stopping
        await service.close()

    def _open(self) -> FederationService:
        try:
            return FederationService(
                self._folder,
                RosterFile(self._roster),
                layout_digest(self._layout),
                self._receive,
                self._limits,
                notice=self._notice,
                changed=self._wake.set,
                departed=self._depart,
                remark=self._remark,
                kept_free=self._kept_free,
            )
        except BlockingIOError:
            raise ProjectError(
                f"another process serves sites from {self._folder}; stop it first"
            ) from None
        except OSError as error:
            raise RunFolderError(
                f"{self._folder} cannot be written: {error.strerror}; free some space, then resume"
            ) from None

    def _give_up_waiting(self) -> None:
        """What nobody has dealt with gets no receipt: its site keeps it."""
        with self._lock:
            left = [*self._arrived.values(), *self._handed_out]
            self._arrived, self._handed_out = {}, []
        for arrival in left:
            arrival.verdict.cancel()


def _greeting_of(session: Session) -> Greeting:
    return Greeting(session.site, session.hello.samples, session.address)


def reply_of(received: Received) -> Reply:
    """An answer as the server's loop takes it in."""
    task, answer = received.task, received.answer
    payload = None
    if not answer.error:
        path = received.payload
        file = None if path is None else PayloadFile(path, task.form, answer.digest)
        payload = _FilePayload(file, answer.payload_bytes, received.problem)
    return Reply(
        message=task.id,
        node=task.site,
        error=answer.error or None,
        greeting=Greeting(task.site, answer.samples),
        payload=payload,
        task=task.number,
        version=task.version,
        steps_done=answer.steps_done,
        seconds=answer.seconds,
        epsilon=answer.epsilon,
        delta=answer.delta,
        budget_spent=answer.budget_spent,
    )


def _set_result(future: "asyncio.Future[Verdict]", verdict: Verdict) -> None:
    if not future.done():
        future.set_result(verdict)
