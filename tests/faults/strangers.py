"""Who is not on the roster and calls all the same."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import grpc
from tests.faults.ledger import Ledger

from fedcompass.deployment.addresses import split_address
from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.connections import SERVICE, Identity, open_channel

TLS_HELLO = bytes.fromhex("16030100f1010000ed0303")  # a handshake of 241 bytes, and its beginning


class Strangers:
    """Bother a server until cancelled.

    Args:
        address: the server's.
        foreign: a certificate of another CA of the same name.
        ledger: is told what they do.
        random: what to do, and when.
        pause: seconds between two of them, at most.
    """

    def __init__(
        self, address: str, foreign: Identity, ledger: Ledger, random: Random, pause: float = 2.0
    ) -> None:
        self._host, self._port = split_address(address)
        self._address, self._foreign, self._ledger = address, foreign, ledger
        self._random, self._pause = random, pause
        self._open: set[asyncio.Task[None]] = set()
        self.ways: dict[str, Callable[[], Awaitable[None]]] = {
            "a stranger: garbage in place of TLS": self._garbage,
            "a stranger: half-open TLS": self._half_open,
            "a stranger: TLS without a certificate": self._without_certificate,
            "a stranger: a certificate of another CA": self._of_another_authority,
            "a stranger: fifty connections at once": self._many,
        }

    async def live(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0, self._pause))
            fault = self._random.choice(list(self.ways))
            with suppress(OSError, TimeoutError, grpc.aio.AioRpcError):
                await self.ways[fault]()
                self._ledger.caused(fault)

    async def _hold(self, sent: bytes, seconds: float) -> None:
        """Connect, send something and keep still for a while, beside what comes next."""
        plain = socket.socket()
        plain.setblocking(False)

        async def held() -> None:
            with plain:
                await asyncio.sleep(seconds)

        task = asyncio.create_task(held())
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(plain, (self._host, self._port))
        await loop.sock_sendall(plain, sent)

    async def _garbage(self) -> None:
        await self._hold(self._random.randbytes(self._random.randint(1, 5000)), 1.0)

    async def _half_open(self) -> None:
        await self._hold(TLS_HELLO, self._random.uniform(1.0, 20.0))

    async def _many(self) -> None:
        for _ in range(50):
            await self._hold(b"", self._random.uniform(0.5, 3.0))

    async def _without_certificate(self) -> None:
        context = ssl.create_default_context(cafile=str(self._foreign.authority))
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        async with asyncio.timeout(15):
            reader, writer = await asyncio.open_connection(
                self._host, self._port, ssl=context, server_hostname=""
            )
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            with suppress(OSError):
                while await reader.read(1000):
                    pass
            writer.transport.abort()

    async def _of_another_authority(self) -> None:
        async with open_channel(self._address, self._foreign) as channel:
            request = pb.ModelRequest(task="0" * 22).SerializeToString()
            call = channel.unary_stream(f"/{SERVICE}/FetchModel")(request, timeout=10)
            try:
                await call.read()
            except grpc.aio.AioRpcError as error:
                if "Connection refused" in str(error.details()):
                    raise  # the server is away
                if error.code() is grpc.StatusCode.NOT_FOUND:  # what only an admitted one hears
                    fault = "a stranger: a certificate of another CA"
                    self._ledger.went_wrong(fault, "it was admitted")
