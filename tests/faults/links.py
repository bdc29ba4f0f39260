"""Links between sites and the server that a test cuts, silences, slows down or damages."""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from tests.deployment.wire.middle import Middle, balancing


@contextmanager
def loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop beside the test; it ends with the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


@contextmanager
def beside(work: Coroutine[Any, Any, None]) -> Iterator[None]:
    """Have something happen for as long as the block lasts."""
    with loop_in_thread() as loop:
        running = asyncio.run_coroutine_threadsafe(work, loop)
        yield
        assert not running.done(), running.exception()


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0.1)  # connections that were broken off are closed


class Links:
    """One link for each site to a server's port, each with a port of its own.

    Args:
        loop: runs in a thread.
        port: the server's.
        sites: their names.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int, sites: Iterable[str]) -> None:
        self._loop = loop
        self.of: dict[str, Middle] = {}
        opened: Future[None] = Future()
        self._stays = asyncio.run_coroutine_threadsafe(self._stay(port, sites, opened), loop)
        opened.result(30)

    async def _stay(self, port: int, sites: Iterable[str], opened: "Future[None]") -> None:
        async with AsyncExitStack() as stack:
            with socket.socket() as kept:  # no link gets the port that the server is to have
                kept.bind(("127.0.0.1", port))
                for site in sites:
                    self.of[site] = await stack.enter_async_context(balancing(port))
            opened.set_result(None)
            await asyncio.Event().wait()

    def close(self) -> None:
        """Let nobody through any more."""
        self._stays.cancel()
        # What was being accepted is cut, too.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.3), self._loop).result(30)
        for middle in self.of.values():
            self._loop.call_soon_threadsafe(middle.cut)

    def address(self, site: str) -> str:
        return f"127.0.0.1:{self.of[site].port}"

    def cut(self, site: str) -> None:
        """Break the link's connections; new ones are let through."""
        self._loop.call_soon_threadsafe(self.of[site].cut)
