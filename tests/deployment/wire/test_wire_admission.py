"""Who is let in: a listed certificate of the federation's own CA, and nobody else."""

import asyncio
import shutil
import socket
import ssl
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import grpc
import pytest
from tests.deployment.wire.loopback_wire import (
    UPDATE,
    Caller,
    Papers,
    answer_to,
    attending,
    calling,
    cut,
    hello,
    play,
    played,
    serving,
    to_end,
    until,
)

from fedcompass.deployment.wire import site_roster
from fedcompass.deployment.wire.connections import Identity, listen, open_channel
from fedcompass.deployment.wire.limits import Limits
from fedcompass.errors import ProjectError

QUICK = Limits(heartbeat=0.2, silence=2.0, handshake=1.0, connections=64)


async def status_of(identity: Identity, address: str) -> tuple[grpc.StatusCode, str]:
    async with open_channel(address, identity) as channel:
        call = await Caller(channel).attend(hello())
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await to_end(call)
    return raised.value.code(), raised.value.details()


def test_only_a_certificate_of_the_federations_own_authority_gets_through_the_handshake(
    papers: Papers, tmp_path: Path
) -> None:
    foreign = Papers(tmp_path / "foreign", "north")
    stolen_name = Identity(papers.server.authority, *foreign_files(foreign))
    if not (papers.folder / "late").exists():
        papers.certify("late", days=-2)

    async def scene() -> None:
        async with serving(papers, tmp_path / "server") as server:
            for stranger in (stolen_name, papers.identity("late")):
                async with open_channel(server.address, stranger) as channel:
                    with pytest.raises(grpc.aio.AioRpcError) as raised:
                        await Caller(channel).send_raw("Attend", hello().SerializeToString())
                assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
            assert server.service.sites == {}

    play(scene())


def foreign_files(foreign: Papers) -> tuple[Path, Path]:
    identity = foreign.identity("north")
    return identity.certificate, identity.key


@played
async def test_a_caller_without_a_certificate_gets_nothing(papers: Papers, tmp_path: Path) -> None:
    async with serving(papers, tmp_path / "server") as server:
        context = ssl.create_default_context(cafile=str(papers.server.authority))
        context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
        )
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        came = b""
        with suppress(ssl.SSLError, ConnectionError):
            came = await reader.read(100)
        assert came == b""
        writer.close()


def test_a_certificate_that_is_not_on_the_roster_is_told_so(tmp_path: Path) -> None:
    papers = Papers(tmp_path / "papers", "north", "south")
    papers.list_only("north")

    async def scene() -> None:
        async with serving(papers, tmp_path / "server") as server:
            code, told = await status_of(papers.identity("south"), server.address)
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert "not on the server's roster" in told

    play(scene())


def test_a_site_is_added_and_revoked_without_a_restart(tmp_path: Path) -> None:
    papers = Papers(tmp_path / "papers", "north", "south")
    papers.list_only("north")

    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server") as server,
            attending(papers, "north", tmp_path / "north", server.address) as north,
            attending(papers, "south", tmp_path / "south", server.address) as south,
        ):
            await until(lambda: set(server.service.sites) == {"north"})
            papers.list_only("north", "south")
            await until(lambda: set(server.service.sites) == {"north", "south"})
            papers.list_only("south")
            await until(lambda: set(server.service.sites) == {"south"}, Limits().silence)
            await until(lambda: any("not on the server's roster" in n for n in north.notices))
            assert south.link.name == "south"

    play(scene())


def test_a_revoked_sites_upload_is_cut_off_in_its_midst(tmp_path: Path) -> None:
    papers = Papers(tmp_path / "papers", "north", "south")

    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server") as server,
            calling(papers, "north", server.address) as caller,
        ):
            task = server.give("north")
            call = caller.open_submit()
            await caller.write(call, answer_to(task.id), cut(UPDATE)[0])
            papers.list_only("south")
            with pytest.raises(grpc.aio.AioRpcError, match="not on the server's roster"):
                await to_end(call)

    play(scene())


@pytest.mark.parametrize(
    ("damaged", "told"),
    [
        ("north = [", "not TOML"),
        ("north = " + "[" * 5000 + "]" * 5000, "not TOML"),
        (f"north = [{'9' * 5000}]", "not TOML"),
        (f"north = [0x{'f' * 5000}]", "'a int' is no SHA-256 fingerprint"),
    ],
    ids=["cut off", "5,000 lists in each other", "an integer of 5,000 digits", "a hexadecimal one"],
)
def test_a_damaged_roster_changes_nothing_until_it_is_mended(
    damaged: str, told: str, tmp_path: Path
) -> None:
    papers = Papers(tmp_path / "papers", "north")

    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server") as server,
            attending(papers, "north", tmp_path / "north", server.address),
        ):
            await until(lambda: "north" in server.service.sites)
            papers.roster.write_text(damaged)
            await until(lambda: server.notices, 10)
            assert told in server.notices[0]
            assert "the sites stay as they were until it is mended" in server.notices[0]
            assert "north" in server.service.sites
            papers.roster.write_text("")
            await until(lambda: not server.service.sites, 10)

    play(scene())


def test_whatever_a_look_at_the_roster_raises_is_said_and_the_next_look_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    papers = Papers(tmp_path / "papers", "north", "south")

    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server") as server,
            attending(papers, "north", tmp_path / "north", server.address),
        ):
            await until(lambda: "north" in server.service.sites)
            with monkeypatch.context() as patched:
                patched.setattr(site_roster, "read_roster", lambda _: 1 // 0)
                papers.list_only("south")
                await until(lambda: server.notices, 10)
            assert "ZeroDivisionError" in server.notices[0]
            papers.list_only("south", "north")
            papers.list_only("south")
            await until(lambda: not server.service.sites, 10)

    play(scene())


@played
async def test_a_second_process_with_the_same_certificate_is_refused(
    papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        attending(papers, "north", tmp_path / "one", server.address) as one,
    ):
        await until(lambda: one.link.name)
        code, told = await status_of(papers.identity("north"), server.address)
        assert code is grpc.StatusCode.ALREADY_EXISTS
        assert "another process is connected as north" in told
        assert one.link.name == "north"


@played
async def test_a_second_process_is_told_of_once_the_first_is_found_alive_and_when_it_takes_over(
    papers: Papers, tmp_path: Path
) -> None:
    async with serving(papers, tmp_path / "server", QUICK) as server, AsyncExitStack() as second:
        own, address = server.service.sites, server.address
        async with attending(papers, "north", tmp_path / "one", address, limits=QUICK) as one:
            await until(lambda: one.link.name)
            copy = attending(papers, "north", tmp_path / "two", address, limits=QUICK)
            two = await second.enter_async_context(copy)
            await until(lambda: server.remarks)
            what, site, why = server.remarks[-1]
            assert (what, site, two.link.name) == ("second process", "north", None)
            assert f"turned away; the one that is connected is from {own['north'].address}" in why
        await until(lambda: two.link.name)
        what, _, why = server.remarks[-1]
        assert what == "second process"
        assert why.startswith(f"from {own['north'].address}; the one before it was from 127.0.0.1:")
        assert "whose place it has taken; stop one of them" in why


@played
async def test_a_site_that_is_started_anew_is_said_to_have_connected_anew(
    papers: Papers, tmp_path: Path
) -> None:
    async with serving(papers, tmp_path / "server") as server:
        for _ in range(2):
            async with attending(papers, "north", tmp_path / "one", server.address):
                await until(lambda: "north" in server.service.sites)
            await until(lambda: not server.service.sites)
        assert [remark[:2] for remark in server.remarks] == [("connected anew", "north")]


@played
async def test_the_same_process_that_connects_anew_replaces_its_old_stream(
    papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address) as caller,
    ):
        first = await caller.attend(hello())
        await first.read()
        before = server.service.sites["north"]
        second = await caller.attend(hello())
        await second.read()
        assert await first.read() is grpc.aio.EOF
        assert server.service.sites["north"] is not before


@pytest.mark.parametrize(
    ("fields", "told"),
    [({"protocol": 2}, "speaks protocol 2"), ({"layout": "f" * 64}, "other names, shapes")],
)
@played
async def test_a_site_of_another_version_or_model_is_told_so(
    fields: dict[str, object], told: str, papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address) as caller,
    ):
        call = await caller.attend(hello(**fields))
        with pytest.raises(grpc.aio.AioRpcError, match=told):
            await call.read()
        assert server.service.sites == {}


@played
async def test_half_open_and_garbage_connections_are_dropped_and_sites_go_on(
    papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server", QUICK) as server,
        attending(papers, "north", tmp_path / "north", server.address, limits=QUICK),
    ):
        await until(lambda: "north" in server.service.sites)
        strangers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        for number, stranger in enumerate(strangers):
            stranger.setblocking(False)
            if number % 2:
                with_garbage(stranger)
        server.give("north")
        await until(lambda: server.received)
        await until(lambda: all(is_closed(stranger) for stranger in strangers))
        async with attending(papers, "south", tmp_path / "south", server.address):
            await until(lambda: "south" in server.service.sites)
        for stranger in strangers:
            stranger.close()


def with_garbage(stranger: socket.socket) -> None:
    with suppress(OSError):
        stranger.send(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))


def is_closed(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(1000) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("damaged", ["site.crt", "site.key"])
@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_a_site_tries_again_while_its_certificate_is_being_replaced(
    damaged: str, content: bytes | None, tmp_path: Path
) -> None:
    own = Papers(tmp_path / "papers", "north")
    path = own.folder / "north" / damaged
    whole = path.read_bytes()

    async def scene() -> None:
        async with serving(own, tmp_path / "server") as server:
            path.unlink() if content is None else path.write_bytes(content)
            async with attending(own, "north", tmp_path / "north", server.address) as north:
                await until(lambda: any("ask for it again" in told for told in north.notices))
                path.write_bytes(whole)
                await until(lambda: "north" in server.service.sites)

    play(scene())


@played
async def test_one_certificate_has_only_so_many_connections(papers: Papers, tmp_path: Path) -> None:
    async with serving(papers, tmp_path / "server", Limits(site_connections=2)) as server:
        task = server.give("north")
        async with AsyncExitStack() as open_ones:
            for number in range(3):
                channel = open_channel(server.address, papers.identity("north"))
                caller = Caller(await open_ones.enter_async_context(channel))
                call = caller.open_submit()
                await caller.write(call, answer_to(task.id))
                if number < 2:
                    await call.read()
            with pytest.raises(grpc.aio.AioRpcError, match="has 2 connections open"):
                await call.read()


@played
async def test_two_servers_do_not_share_a_port_or_a_folder(papers: Papers, tmp_path: Path) -> None:
    async with serving(papers, tmp_path / "server") as server:
        with pytest.raises(ProjectError, match="cannot listen at"):
            await listen(server.service.handler(), server.address, papers.server, Limits())
        with pytest.raises(BlockingIOError):
            async with serving(papers, tmp_path / "server"):
                pass


def test_a_server_with_a_damaged_certificate_says_so(papers: Papers, tmp_path: Path) -> None:
    shutil.copy(papers.server.authority, tmp_path / "server.key")
    broken = Identity(papers.server.authority, papers.server.certificate, tmp_path / "server.key")

    async def scene() -> None:
        async with serving(papers, tmp_path / "server") as server:
            with pytest.raises(ProjectError, match="damaged or do not belong together"):
                await listen(server.service.handler(), "127.0.0.1:0", broken, Limits())

    play(scene())
