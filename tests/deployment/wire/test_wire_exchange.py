"""A task and its answer over real sockets."""

import asyncio
import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from tests.deployment.wire.loopback_wire import (
    LONGEST,
    MODEL,
    UPDATE,
    Papers,
    answer_to,
    attending,
    calling,
    cut,
    digest,
    play,
    played,
    serving,
    to_end,
    until,
)

from fedcompass.deployment.supervision import free_port
from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.answers import Received, Verdict
from fedcompass.deployment.wire.arriving import ArrivingFile
from fedcompass.deployment.wire.outbox import Outbox
from fedcompass.errors import WorkerLost


@played
async def test_a_site_gets_its_task_and_model_and_the_server_its_answer(
    papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        attending(papers, "north", tmp_path / "north", server.address) as north,
    ):
        await until(lambda: "north" in server.service.sites)
        task = server.give("north")
        await until(lambda: server.received)
        [(received, content)] = server.received
        assert (received.task, content, received.problem) == (task, UPDATE, None)
        assert received.answer.steps_done == 3
        assert received.answer.digest == digest(UPDATE)
        [(seen, model)] = north.trained
        assert (seen.id, model) == (task.id, MODEL)
        await until(lambda: not list((tmp_path / "north" / "answers").iterdir()))
        assert list((tmp_path / "server" / "uploads").iterdir()) == []


@played
async def test_a_model_is_fetched_once_for_all_tasks_that_start_from_it(
    papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        attending(papers, "north", tmp_path / "north", server.address) as north,
    ):
        server.give("north", 1)
        await until(lambda: len(server.received) == 1)
        server.service.keep_models(set())  # who fetched it again would wait for ever
        first = server.received[0][0].task
        task = server.service.give(replace(first, id="B" * 22, number=2))
        await until(lambda: len(server.received) == 2)
        assert [model for _, model in north.trained] == [MODEL, MODEL]
        assert server.received[1][0].task == task


@played
async def test_a_model_whose_connection_closes_before_it_is_asked_for_is_fetched_on_the_next(
    papers: Papers, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        port, folder = free_port(), tmp_path / "server"
        async with serving(papers, folder, port=port) as server:
            to_site = attending(papers, "north", tmp_path / "north", server.address)
            site = await stack.enter_async_context(to_site)
            link = site.link
            closed, arriving = threading.Event(), link._models.arriving

            def arriving_late(digest: str, size: int) -> ArrivingFile:
                link._models.arriving = arriving  # type: ignore[method-assign]
                closed.wait()
                return arriving(digest, size)

            link._models.arriving = arriving_late  # type: ignore[method-assign]
            server.give("north")
            await until(lambda: link.task is not None)
        await until(lambda: link.name is None)
        closed.set()
        await asyncio.sleep(0.1)
        again = await stack.enter_async_context(serving(papers, folder, port=port))
        await until(lambda: "north" in again.service.sites)
        again.service.publish([MODEL])  # as a server that goes on with a run does
        await until(lambda: again.received)
        assert [content for _, content in again.received] == [UPDATE]
        assert not [line for line in site.notices if "did not arrive" in line]  # of each try


@played
async def test_a_site_that_was_away_gets_its_task_when_it_connects(
    papers: Papers, tmp_path: Path
) -> None:
    async with serving(papers, tmp_path / "server") as server:
        server.give("north")
        async with attending(papers, "north", tmp_path / "north", server.address):
            await until(lambda: server.received)


@played
async def test_a_server_whose_book_of_tasks_is_damaged_says_so_and_goes_on(
    papers: Papers, tmp_path: Path
) -> None:
    book = tmp_path / "server" / "tasks.jsonl"
    async with AsyncExitStack() as stack:
        async with serving(papers, tmp_path / "server") as server:
            address, port = server.address, server.port
            north = await stack.enter_async_context(
                attending(papers, "north", tmp_path / "north", address)
            )
            server.give("north", 1)
            await until(lambda: server.received)
            north.hold.clear()
            lost = server.give("north", 2)
            await until(lambda: len(north.trained) == 2)
        lines = book.read_bytes().splitlines(keepends=True)
        book.write_bytes(b"".join(line.replace(b'"number": 2', b'"number": 7') for line in lines))
        again = await stack.enter_async_context(serving(papers, tmp_path / "server", port=port))
        assert again.notices == [
            f"{book}: 1 damaged lines were left out; their tasks are given again, and nothing "
            "accepted is lost"
        ]
        north.hold.set()  # its answer is to a task that nobody knows
        await until(lambda: any("no task of this id" in line for line in north.notices))
        new = again.give("north", 2)
        await until(lambda: again.received)
        assert new.id != lost.id
        assert [received.task for received, _ in again.received] == [new]


@played
async def test_a_withdrawn_task_ends_its_training_and_its_answer_is_refused(
    papers: Papers, tmp_path: Path
) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        attending(papers, "north", tmp_path / "north", server.address) as north,
        calling(papers, "north", server.address) as caller,
    ):
        north.hold.clear()
        task = server.give("north")
        await until(lambda: north.trained)
        server.service.withdraw(task)
        await until(lambda: north.link.task is None)
        reply = await caller.submit(answer_to(task.id))
        assert reply.receipt == pb.Receipt(
            task=task.id, reason="it came too late: the task was given up"
        )
        assert server.received == []


@played
async def test_a_newer_task_ends_the_older_ones_training(papers: Papers, tmp_path: Path) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        attending(papers, "north", tmp_path / "north", server.address) as north,
    ):
        north.hold.clear()
        server.give("north", 1)
        await until(lambda: len(north.trained) == 1)
        server.give("north", 2)
        await until(lambda: len(north.trained) == 2)
        north.hold.set()
        await until(lambda: server.received)
        assert [received.task.number for received, _ in server.received] == [2]


@played
async def test_a_failed_task_is_told_in_one_line(papers: Papers, tmp_path: Path) -> None:
    async with (
        serving(papers, tmp_path / "server") as server,
        attending(papers, "north", tmp_path / "north", server.address) as north,
    ):
        outcomes: list[pb.Answer | Exception] = [
            pb.Answer(error="loss is nan\nat step 3"),
            WorkerLost("the worker died"),
            ZeroDivisionError("division by zero"),
        ]
        lines = [
            "loss is nan at step 3",
            "the worker died",
            "ZeroDivisionError: division by zero",
        ]

        async def fail(task: pb.Task, model: Path, payload: Path) -> pb.Answer:
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        north.link.train = fail
        for number, told in enumerate(lines, 1):
            server.give("north", number)
            await until(lambda number=number: len(server.received) == number)  # type: ignore[misc]
            received, content = server.received[-1]
            assert (received.answer.error, received.payload, content) == (told, None, None)


@played
async def test_a_failure_without_a_word_is_told_by_its_name(papers: Papers, tmp_path: Path) -> None:
    async def train(task: pb.Task, model: Path, payload: Path) -> pb.Answer:
        raise WorkerLost

    async with (
        serving(papers, tmp_path / "server") as server,
        attending(papers, "north", tmp_path / "north", server.address) as site,
    ):
        site.link.train = train
        server.give("north")
        await until(lambda: server.received)
        assert server.received[0][0].answer.error == "WorkerLost"


@played
async def test_a_site_that_cannot_read_its_own_models_says_so_and_goes_on(
    papers: Papers, tmp_path: Path
) -> None:
    def unreadable(_: str) -> None:
        link._models.whole = whole  # type: ignore[method-assign]
        raise PermissionError("models: permission denied")

    async with (
        serving(papers, tmp_path / "server") as server,
        attending(papers, "north", tmp_path / "north", server.address) as site,
    ):
        link, whole = site.link, site.link._models.whole
        link._models.whole = unreadable  # type: ignore[method-assign, assignment]
        server.give("north", 1)
        await until(lambda: server.received)
        assert server.received[0][0].answer.error == "PermissionError: models: permission denied"
        server.give("north", 2)
        await until(lambda: len(server.received) == 2)
        assert server.received[1][1] == UPDATE


@played
async def test_an_answer_that_cannot_be_written_down_is_sent_again(
    papers: Papers, tmp_path: Path
) -> None:
    async with serving(papers, tmp_path / "server") as server:
        receive, failures = server.answers.receive, [OSError(28, "No space left on device")] * 2

        async def full_at_first(received: Received) -> Verdict:
            if failures:
                raise failures.pop()
            return await receive(received)

        server.answers.receive = full_at_first
        async with attending(papers, "north", tmp_path / "north", server.address):
            server.give("north")
            await until(lambda: server.received)
            assert server.received[0][1] == UPDATE
            assert sum("No space left" in notice for notice in server.notices) == 2


def test_an_upload_that_the_server_ends_early_is_tried_again_on_the_same_connection(
    papers: Papers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, failures = ArrivingFile.add, [OSError(28, "No space left on device")] * 3

    def full_at_first(self: ArrivingFile, piece: bytes) -> None:
        if "uploads" in self.path.parts and self.offset > 0 and failures:
            raise failures.pop()
        add(self, piece)

    monkeypatch.setattr(ArrivingFile, "add", full_at_first)

    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server") as server,
            attending(papers, "north", tmp_path / "north", server.address) as site,
        ):
            server.give("north")
            await until(lambda: server.received)
            assert [content for _, content in server.received] == [UPDATE]
            connected, *tries = site.notices
            assert connected == "connected as north"
            # What the site hears depends on whether its next piece was under way.
            assert len(tries) == 3
            assert set(tries) <= {
                "no connection to the server: the server cannot go on now; try again",
                "the server ended a call before all was sent (its log may say why); trying again",
            }
            told = "the server could not serve north: [Errno 28] No space left on device"
            assert server.notices == [told] * 3

    play(scene())


@played
async def test_an_upload_goes_on_where_its_connection_broke(papers: Papers, tmp_path: Path) -> None:
    async with serving(papers, tmp_path / "server") as server:
        task = server.give("north")
        first = cut(UPDATE)[:2]
        async with calling(papers, "north", server.address) as caller:
            call = caller.open_submit()
            await caller.write(call, answer_to(task.id), *first)
            await call.done_writing()  # the server waits for more: it has not ended the call
            with pytest.raises(grpc.aio.AioRpcError, match="send the rest"):
                await to_end(call)
        async with calling(papers, "north", server.address) as caller:
            reply = await caller.submit(answer_to(task.id))
            assert reply.proceed.offset == sum(map(len, first))
        async with calling(papers, "north", server.address) as caller:
            reply = await caller.submit(answer_to(task.id), *cut(UPDATE)[2:])
            assert reply.receipt.accepted
        assert [content for _, content in server.received] == [UPDATE]


@played
async def test_a_server_that_restarts_knows_its_tasks_and_receipts(
    papers: Papers, tmp_path: Path
) -> None:
    async with serving(papers, tmp_path / "server") as server:
        done, left = server.give("north", 1), server.give("north", 2)
        async with calling(papers, "north", server.address) as caller:
            reply = await caller.submit(answer_to(done.id), *cut(UPDATE))
    async with serving(papers, tmp_path / "server") as server:
        assert server.give("north", 2) == left
        async with calling(papers, "north", server.address) as caller:
            assert await caller.submit(answer_to(done.id)) == reply
        async with attending(papers, "north", tmp_path / "north", server.address):
            await until(lambda: server.received)
        assert [received.task for received, _ in server.received] == [left]


@played
async def test_a_site_that_restarts_sends_the_answer_it_kept_without_training_again(
    papers: Papers, tmp_path: Path
) -> None:
    async with serving(papers, tmp_path / "server") as server:
        slow = asyncio.Event()
        receive = server.answers.receive

        async def receive_late(received: Received) -> Verdict:
            await slow.wait()
            return await receive(received)

        server.answers.receive = receive_late
        async with attending(papers, "north", tmp_path / "north", server.address):
            server.give("north")
            await until(lambda: list((tmp_path / "north" / "answers").glob("*.answer")))
        async with attending(papers, "north", tmp_path / "north", server.address) as again:
            slow.set()
            await until(lambda: not list((tmp_path / "north" / "answers").iterdir()))
            assert again.trained == []
        assert [content for _, content in server.received] == [UPDATE]


def test_an_answer_is_forced_to_the_sites_disk_only_if_its_receipt_is_slow_to_come(
    papers: Papers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[str] = []

    def note(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.parent == tmp_path / "north" / "answers":
            forced.append(path.name)

    monkeypatch.setattr("os.fsync", note)
    delay = "fedcompass.deployment.wire.site_link._FORCED_AFTER"
    monkeypatch.setattr(delay, LONGEST)

    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server") as server,
            attending(papers, "north", tmp_path / "north", server.address),
        ):
            server.give("north", 1)
            await until(lambda: server.received)
            await until(lambda: not list((tmp_path / "north" / "answers").iterdir()))
            assert forced == []
            monkeypatch.setattr(delay, 0.0)
            receive, slow = server.answers.receive, asyncio.Event()

            async def receive_late(received: Received) -> Verdict:
                await slow.wait()
                return await receive(received)

            server.answers.receive = receive_late
            task = server.give("north", 2)
            await until(lambda: len(forced) == 2)
            slow.set()
            await until(lambda: len(server.received) == 2)
            assert forced == [f"{task.id}.payload", f"{task.id}.answer"]

    play(scene())


def test_a_site_whose_disk_is_full_for_a_while_keeps_its_answer(
    papers: Papers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, failures = Outbox.keep, [OSError(28, "No space left on device")]

    def full_at_first(self: Outbox, answer: pb.Answer) -> None:
        if failures:
            raise failures.pop()
        keep(self, answer)

    monkeypatch.setattr(Outbox, "keep", full_at_first)

    async def scene() -> None:
        async with (
            serving(papers, tmp_path / "server") as server,
            attending(papers, "north", tmp_path / "north", server.address) as north,
        ):
            server.give("north")
            await until(lambda: server.received)
            assert len(north.trained) == 1
            assert any("No space left on device" in notice for notice in north.notices)

    play(scene())
