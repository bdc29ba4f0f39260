"""The live page in a real browser, while a run goes on."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.deployment.fake_network import Clock, FakeNetwork, federation, run_until, settings, sites
from tests.report.conftest import report_of, served
from tests.report.test_page_in_browser import EVIL, hover, named_run
from tests.simulation.tiny_runs import experiment, problem

from fedcompass.deployment.supervision import free_port
from fedcompass.report import RunFiles
from fedcompass.simulation.engine import Simulation
from fedcompass.simulation.run import simulate

Open = Callable[..., Page]

TASKS = "fedcompass.state.runs[0].tasks.size"
SEEN = """() => ({
  title: document.title, summary: document.querySelector("#summary").textContent,
  main: document.querySelector("main").textContent,
  sums: fedcompass.state.runs[0].lanes.map((l) => [l.client, l.steps, l.weight.toFixed(6), l.tasks.length]),
})"""  # noqa: E501


class SlowRun:
    """A run in a thread that stops after some events until it is told to go on."""

    def __init__(self, folder: Path, *, stops_after: int) -> None:
        self._left = stops_after
        self._stopped, self._may_go_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(folder,))
        self._thread.start()
        assert self._stopped.wait(60)

    def _run(self, folder: Path) -> None:
        chosen = experiment(evaluation={"per_client": True}, horizon=3.0)
        simulate(
            chosen,
            problem=problem(),
            folder=folder,
            checkpoint_every=0.0,
            on_progress=self._after_event,
        )

    def _after_event(self, _simulation: Simulation) -> None:
        self._left -= 1
        if self._left == 0:
            self._stopped.set()
            assert self._may_go_on.wait(120)

    def go_on(self) -> None:
        self._may_go_on.set()
        self._thread.join()


def test_the_page_grows_with_its_run_and_ends_up_like_the_report(
    tmp_path: Path, open_page: Open
) -> None:
    folder = tmp_path / "run"
    run = SlowRun(folder, stops_after=12)
    try:
        with served([RunFiles(folder)]) as server:
            page = open_page(server.url)
            page.wait_for_function(f"() => {TASKS} > 4")
            expect(page.locator("#status")).to_have_text("live")
            page.locator("#steps rect.bar").first.wait_for()
            early = page.evaluate(TASKS)
            run.go_on()
            page.wait_for_function(f"() => {TASKS} > {early}")
            expect(page.locator("#status")).to_have_text("finished")
            page.wait_for_function("() => fedcompass.settled()")
            live = page.evaluate(SEEN)
    finally:
        run.go_on()
    report = open_page(report_of(folder, to=tmp_path / "report.html"))
    assert live == report.evaluate(SEEN)


def test_the_page_goes_on_when_its_server_comes_back(
    tmp_path: Path, open_page: Open, complaints: list[str]
) -> None:
    folder = tmp_path / "run"
    run = SlowRun(folder, stops_after=12)
    try:
        port = free_port()
        with served([RunFiles(folder)], port) as server:
            page = open_page(server.url)
            page.wait_for_function(f"() => {TASKS} > 4")
            page.evaluate("fedcompass.mark = fedcompass.state.runs[0].lanes[0]")
        expect(page.locator("#status")).to_have_text("reconnecting…")
        run.go_on()
        with served([RunFiles(folder)], port):
            expect(page.locator("#status")).to_have_text("finished")
        kept = page.evaluate("fedcompass.mark === fedcompass.state.runs[0].lanes[0]")
        assert kept, "the page began anew instead of going on"
        assert page.evaluate("fedcompass.state.runs[0].damaged") == 0
    finally:
        run.go_on()
    assert all("net::ERR" in text for text in complaints)
    complaints.clear()


def test_a_client_with_markup_for_a_name_does_no_harm_live(tmp_path: Path, open_page: Open) -> None:
    run = RunFiles(named_run(tmp_path / "run", EVIL))
    with served([run]) as server:
        page = open_page(server.url)
        page.wait_for_function(f"() => {TASKS} === 2")
        page.wait_for_function("() => fedcompass.settled()")
        assert EVIL in hover(page, "(task) => true")
        assert page.locator("main img").count() == 0
        assert page.evaluate("[...document.scripts].filter((s) => !s.type).length") == 1


def test_a_page_with_a_token_gets_its_news(tmp_path: Path, open_page: Open) -> None:
    run = RunFiles(named_run(tmp_path / "run", "site-a"))
    with served([run], host="0.0.0.0") as server:
        page = open_page(f"http://127.0.0.1:{server.server_port}/?token={server.token}")
        page.wait_for_function(f"() => {TASKS} === 2")


def test_the_page_of_a_running_federation_neither_judges_it_yet_nor_guesses_wildly(
    tmp_path: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it is opened: the first groups are of one site each, and merge sooner."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    limits: dict[str, Any] = {
        "max_updates": 60,
        "max_seconds": 900.0,
        "target": 0.9,
        "min_clients": 4,
    }
    network = FakeNetwork(Clock(), sites(0.1, 0.2, 0.3, 0.4))
    running = federation(
        tmp_path / "run", network, settings(**limits), evaluate=lambda *_: {"accuracy": 0.2}
    )

    def until_version(version: int) -> None:
        run_until(running, lambda federation: federation.coordinator.version >= version)

    guesses = {}
    with served([RunFiles(tmp_path / "run")]) as server:
        for version in range(20, 60, 10):
            until_version(version)
            page = open_page(server.url)
            page.wait_for_function(f"() => fedcompass.state.runs[0].merges.length === {version}")
            page.wait_for_function("() => fedcompass.settled()")
            told = page.locator("#progress").inner_text()
            guess = re.fullmatch(
                rf"{version / 60:.0%} done, about (?:(\d+) min )?(\d+) s left", told
            )
            assert guess is not None, told
            guesses[running.now()] = 60 * int(guess[1] or 0) + int(guess[2])
        expect(page.locator("#summary")).to_contain_text(
            "The model has not reached the target of 90.0% accuracy yet; it got to 20.0% at best "
            "so far, while"
        )
        expect(page.locator("#curves .notes")).to_contain_text("has not reached 90.0% yet")
        end = running.run().seconds
        expect(page.locator("#summary")).to_contain_text(
            "The model did not reach the target of 90.0% accuracy; it got to 20.0% at best, while"
        )
    assert guesses == {at: pytest.approx(end - at, rel=0.2) for at in guesses}
