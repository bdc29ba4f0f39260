"""A real server of the wire and real sites on loopback, with real certificates."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import grpc

from fedcompass.deployment.operator.certificates import (
    make_authority,
    make_server_certificate,
    make_site_certificate,
)
from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.answers import Received, Verdict
from fedcompass.deployment.wire.connections import Identity, listen, open_channel
from fedcompass.deployment.wire.decoding import PIECE_BYTES
from fedcompass.deployment.wire.limits import Limits
from fedcompass.deployment.wire.service import FederationService
from fedcompass.deployment.wire.site_link import SiteLink, Train
from fedcompass.deployment.wire.site_roster import RosterFile, fingerprint_of, roster_text
from fedcompass.deployment.wire.task_book import GivenTask

LAYOUT = "0" * 64
MODEL = bytes(range(256)) * 20_000  # 5 MB: some pieces
UPDATE = bytes(reversed(range(256))) * 20_000
SERVICE = "/fedcompass.wire.v1.Federation/"
LONGEST = 60.0  # seconds that anything here may take

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Papers:
    """A federation's certificates and its roster; made unless they are there."""

    def __init__(self, folder: Path, *sites: str) -> None:
        self.folder, self.roster = folder, folder / "roster.toml"
        self.server = Identity(folder / "ca.crt", folder / "server.crt", folder / "server.key")
        if not self.roster.exists():
            folder.mkdir(exist_ok=True)
            make_authority(folder, "trial")
            make_server_certificate(folder, folder, [])
            for site in sites:
                self.certify(site)
            self.list_only(*sites)

    def certify(self, site: str, days: int = 30) -> Identity:
        home = self.folder / site
        home.mkdir()
        make_site_certificate(self.folder, home, site, days)
        return self.identity(site)

    def identity(self, site: str) -> Identity:
        home = self.folder / site
        return Identity(self.folder / "ca.crt", home / "site.crt", home / "site.key")

    def list_only(self, *sites: str) -> None:
        prints = {
            site: [fingerprint_of((self.folder / site / "site.crt").read_bytes())] for site in sites
        }
        self.roster.write_text(roster_text(prints))


class Server:
    """A service that takes every answer in; `received` has them."""

    def __init__(self, service: FederationService, port: int, notices: list[str]) -> None:
        self.service, self.port = service, port
        self.address = f"127.0.0.1:{port}"
        self.received: list[tuple[Received, bytes | None]] = []
        self.notices = notices
        self.remarks: list[tuple[str, str, str]] = []  # for the run's audit: what, the site, why
        self.verdict = Verdict(True)
        self.answers = service._answers

    def give(self, site: str, number: int = 1, model: bytes = MODEL, **fields: Any) -> Any:
        return give(self.service, site, number, self.service.publish([model]), **fields)


def give(
    service: FederationService, site: str, number: int, published: tuple[str, int], **fields: Any
) -> GivenTask:
    """Give a site a task that starts from a published model."""
    model, model_bytes = published
    known: dict[str, Any] = {
        "site": site,
        "run": "trial",
        "number": number,
        "steps": 3,
        "version": 0,
        "model": model,
        "model_bytes": model_bytes,
        "form": "model",
        "payload_bytes": len(UPDATE),
    }
    return service.give(GivenTask(**{**known, **fields}))


@asynccontextmanager
async def serving(
    papers: Papers,
    folder: Path,
    limits: Limits | None = None,
    port: int = 0,
    host: str = "127.0.0.1",
    kept_free: int = 0,
) -> AsyncIterator[Server]:
    made: list[Server] = []
    notices: list[str] = []

    async def receive(received: Received) -> Verdict:
        content = None if received.payload is None else received.payload.read_bytes()
        made[0].received.append((received, content))
        return made[0].verdict

    service = FederationService(
        folder,
        RosterFile(papers.roster),
        LAYOUT,
        receive,
        limits,
        notice=notices.append,
        remark=lambda *said: made[0].remarks.append(said),
        kept_free=lambda: kept_free,
    )
    address = f"{host}:{port}"
    server, bound = await listen(service.handler(), address, papers.server, service.limits)
    made.append(Server(service, bound, notices))
    try:
        yield made[0]
    finally:
        await server.stop(0.2)
        await service.close()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def link_of(
    papers: Papers, name: str, folder: Path, address: str, train: Train, **options: Any
) -> SiteLink:
    """A site's link whose tasks are trained by `train`."""
    known: dict[str, Any] = {"samples": 100, "layout": LAYOUT}
    return SiteLink(folder, address, papers.identity(name), train=train, **{**known, **options})


class Site:
    """A site that answers every task with `UPDATE`."""

    def __init__(
        self, papers: Papers, name: str, folder: Path, address: str, **options: Any
    ) -> None:
        self.trained: list[tuple[pb.Task, bytes]] = []
        self.notices: list[str] = []
        self.hold = asyncio.Event()
        self.hold.set()
        notice = self.notices.append
        self.link = link_of(papers, name, folder, address, self.train, notice=notice, **options)

    async def train(self, task: pb.Task, model: Path, payload: Path) -> pb.Answer:
        self.trained.append((task, model.read_bytes()))
        await self.hold.wait()
        payload.write_bytes(UPDATE)
        return pb.Answer(steps_done=task.steps, seconds=0.5, samples=100, loss=0.25)


@asynccontextmanager
async def attending(
    papers: Papers, name: str, folder: Path, address: str, **options: Any
) -> AsyncIterator[Site]:
    site = Site(papers, name, folder, address, **options)
    running = asyncio.create_task(site.link.run())
    try:
        yield site
    finally:
        running.cancel()
        await asyncio.wait([running])


async def until(true: Callable[[], object], seconds: float = LONGEST) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


async def to_end(call: Any) -> None:
    """Read a call to its end, whatever comes."""
    while await call.read() is not grpc.aio.EOF:
        pass


def play(scene: Awaitable[_T], seconds: float = 180.0) -> _T:
    """Run a scene, bounded."""

    async def bounded() -> _T:
        async with asyncio.timeout(seconds):
            return await scene

    return asyncio.run(bounded())


def played(scene: Callable[_P, Awaitable[None]]) -> Callable[_P, None]:
    """A test that is a scene."""

    @wraps(scene)
    def test(*arguments: _P.args, **named: _P.kwargs) -> None:
        play(scene(*arguments, **named))

    return test


async def write(call: Any, raw: bytes) -> None:
    """Send a message, or nothing if the server has ended the call: its status says why.

    `call.write` would put a status of its own in the place of the server's where the end of the
    call crosses a message.
    """
    with suppress(grpc.aio.AioRpcError, grpc.aio.InternalError):
        await call.wait_for_connection()
        await call._cython_call.send_serialized_message(raw)


class Caller:
    """Calls the server as a site may that does not keep to the rules."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    async def attend(self, *messages: pb.FromSite) -> Any:
        call = self._channel.stream_stream(SERVICE + "Attend")()
        for message in messages:
            await write(call, message.SerializeToString())
        return call

    def open_submit(self) -> Any:
        return self._channel.stream_stream(SERVICE + "Submit")()

    async def write(self, call: Any, answer: pb.Answer, *pieces: bytes) -> None:
        await write(call, pb.AnswerPart(answer=answer).SerializeToString())
        for piece in pieces:
            await self.write_piece(call, piece)

    async def write_piece(self, call: Any, piece: bytes) -> None:
        await write(call, pb.AnswerPart(data=piece).SerializeToString())

    def open_fetch(self, task: str) -> Any:
        request = pb.ModelRequest(task=task).SerializeToString()
        return self._channel.unary_stream(SERVICE + "FetchModel")(request)

    async def send_raw(self, method: str, raw: bytes) -> None:
        """Send bytes that need not be a message, and wait for the end of the call."""
        if method == "FetchModel":
            call = self._channel.unary_stream(SERVICE + method)(raw)
        else:
            call = self._channel.stream_stream(SERVICE + method)()
            await write(call, raw)
        await to_end(call)

    async def submit(self, answer: pb.Answer, *pieces: bytes) -> pb.AnswerReply:
        """Hand in an answer, whatever the server says to its head; what it says at last."""
        call = self.open_submit()
        await self.write(call, answer)
        reply: pb.AnswerReply = pb.AnswerReply.FromString(await call.read())
        if reply.WhichOneof("kind") == "proceed" and pieces:
            for piece in pieces:
                await self.write_piece(call, piece)
            reply = pb.AnswerReply.FromString(await call.read())
        call.cancel()
        return reply

    async def fetch(self, task: str) -> bytes:
        return b"".join([pb.Piece.FromString(raw).data async for raw in self.open_fetch(task)])


@asynccontextmanager
async def calling(
    papers: Papers, name: str, address: str, *, unlimited: bool = False
) -> AsyncIterator[Caller]:
    identity = papers.identity(name)
    if unlimited:
        authority, certificate, key = identity.read()
        credentials = grpc.ssl_channel_credentials(authority, key, certificate)
        channel = grpc.aio.secure_channel(address, credentials)
    else:
        channel = open_channel(address, identity)
    async with channel:
        yield Caller(channel)


def hello(**fields: Any) -> pb.FromSite:
    known = {
        "protocol": 1,
        "software": "0.1.0",
        "process": "0" * 32,
        "samples": 1,
        "layout": LAYOUT,
    }
    return pb.FromSite(hello=pb.Hello(**{**known, **fields}))


def answer_to(task: str, content: bytes = UPDATE, **fields: Any) -> pb.Answer:
    known = {
        "task": task,
        "form": "model",
        "payload_bytes": len(content),
        "digest": digest(content),
        "steps_done": 3,
        "samples": 1,
    }
    return pb.Answer(**{**known, **fields})


def cut(content: bytes) -> list[bytes]:
    return [content[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES)]
