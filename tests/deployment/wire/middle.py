"""What lies between a site and the server: passes bytes on, slowly, damaged, or not at all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Middle:
    """Something between a site and the server that passes bytes on, until it is told not to."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[bytes] = []  # the first line of what a proxy was asked
        self.silent = False  # neither passes anything on nor closes anything
        self.rate: float | None = None  # bytes per second in each direction; None: all at once
        self.damaged = 0  # so many of the next reads get one bit changed
        self.passed = 0  # bytes
        self._writers: list[asyncio.StreamWriter] = []

    def take(self, writer: asyncio.StreamWriter) -> None:
        """Remember a connection, to be cut."""
        self._writers = [w for w in self._writers if not w.is_closing()] + [writer]

    async def join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:  # nobody is there
            writer.transport.abort()
            return
        self.take(far_writer)
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16 if self.rate is None else 1 << 12):
                if self.silent:
                    continue
                if self.rate is not None:
                    await asyncio.sleep(len(data) / self.rate)
                writer.write(self._with_damage(data))
                await writer.drain()
                self.passed += len(data)
            writer.close()

    def _with_damage(self, data: bytes) -> bytes:
        if self.damaged <= 0:
            return data
        self.damaged -= 1
        return data[:-1] + bytes([data[-1] ^ 1])

    def cut(self) -> None:
        """Break every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


@asynccontextmanager
async def balancing(port: int) -> AsyncIterator[Middle]:
    """A TCP load balancer in front of one server."""
    middle = Middle()

    joined: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        middle.take(writer)
        joining = asyncio.create_task(middle.join(reader, writer, "127.0.0.1", port))
        joined.add(joining)
        joining.add_done_callback(joined.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        middle.port = server.sockets[0].getsockname()[1]
        yield middle
    finally:
        server.close()
        middle.cut()
