"""docs/one-update.md: every name on it exists, and a run of each kind calls them in its order."""

import asyncio
import inspect
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.deployment.site_apps import SITE, CountingTrainer, app_with, samples
from tests.deployment.wire.loopback_wire import Papers
from tests.simulation.tiny_runs import experiment, problem

import fedcompass
from fedcompass.aggregation.layout import Layout
from fedcompass.deployment.app.app_file import AppFile
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.server.grpc_transport import GrpcTransport
from fedcompass.deployment.server.serve import serve
from fedcompass.deployment.site.site_worker import SiteWorker
from fedcompass.deployment.site.worker_link import WorkerLink
from fedcompass.deployment.supervision import Program
from fedcompass.deployment.wire.site_link import SiteLink

PAGE = Path(__file__).parent.parent / "docs" / "one-update.md"
SOURCE = Path(fedcompass.__file__).parent
STEPS = 10
SOON = 30.0


def names_on_the_page(*whose: str) -> list[tuple[str, str]]:
    """(file, name) of the steps' lists for these drivers, in the page's order."""
    found = []
    for item in re.findall(r"^- ([\w ]+): ((?:.+\n)(?:  .+\n)*)", PAGE.read_text(), re.MULTILINE):
        if item[0] not in whose:
            continue
        file = ""
        for word in re.findall(r"`([^`]+)`", item[1]):
            if word.endswith(".py"):
                file = word
            else:
                found.append((file, word))
    return found


def function_of(file: str, name: str) -> Any:
    found: Any = import_module("fedcompass." + file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)
    return found


def test_the_page_has_ten_steps_and_each_says_where_it_happens() -> None:
    steps = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    numbered = [step for step in steps if re.match(r"\d+\. ", step)]
    assert [int(step.split(".")[0]) for step in numbered] == list(range(1, STEPS + 1))
    for step in numbered:
        drivers = set(re.findall(r"^- (both|virtual time|wall clock): ", step, re.MULTILINE))
        assert "both" in drivers or drivers == {"virtual time", "wall clock"}, step


@pytest.mark.parametrize(
    ("file", "name"), names_on_the_page("both", "virtual time", "wall clock"), ids=str
)
def test_every_file_and_name_on_the_page_exists(file: str, name: str) -> None:
    assert (SOURCE / file).is_file()
    found = function_of(file, name)
    assert Path(inspect.getsourcefile(found) or "") == SOURCE / file


def test_the_names_outside_the_steps_exist_too() -> None:
    for file, name in re.findall(r"\(`([\w/]+\.py)` `([\w.]+)`\)", PAGE.read_text()):
        assert function_of(file, name)


@contextmanager
def traced(calls: list[CodeType]) -> Iterator[None]:
    """Note every call of a Python function, in this thread and those that it starts."""

    def note(frame: FrameType, what: str, _: object) -> None:
        if what == "call":
            calls.append(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def assert_in_order(names: list[tuple[str, str]], calls: list[CodeType]) -> None:
    """Each function is called after the one before it was."""
    rest = iter(calls)
    for file, name in names:
        code = inspect.unwrap(function_of(file, name)).__code__
        assert any(called is code for called in rest), f"{name} ({file}) is not called in its place"


def once(names: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without what is for later orders only."""
    return [entry for entry in names if entry[1] != "Compass._assign"]


def test_a_simulation_calls_them_in_this_order() -> None:
    chosen = experiment("fedcompass", fleet={"clients": 1, "paces": [0.1]}, max_updates=1)
    calls: list[CodeType] = []
    with traced(calls):
        fedcompass.simulate(chosen, problem=problem(1))
    assert_in_order(once(names_on_the_page("both", "virtual time")), calls)


class WorkerInThisProcess(WorkerLink):
    """A worker in a thread, whose calls are seen here."""

    def __init__(self, app: AppFile, folder: Path) -> None:
        super().__init__(Program("worker", "none", folder / "log"))
        self._worker = SiteWorker(app, SITE)

    async def _one_life(self) -> None:
        ours, theirs = socket.socketpair()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        thread = threading.Thread(target=self._worker.serve, args=(theirs,))
        thread.start()
        try:
            await self._listen(reader)
        finally:
            self._writer.close()
            await asyncio.to_thread(thread.join, SOON)
            theirs.close()


@contextmanager
def site(app: AppFile, papers: Papers, folder: Path, port: int) -> Iterator[None]:
    """A site's side of the wire, in a thread."""
    loop, ended = asyncio.new_event_loop(), asyncio.Event()

    async def take_part() -> None:
        worker = WorkerInThisProcess(app, folder)
        working = asyncio.create_task(worker.run())
        facts = await worker.up()
        link = SiteLink(
            folder / "wire",
            f"127.0.0.1:{port}",
            papers.identity("north"),
            samples=facts.samples,
            layout=facts.layout,
            train=worker.train,
        )
        attending = asyncio.create_task(link.run())
        await ended.wait()
        for task in (attending, working):
            task.cancel()
            await asyncio.wait([task])

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(take_part())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(SOON)


def test_a_federation_calls_them_in_this_order(tmp_path: Path) -> None:
    app = app_with(CountingTrainer())
    app._module.test_set = samples  # type: ignore[attr-defined]
    settings = FederationSettings(
        strategy={"name": "fedcompass", "min_steps": 2, "max_steps": 4},
        min_clients=1,
        max_updates=1,
        watch_interval=0.05,
    )
    calls: list[CodeType] = []
    papers = Papers(tmp_path / "papers", "north")
    with traced(calls):
        transport = GrpcTransport(
            tmp_path / "server",
            papers.roster,
            Layout.of(app.model()),
            papers.server,
            "127.0.0.1:0",
        )
        try:
            with site(app, papers, tmp_path, transport.port):
                serve(settings, app, transport, tmp_path / "run", pause=transport.wait)
        finally:
            transport.close()
    assert_in_order(once(names_on_the_page("both", "wall clock")), calls)
