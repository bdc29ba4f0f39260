"""The transport over real sockets: what the loop sees of a site, and receipts."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import torch
from tests.deployment.exactly_once import audit, check_exactly_once
from tests.deployment.fake_network import INITIAL, LAYOUT, settings, trained
from tests.deployment.wire.loopback_wire import Papers

from fedcompass.deployment.server import grpc_transport
from fedcompass.deployment.server.federation import Federation
from fedcompass.deployment.server.grpc_transport import GrpcTransport
from fedcompass.deployment.supervision import free_port
from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.payloads import (
    Form,
    layout_digest,
    payload_pieces,
    read_payload,
)
from fedcompass.deployment.wire.site_link import SiteLink
from fedcompass.deployment.wire.transport import Assignment, Greeting, Reply
from fedcompass.errors import LayoutMismatch, ProjectError

pytestmark = pytest.mark.usefixtures("quick_disk")
SOON = 120.0  # seconds; only a failing test waits so long


class Site:
    """A site in a thread of its own; `spoil` changes its answers, `hold` keeps them back."""

    def __init__(
        self, papers: Papers, name: str, folder: Path, port: int, samples: int = 10
    ) -> None:
        self.tasks: list[pb.Task] = []
        self.notices: list[str] = []
        self.spoil: Callable[[Path], pb.Answer | None] = lambda _: None
        self.hold = threading.Event()
        self.hold.set()
        self._make: Callable[[], SiteLink] = lambda: SiteLink(
            folder,
            f"127.0.0.1:{port}",
            papers.identity(name),
            samples=samples,
            layout=layout_digest(LAYOUT),
            train=self.train,
            notice=self.notices.append,
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._loop, self._ended = asyncio.new_event_loop(), asyncio.Event()

        async def attend() -> None:
            self.link = self._make()
            running = asyncio.create_task(self.link.run())
            await self._ended.wait()
            running.cancel()
            await asyncio.wait([running])

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(attend())

    async def train(self, task: pb.Task, model: Path, payload: Path) -> pb.Answer:
        self.tasks.append(task)
        while not self.hold.is_set():
            await asyncio.sleep(0.01)
        start = read_payload(model, LAYOUT, "model", LAYOUT.empty())
        end = trained(start, task.number, task.steps)
        payload.write_bytes(b"".join(payload_pieces(LAYOUT, task.form, end, start)))
        usual = pb.Answer(steps_done=task.steps, seconds=0.01, samples=10, loss=0.5)
        return self.spoil(payload) or usual

    @property
    def unanswered(self) -> int:
        """Answers that have no receipt."""
        return len(self.link._outbox.waiting)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(SOON)


@contextmanager
def serving(
    papers: Papers, folder: Path, port: int = 0, form: Form = "model"
) -> Iterator[GrpcTransport]:
    transport = GrpcTransport(
        folder, papers.roster, LAYOUT, papers.server, f"127.0.0.1:{port}", form=form
    )
    try:
        yield transport
    finally:
        transport.close()


@contextmanager
def attending(
    papers: Papers, name: str, folder: Path, port: int, samples: int = 10
) -> Iterator[Site]:
    site = Site(papers, name, folder, port, samples)
    try:
        yield site
    finally:
        site.stop()


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path / "papers", "north", "south")


def until(holds: Callable[[], object]) -> None:
    end = monotonic() + SOON
    while not holds():
        assert monotonic() < end, "it did not happen"
        sleep(0.01)


def push(transport: GrpcTransport, number: int, node: str = "north", steps: int = 3) -> str:
    assignment = Assignment(task=number, steps=steps, version=number, run="trial", model=INITIAL)
    message = transport.push(node, assignment)
    assert message is not None
    return message


def pulled(transport: GrpcTransport, *messages: str) -> Reply:
    found: list[Reply] = []

    def pull() -> bool:
        found.extend(transport.pull(messages))
        return bool(found)

    until(pull)
    (reply,) = found
    return reply


def test_a_site_is_known_by_its_certificate_and_what_it_said_when_it_came(
    papers: Papers, tmp_path: Path
) -> None:
    with serving(papers, tmp_path / "s") as transport:
        assert transport.greeting("north") is None
        with attending(papers, "north", tmp_path / "n", transport.port, samples=77):
            until(lambda: transport.nodes() == {"north"})
            greeting = transport.greeting("north")
            assert greeting is not None
            assert greeting == Greeting("north", 77, greeting.address)
            assert str(greeting.address).startswith("127.0.0.1:")
        until(lambda: transport.nodes() == set())


@pytest.mark.parametrize("form", ["model", "change-bfloat16"])
def test_a_task_comes_back_with_the_sites_model(papers: Papers, tmp_path: Path, form: Form) -> None:
    with (
        serving(papers, tmp_path / "s", form=form) as transport,
        attending(papers, "north", tmp_path / "n", transport.port) as site,
    ):
        until(lambda: transport.nodes())
        reply = pulled(transport, push(transport, 7))
        assert (reply.node, reply.error) == ("north", None)
        assert (reply.task, reply.steps_done) == (7, 3)
        assert reply.payload is not None
        state = reply.payload.state(LAYOUT, INITIAL)
        expected = trained(INITIAL, 7, 3)
        exact = form == "model"
        torch.testing.assert_close(
            state.trainable, expected.trainable, rtol=0, atol=0.0 if exact else 0.01
        )
        assert torch.equal(state.counted, expected.counted)
        transport.wait(0.0)
        until(lambda: site.unanswered == 0)


def test_a_site_gets_its_receipt_when_the_loop_has_gone_on_and_not_before(
    papers: Papers, tmp_path: Path
) -> None:
    with (
        serving(papers, tmp_path / "s") as transport,
        attending(papers, "north", tmp_path / "n", transport.port) as site,
    ):
        until(lambda: transport.nodes())
        pulled(transport, push(transport, 1))
        sleep(0.3)
        assert site.unanswered == 1
        transport.pull([])
        until(lambda: site.unanswered == 0)


def test_waiting_ends_when_an_answer_arrives(papers: Papers, tmp_path: Path) -> None:
    with (
        serving(papers, tmp_path / "s") as transport,
        attending(papers, "north", tmp_path / "n", transport.port),
    ):
        until(lambda: transport.nodes())
        message, began = push(transport, 1), monotonic()
        while not transport.pull([message]):
            transport.wait(SOON)
        assert monotonic() - began < SOON / 2


def test_a_server_that_stops_ends_its_calls_without_an_error_in_its_log(
    papers: Papers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(papers, tmp_path / "s") as transport:
        sites = [Site(papers, name, tmp_path / name, transport.port) for name in ("north", "south")]
        try:
            until(lambda: len(transport.nodes()) == 2)
            pulled(transport, push(transport, 1))  # north waits for the receipt
            transport.close()
        finally:
            for site in sites:
                site.stop()
    assert [site.unanswered for site in sites] == [1, 0]
    assert [record.getMessage() for record in caplog.records] == []


def test_an_answer_without_a_receipt_comes_again_to_the_next_server(
    papers: Papers, tmp_path: Path
) -> None:
    port = free_port()
    with serving(papers, tmp_path / "s", port) as first:
        site = Site(papers, "north", tmp_path / "n", port)
        try:
            until(lambda: first.nodes())
            message = push(first, 1)
            pulled(first, message)
            first.close()  # it died before anything was on disk
            with serving(papers, tmp_path / "s", port) as second:
                until(lambda: second.nodes())
                assert push(second, 1) == message
                pulled(second, message)
                second.wait(0.0)
                until(lambda: site.unanswered == 0)
                assert len(site.tasks) == 1
        finally:
            site.stop()


def test_an_answer_that_nobody_asks_for_gets_a_receipt_that_says_so(
    papers: Papers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_transport, "_NOBODY_ASKS", 0.2)
    with (
        serving(papers, tmp_path / "s") as transport,
        attending(papers, "north", tmp_path / "n", transport.port) as site,
    ):
        until(lambda: transport.nodes())
        push(transport, 1)

        def is_told() -> bool:
            assert transport.pull([]) == []
            return any("nobody waits for this answer" in line for line in site.notices)

        until(is_told)
        until(lambda: site.unanswered == 0)


def test_a_newer_task_takes_the_place_of_one_that_was_given_up(
    papers: Papers, tmp_path: Path
) -> None:
    with (
        serving(papers, tmp_path / "s") as transport,
        attending(papers, "north", tmp_path / "n", transport.port) as site,
    ):
        until(lambda: transport.nodes())
        site.hold.clear()
        old = push(transport, 1)
        until(lambda: len(site.tasks) == 1)
        new = push(transport, 2)
        until(lambda: len(site.tasks) == 2)
        site.hold.set()
        assert pulled(transport, old, new).message == new


def test_a_payload_of_another_size_is_not_sent_and_cannot_be_read(
    papers: Papers, tmp_path: Path
) -> None:
    with (
        serving(papers, tmp_path / "s") as transport,
        attending(papers, "north", tmp_path / "n", transport.port) as site,
    ):
        until(lambda: transport.nodes())
        site.spoil = lambda payload: pb.Answer(steps_done=payload.write_bytes(bytes(12345)))
        reply = pulled(transport, push(transport, 1))
        assert reply.payload is not None
        assert reply.payload.size == 12345
        with pytest.raises(LayoutMismatch, match="the payload has 12345 bytes"):
            reply.payload.state(LAYOUT, INITIAL)


def test_a_task_that_failed_is_an_error_in_the_sites_words(papers: Papers, tmp_path: Path) -> None:
    with (
        serving(papers, tmp_path / "s") as transport,
        attending(papers, "north", tmp_path / "n", transport.port) as site,
    ):
        until(lambda: transport.nodes())
        site.spoil = lambda _: pb.Answer(error="app.py:3: no scanner")
        reply = pulled(transport, push(transport, 1))
        assert (reply.error, reply.payload) == ("app.py:3: no scanner", None)


def test_a_second_server_on_the_folder_or_the_port_is_refused(
    papers: Papers, tmp_path: Path
) -> None:
    with serving(papers, tmp_path / "s") as transport:
        with (
            pytest.raises(ProjectError, match="another process serves sites from"),
            serving(papers, tmp_path / "s"),
        ):
            pass
        with (
            pytest.raises(ProjectError, match="cannot listen at"),
            serving(papers, tmp_path / "t", transport.port),
        ):
            pass


def test_a_federation_over_it_counts_every_update_once(papers: Papers, tmp_path: Path) -> None:
    chosen = settings(watch_interval=0.05)
    with (
        serving(papers, tmp_path / "s") as transport,
        attending(papers, "north", tmp_path / "n", transport.port),
        attending(papers, "south", tmp_path / "m", transport.port),
    ):
        federation = Federation(
            chosen, LAYOUT, INITIAL.clone(), transport, tmp_path / "run", pause=transport.wait
        )
        summary = federation.run()
    assert summary.global_updates >= 6  # answers that came together all count
    assert {line["who"] for line in audit(tmp_path / "run", "accepted")} == {"north", "south"}
    check_exactly_once(tmp_path / "run", chosen)


@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "fedcompass", "min_steps": 2, "max_steps": 10},
        {"name": "fedavg", "steps": 4},
        {"name": "fedasync", "steps": 4},
    ],
    ids=lambda strategy: strategy["name"],
)
def test_an_answer_that_was_taken_in_but_has_no_receipt_counts_once_after_a_crash(
    papers: Papers, tmp_path: Path, strategy: dict[str, Any]
) -> None:
    """The server dies again and again between the event's last byte and the receipt."""
    chosen, run = settings(strategy, max_updates=9, watch_interval=0.02), tmp_path / "run"
    port, crashes = free_port(), 0
    with (
        attending(papers, "north", tmp_path / "n", port) as north,
        attending(papers, "south", tmp_path / "m", port) as south,
    ):
        while not (run / "summary.json").exists():
            with serving(papers, tmp_path / "s", port) as transport:
                federation = Federation(
                    chosen, LAYOUT, INITIAL.clone(), transport, run, resume=crashes > 0
                )
                before = len(audit(run, "accepted"))
                while federation.over is None and len(audit(run, "accepted")) < before + 2:
                    federation.step()
                    sleep(0.005)
                if federation.over is None:
                    federation.close()
                    crashes += 1
                else:
                    federation.finish()
    assert crashes > 2
    refused = [n for site in (north, south) for n in site.notices if "refused an answer" in n]
    assert refused == []  # all of them count
    check_exactly_once(run, chosen)
