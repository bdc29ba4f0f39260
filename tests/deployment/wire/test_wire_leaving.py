"""A site whose privacy budget is spent: it hands in what it has, says so, and goes."""

import asyncio
from pathlib import Path

from tests.deployment.wire.loopback_wire import (
    UPDATE,
    Papers,
    Site,
    attending,
    played,
    serving,
    until,
)

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.outbox import Outbox

WHY = "budget spent: epsilon is 3.98 of 4, and one more step would exceed it"


class SpentSite(Site):
    """Answers one task, and has spent its budget then."""

    async def train(self, task: pb.Task, model: Path, payload: Path) -> pb.Answer:
        answer = await super().train(task, model, payload)
        answer.epsilon, answer.delta = 2.5, 1e-5
        if len(self.trained) == 1:
            return answer
        return pb.Answer(error=WHY, budget_spent=True, epsilon=3.98, delta=1e-5)


def keep(folder: Path, answer: pb.Answer) -> None:
    """Leave an answer at a site, as if it had been trained before."""
    outbox = Outbox(folder / "answers")
    outbox.trained(answer.task).write_bytes(UPDATE)
    outbox.keep(answer)


@played
async def test_an_answer_says_what_is_spent_and_the_last_one_ends_the_link_after_its_receipt(
    papers: Papers, tmp_path: Path
) -> None:
    async with serving(papers, tmp_path / "server") as server:
        site = SpentSite(papers, "north", tmp_path / "north", server.address)
        running = asyncio.create_task(site.link.run())
        for number in (1, 2):
            server.give("north", number)
            await until(lambda number=number: len(server.received) == number)  # type: ignore[misc]
        assert await running == WHY
        first, last = (received.answer for received, _ in server.received)
        assert (first.epsilon, first.delta, first.budget_spent) == (2.5, 1e-5, False)
        assert (last.epsilon, last.delta, last.budget_spent) == (3.98, 1e-5, True)
        assert last.error == WHY
        assert list((tmp_path / "north" / "answers").iterdir()) == []
        await until(lambda: not server.service.sites)


@played
async def test_a_site_that_starts_with_nothing_left_answers_its_open_task_and_fetches_no_model(
    papers: Papers, tmp_path: Path
) -> None:
    async with serving(papers, tmp_path / "server") as server:
        server.give("north")
        site = Site(papers, "north", tmp_path / "north", server.address, leaving=WHY)
        assert await site.link.run() == WHY
        [(received, _)] = server.received
        assert (received.answer.error, received.answer.budget_spent) == (WHY, True)
        assert site.trained == []
        assert list((tmp_path / "north" / "models").iterdir()) == []
        assert server.service.sites == {}
        assert server.notices == [f"north takes no part: {WHY}"]


@played
async def test_what_was_trained_before_is_handed_in_first(papers: Papers, tmp_path: Path) -> None:
    async with serving(papers, tmp_path / "server") as server:
        task = server.give("north")
        keep(tmp_path / "north", pb.Answer(task=task.id, form="model", steps_done=3))
        site = Site(papers, "north", tmp_path / "north", server.address, leaving=WHY)
        assert await site.link.run() == WHY
        assert [content for _, content in server.received] == [UPDATE]


@played
async def test_a_site_that_starts_with_nothing_left_waits_for_no_server(
    papers: Papers, tmp_path: Path
) -> None:
    site = Site(papers, "north", tmp_path / "north", "127.0.0.1:9", leaving=WHY)
    assert await site.link.run() == WHY
    assert "no connection to the server" in site.notices[0]


@played
async def test_nor_for_one_that_is_gone_before_it_has_heard_why(
    papers: Papers, tmp_path: Path
) -> None:
    keep(tmp_path / "north", pb.Answer(task="t" * 22, error=WHY, budget_spent=True))
    site = Site(papers, "north", tmp_path / "north", "127.0.0.1:9", leaving=WHY)
    assert await site.link.run() == WHY


@played
async def test_but_for_one_that_is_to_get_an_answer(papers: Papers, tmp_path: Path) -> None:
    keep(tmp_path / "north", pb.Answer(task="t" * 22, form="model", steps_done=3))
    async with attending(papers, "north", tmp_path / "north", "127.0.0.1:9", leaving=WHY) as site:
        await until(lambda: site.notices)
        await asyncio.sleep(1.0)
        assert "t" * 22 in site.link._outbox.waiting
