"""The ways a site's connection takes: a proxy, a load balancer, IPv6, and links that die."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.deployment.wire.loopback_wire import Papers, attending, played, serving, until
from tests.deployment.wire.middle import Middle, balancing

from fedcompass.deployment.supervision import free_port
from fedcompass.deployment.wire.limits import Limits

QUICK = Limits(heartbeat=0.2, silence=1.5)
SOON = Limits().silence  # seconds: sooner than by the usual limits


@asynccontextmanager
async def proxying() -> AsyncIterator[Middle]:
    """An HTTP proxy that knows CONNECT and nothing else."""
    middle = Middle()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        middle.take(writer)
        request = await reader.readuntil(b"\r\n\r\n")
        middle.asked.append(request.splitlines()[0])
        host, _, port = request.split()[1].decode().rpartition(":")
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await middle.join(reader, writer, host, int(port))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        middle.port = server.sockets[0].getsockname()[1]
        yield middle
        middle.cut()


@played
async def test_a_site_reaches_the_server_through_an_http_connect_proxy(
    papers: Papers, tmp_path: Path
) -> None:
    async with serving(papers, tmp_path / "server") as server, proxying() as proxy:
        way = f"http://127.0.0.1:{proxy.port}"
        async with attending(papers, "north", tmp_path / "n", server.address, proxy=way):
            server.give("north")
            await until(lambda: server.received)
        assert proxy.asked == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1".encode()]


@played
async def test_a_site_finds_its_proxy_in_the_environment(
    papers: Papers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(papers, tmp_path / "server") as server, proxying() as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        async with attending(papers, "north", tmp_path / "north", server.address):
            server.give("north")
            await until(lambda: server.received)
        assert len(proxy.asked) == 1


@played
async def test_a_site_reaches_the_server_behind_a_load_balancer_and_survives_its_cuts(
    papers: Papers, tmp_path: Path
) -> None:
    async with serving(papers, tmp_path / "server") as server, balancing(server.port) as middle:
        address = f"127.0.0.1:{middle.port}"
        async with attending(papers, "north", tmp_path / "north", address) as north:
            for number in range(1, 4):
                await until(lambda: "north" in server.service.sites)
                server.give("north", number)
                await until(lambda number=number: len(north.trained) == number)  # type: ignore[misc]
                middle.cut()
                await until(lambda number=number: len(server.received) == number)  # type: ignore[misc]
        assert [received.task.number for received, _ in server.received] == [1, 2, 3]


@played
async def test_a_site_reaches_the_server_over_ipv6(papers: Papers, tmp_path: Path) -> None:
    async with serving(papers, tmp_path / "server", host="[::1]") as server:
        address = f"[::1]:{server.port}"
        async with attending(papers, "north", tmp_path / "north", address):
            server.give("north")
            await until(lambda: server.received)


@played
async def test_a_dead_link_is_noticed_on_both_sides_and_made_anew(
    papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server", QUICK) as server,
        balancing(server.port) as middle,
    ):
        address = f"127.0.0.1:{middle.port}"
        async with attending(papers, "north", tmp_path / "n", address, limits=QUICK) as north:
            await until(lambda: north.link.name)
            middle.silent = True
            await until(lambda: not server.service.sites, SOON)
            await until(lambda: north.link.name is None, SOON)
            middle.silent = False
            await until(lambda: "north" in server.service.sites)


@played
async def test_a_site_that_starts_before_its_server_connects_when_that_is_there(
    papers: Papers, tmp_path: Path
) -> None:
    port = free_port()
    async with attending(papers, "north", tmp_path / "north", f"127.0.0.1:{port}") as north:
        await until(lambda: north.notices)
        assert "no connection to the server" in north.notices[0]
        async with serving(papers, tmp_path / "server", port=port) as server:
            await until(lambda: "north" in server.service.sites)
