"""Sites that are admitted and do not keep to the rules: refused early, and the others go on."""

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.deployment.wire.loopback_wire import (
    MODEL,
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

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire import service
from fedcompass.deployment.wire.decoding import PIECE_BYTES
from fedcompass.deployment.wire.limits import Limits
from fedcompass.deployment.wire.service import FederationService
from fedcompass.deployment.wire.task_book import GivenTask

UNKNOWN = "this site has no task of this id"


@played
async def test_an_answer_to_another_sites_task_is_refused_and_the_task_goes_on(
    papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address) as north,
        calling(papers, "south", server.address) as south,
    ):
        task = server.give("north")
        reply = await south.submit(answer_to(task.id), *cut(UPDATE))
        assert reply.receipt == pb.Receipt(task=task.id, reason=UNKNOWN)
        with pytest.raises(grpc.aio.AioRpcError, match="no open task of this id"):
            await south.fetch(task.id)
        assert await north.fetch(task.id) == MODEL
        reply = await north.submit(answer_to(task.id), *cut(UPDATE))
        assert reply.receipt.accepted
        reply = await south.submit(answer_to(task.id))
        assert reply.receipt == pb.Receipt(task=task.id, reason=UNKNOWN)
        assert len(server.received) == 1


@played
async def test_a_repeated_answer_gets_its_old_receipt_and_other_content_a_refusal(
    papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address) as caller,
    ):
        task = server.give("north")
        first = await caller.submit(answer_to(task.id), *cut(UPDATE))
        assert await caller.submit(answer_to(task.id)) == first
        reply = await caller.submit(answer_to(task.id, MODEL))
        assert (reply.receipt.accepted, reply.receipt.reason) == (
            False,
            "this task was answered already, with other content",
        )
        assert len(server.received) == 1


@played
async def test_a_payload_of_the_wrong_size_or_form_is_refused_before_it_is_sent(
    papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address) as caller,
    ):
        wrong: list[dict[str, Any]] = [{"payload_bytes": 300_000_000}, {"form": "zip"}]
        for number, fields in enumerate(wrong, 1):
            task = server.give("north", number)
            await caller.submit(answer_to(task.id, **fields))
            received, _ = server.received[-1]
            assert received.payload is None
            assert received.problem is not None
        assert "300000000 bytes; this model's has 5120000" in str(server.received[0][0].problem)
        assert list((tmp_path / "server" / "uploads").iterdir()) == []


@played
async def test_more_bytes_than_announced_are_not_written(papers: Papers, tmp_path: Path) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address) as caller,
    ):
        task = server.give("north", payload_bytes=PIECE_BYTES + 1)
        answer = answer_to(task.id, payload_bytes=PIECE_BYTES + 1)
        with pytest.raises(grpc.aio.AioRpcError, match="more than the 1048577 bytes"):
            await caller.submit(answer, *cut(UPDATE))
        [part] = (tmp_path / "server" / "uploads").iterdir()
        assert part.stat().st_size == PIECE_BYTES


@played
async def test_bytes_with_another_digest_are_thrown_away(papers: Papers, tmp_path: Path) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address) as caller,
    ):
        task = server.give("north")
        with pytest.raises(grpc.aio.AioRpcError, match="do not have the digest") as raised:
            await caller.submit(answer_to(task.id, digest="f" * 64), *cut(UPDATE))
        assert raised.value.code() is grpc.StatusCode.DATA_LOSS
        assert list((tmp_path / "server" / "uploads").iterdir()) == []
        assert (await caller.submit(answer_to(task.id), *cut(UPDATE))).receipt.accepted


@played
async def test_answers_that_are_begun_again_and_again_leave_one_file_at_most(
    papers: Papers, tmp_path: Path
) -> None:
    uploads = tmp_path / "server" / "uploads"
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address) as north,
        calling(papers, "south", server.address) as south,
    ):
        await abandon(south, server.give("south"), b"x")
        first, second = server.give("north", 1), server.give("north", 2)
        for number in range(6):
            await abandon(north, first, bytes([number]))
            await abandon(north, second, bytes([number]))
            assert len(list(uploads.iterdir())) == 2  # one of each site
        assert (await north.submit(answer_to(first.id), *cut(UPDATE))).receipt.accepted
        assert (await north.submit(answer_to(second.id), *cut(UPDATE))).receipt.accepted
        assert len(list(uploads.iterdir())) == 1  # the south's


async def abandon(caller: Caller, task: GivenTask, first: bytes) -> None:
    """Begin an answer that nobody has announced before, and go away after a piece."""
    content = first + UPDATE[1:]
    call = caller.open_submit()
    await caller.write(call, answer_to(task.id, content))
    assert pb.AnswerReply.FromString(await call.read()).WhichOneof("kind") == "proceed"
    await caller.write_piece(call, content[:1000])
    call.cancel()


@played
async def test_an_answer_that_is_begun_beside_another_of_the_same_site_ends_that_one(
    papers: Papers, tmp_path: Path
) -> None:
    uploads = tmp_path / "server" / "uploads"
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address) as caller,
    ):
        task = server.give("north")
        older = caller.open_submit()
        await caller.write(older, answer_to(task.id, b"x" + UPDATE[1:]))
        await older.read()
        newer = caller.open_submit()
        await caller.write(newer, answer_to(task.id))
        await newer.read()
        for _ in range(2):
            await caller.write_piece(older, b"x" * 1000)
        with pytest.raises(grpc.aio.AioRpcError, match="is sending an answer anew") as raised:
            await to_end(older)
        assert raised.value.code() is grpc.StatusCode.ABORTED
        assert len(list(uploads.iterdir())) == 1
        for piece in cut(UPDATE):
            await caller.write_piece(newer, piece)
        assert pb.AnswerReply.FromString(await newer.read()).receipt.accepted


@played
async def test_what_is_left_of_begun_answers_is_removed_at_a_start(
    papers: Papers, tmp_path: Path
) -> None:
    uploads = tmp_path / "server" / "uploads"
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address) as caller,
    ):
        task = server.give("north")
        await abandon(caller, task, b"x")
        [part] = uploads.iterdir()
    for number in range(5):  # as of a server that had no limit
        (uploads / f"{task.id}.{number:016x}.part").write_bytes(b"x" * 1000)
        os.utime(uploads / f"{task.id}.{number:016x}.part", (number, number))
    (uploads / f"{'A' * 22}.{0:016x}.part").write_bytes(b"of a task that is over")
    async with serving(papers, tmp_path / "server"):
        assert list(uploads.iterdir()) == [part]


class SmallDisk:
    """Makes the disk under a server's uploads as small as a test wants."""

    def __init__(self, uploads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.size = 10**12
        self._uploads = uploads
        monkeypatch.setattr(shutil, "disk_usage", self._usage)

    def _usage(self, _: Path) -> SimpleNamespace:
        used = sum(path.stat().st_size for path in self._uploads.iterdir())
        return SimpleNamespace(free=self.size - used)


def test_an_answer_that_would_take_the_runs_room_waits_and_its_site_is_told_of(
    papers: Papers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SmallDisk(tmp_path / "server" / "uploads", monkeypatch)
    disk.size = 1_000_000 + 2 * len(UPDATE) - 1

    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server", kept_free=1_000_000) as server,
            calling(papers, "north", server.address) as north,
            attending(papers, "south", tmp_path / "south", server.address) as south,
        ):
            task = server.give("north")
            call = north.open_submit()
            await north.write(call, answer_to(task.id))
            await call.read()  # its bytes are counted before they come
            server.give("south")
            await until(lambda: server.remarks)
            assert server.remarks == [
                (
                    "must wait",
                    "south",
                    "the disk has no room for its answer of 5,120,000 bytes: "
                    f"{disk.size:,} are free, 1,000,000 of them for the run alone, and others are "
                    "sending; it tries again",
                )
            ]
            await until(lambda: any("no room for the answer" in line for line in south.notices))
            for piece in cut(UPDATE):
                await north.write_piece(call, piece)
            assert pb.AnswerReply.FromString(await call.read()).receipt.accepted
            await until(lambda: len(server.received) == 2)  # nobody had to do anything

    play(scene())


def test_what_a_site_has_begun_and_left_makes_room_for_others(
    papers: Papers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = tmp_path / "server" / "uploads"
    disk = SmallDisk(uploads, monkeypatch)

    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server", kept_free=1_000_000) as server,
            calling(papers, "north", server.address) as north,
            calling(papers, "south", server.address) as south,
        ):
            await abandon(north, server.give("north"), b"x")
            task = server.give("south")
            disk.size = 1_000_000 + len(UPDATE)
            assert (await south.submit(answer_to(task.id), *cut(UPDATE))).receipt.accepted
            assert server.remarks == []
            await abandon(north, server.service.open_tasks("north")[0], b"y")
            disk.size = 900_000  # something else fills the disk
            await until(lambda: not list(uploads.iterdir()))
            disk.size = 10**12
            await abandon(north, server.service.open_tasks("north")[0], b"z")
            assert len(list(uploads.iterdir())) == 1

            def has_aged_and_gone() -> bool:
                for path in uploads.iterdir():
                    with suppress(FileNotFoundError):
                        os.utime(path, (0, 0))  # so old is it
                return not list(uploads.iterdir())

            await until(has_aged_and_gone)

    play(scene())


def test_a_site_that_sends_a_byte_at_a_time_is_given_up(papers: Papers, tmp_path: Path) -> None:
    limits = Limits(grace=0.5, least_rate=1000.0)

    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server", limits) as server,
            calling(papers, "north", server.address) as caller,
        ):
            task = server.give("north")
            call = caller.open_submit()
            await caller.write(call, answer_to(task.id))
            await call.read()

            async def trickle() -> None:
                while not call.done():
                    await caller.write_piece(call, b"x")
                    await asyncio.sleep(0.02)

            trickling = asyncio.create_task(trickle())
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call.read()
            assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await trickling
            [part] = (tmp_path / "server" / "uploads").iterdir()
            assert part.stat().st_size < 100

    play(scene(), Limits().grace)  # sooner than by the usual limits


def test_a_site_that_stops_reading_its_model_is_given_up(
    papers: Papers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, given_up = FederationService._status, asyncio.Event()

    def status(self: FederationService, *failed: Any) -> Any:
        given_up.set()
        return usual(self, *failed)

    monkeypatch.setattr(FederationService, "_status", status)

    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server", Limits(stall=0.5)) as server,
            calling(papers, "north", server.address) as caller,
        ):
            task = server.give("north", model=bytes(64 << 20))
            call = caller.open_fetch(task.id)
            await call.read()
            await given_up.wait()
            with pytest.raises(grpc.aio.AioRpcError, match="too slow"):
                await to_end(call)

    play(scene())


@played
async def test_a_message_that_is_too_long_is_refused_by_its_length(
    papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address, unlimited=True) as caller,
    ):
        task = server.give("north")
        call = caller.open_submit()
        await caller.write(call, answer_to(task.id, error="x" * (PIECE_BYTES + 20_000)))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.received == []


@pytest.mark.parametrize("method", ["Attend", "FetchModel", "Submit"])
@played
async def test_garbage_ends_its_call_with_one_line(
    method: str, papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address) as caller,
    ):
        for garbage in (b"\xff" * 50, b"\x0a\x05\x0a\x03abc"):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await caller.send_raw(method, garbage)
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "\n" not in raised.value.details()


def test_a_site_that_says_a_wrong_hello_again_and_again_fills_no_log(
    papers: Papers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server") as server,
            calling(papers, "north", server.address) as north,
            calling(papers, "south", server.address) as south,
        ):
            wrong = hello(layout="1" * 64).SerializeToString()
            for _ in range(100):
                with pytest.raises(grpc.aio.AioRpcError, match="use the same app"):
                    await north.send_raw("Attend", wrong)
            with pytest.raises(grpc.aio.AioRpcError, match="use the same app"):
                await south.send_raw("Attend", wrong)
            told = "north: the site's model has other names, shapes or dtypes than the server's"
            assert [line.partition(";")[0] for line in server.notices[:5]] == [told] * 5
            assert [line.partition(":")[0] for line in server.notices[5:]] == ["south"]
            later = monotonic() + 61
            monkeypatch.setattr(service, "monotonic", lambda: later)
            await until(lambda: len(server.notices) > 6, 10)
            assert server.notices[6].startswith(told)
            assert server.notices[6].endswith(
                "(lines about north left out since the one before: 94)"
            )

    play(scene())


@played
async def test_an_unknown_method_is_refused(papers: Papers, tmp_path: Path) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        calling(papers, "north", server.address) as caller,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await caller.send_raw("Shutdown", b"")
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_flood_on_one_stream_is_read_slowly_and_others_are_served(
    papers: Papers, tmp_path: Path
) -> None:
    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server") as server,
            calling(papers, "south", server.address) as flooding,
            calling(papers, "north", server.address) as north,
        ):
            call = await flooding.attend(hello())
            beats = [pb.FromSite(heartbeat=pb.Heartbeat()).SerializeToString()] * 1000

            async def flood() -> None:
                for beat in beats:
                    await call.write(beat)

            flood_task = asyncio.create_task(flood())
            task = server.give("north")
            reply = await north.submit(answer_to(task.id), *cut(UPDATE))
            assert reply.receipt.accepted
            call.cancel()
            flood_task.cancel()
            await asyncio.wait([flood_task])

    play(scene())


@played
async def test_task_ids_are_long_and_random(papers: Papers, tmp_path: Path) -> None:
    async with serving(papers, tmp_path / "server") as server:
        ids = [server.give("north", number, model=b"m").id for number in range(20)]
        assert len(set(ids)) == 20
        assert {len(task) for task in ids} == {22}  # 128 bits
