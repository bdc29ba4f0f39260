"""Runs to show, and a real browser to show them in."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.simulation.tiny_runs import eventful, problem

from fedcompass.report import LiveServer, RunFiles, find_runs, write_report
from fedcompass.report.recording import new_record
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.simulation.run import simulate
from fedcompass.simulation.timetable import timetable

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")

PATIENCE = 60_000  # milliseconds: a machine with other work to do is slow
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; a machine without one skips these tests, but never CI.

    Playwright's event loop is this thread's as long as it is open: no test of another module that
    a process runs after these could have one of its own.
    """
    found = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if found is None:
        reason = f"no browser: none of {', '.join(CHROMIUMS)} is on the path (apt install chromium)"
        if os.environ.get("CI"):
            pytest.fail(f"{reason}; CI must have one")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def complaints() -> list[str]:
    """What the browser complained about; a test that uses `open_page` fails if there is any."""
    return []


@pytest.fixture
def open_page(browser: Browser, complaints: list[str]) -> Iterator[Callable[..., Page]]:
    """Opens a file or address and waits until all of it is drawn."""
    pages: list[Page] = []

    def opened(
        place: Path | str, *, width: int = 1280, dark: bool = False, before: str = ""
    ) -> Page:
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        page.set_default_timeout(PATIENCE)
        pages.append(page)
        page.on("console", lambda m: complaints.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if before:
            page.add_init_script(before)
        page.goto(place if isinstance(place, str) else place.resolve().as_uri())
        page.evaluate("fedcompass.ready")
        return page

    yield opened
    for page in pages:
        page.close()
    assert complaints == []


@pytest.fixture(scope="session")
def eventful_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in which clients come and go, measured per client."""
    folder = tmp_path_factory.mktemp("runs") / "eventful"
    simulate(eventful("fedcompass"), problem=problem(), folder=folder)
    return folder


def report_of(*folders: Path, to: Path) -> Path:
    return write_report(find_runs(folders), to)


def scheduled(folder: Path, *, clients: int, until: float) -> Path:
    """A schedule of so many clients, one to four times apart, with paces that vary a little."""
    settings = CompassSettings(min_steps=20, max_steps=100, min_clients=clients)
    journal = new_record(folder, settings, seed=0, unit="s")
    timetable_of = timetable(
        Scheduler(Compass(settings)),
        {str(client): 50 for client in range(clients)},
        lambda client, r: 0.02 * (1 + int(client) % 4) * (1 + 0.01 * ((7 * r + int(client)) % 5)),
        until,
        journal=journal,
    )
    for _ in timetable_of:
        pass
    journal.close()
    return folder


@contextmanager
def served(runs: list[RunFiles], port: int = 0, **options: Any) -> Iterator[LiveServer]:
    """A live server in a thread; port 0: any that is free."""
    with LiveServer(runs, port=port, **options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def clients_of(folder: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads((folder / "clients.json").read_text())
    return records
