"""docs/one-update.md: every name on it exists, and a run of each kind calls them in its order."""

import inspect
import re
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.deployment.site_apps import SITE, CountingTrainer, app_with, samples
from tests.simulation.tiny_runs import experiment, problem

import fedcompass
from fedcompass.deployment.app.app_file import AppFile
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.server.serve import serve
from fedcompass.deployment.site import forwarder
from fedcompass.deployment.site.site_worker import SiteWorker
from fedcompass.deployment.site.worker_socket import listen_at
from fedcompass.deployment.wire.messages import Arrays, Facts, Kind
from fedcompass.deployment.wire.transport import Reply

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


class OneSite:
    """A `Transport` to one worker on this machine, which answers as it is asked."""

    def __init__(self, place: Path) -> None:
        self._place, self._numbers = place, count()
        self._replies: dict[str, Reply] = {}

    def nodes(self) -> set[int]:
        return {1}

    def push(self, node: int, kind: Kind, facts: Facts, arrays: Arrays | None, ttl: float) -> str:
        message = str(next(self._numbers))
        told, answered = (
            (forwarder.query(self._place, facts), {})
            if arrays is None
            else forwarder.train(self._place, facts, arrays)
        )
        self._replies[message] = Reply(message, node, answered, told, None)
        return message

    def pull(self, messages: Collection[str]) -> list[Reply]:
        return [self._replies.pop(message) for message in messages if message in self._replies]


@contextmanager
def site(app: AppFile) -> Iterator[Path]:
    """A worker that serves at a socket, whose path is short, as sockets need it."""
    with TemporaryDirectory(prefix="fc") as folder:
        worker, place = SiteWorker(app, SITE), Path(folder) / "s"
        listener = listen_at(place)
        thread = threading.Thread(target=worker.serve, args=(listener,))
        thread.start()
        try:
            yield place
        finally:
            worker.stop()
            thread.join(SOON)
            listener.close()


def test_a_federation_calls_them_in_this_order(tmp_path: Path) -> None:
    app = app_with(CountingTrainer())
    app._module.test_set = samples  # type: ignore[attr-defined]
    settings = FederationSettings(
        strategy={"name": "fedcompass", "min_steps": 2, "max_steps": 4},
        min_clients=1,
        max_updates=1,
        poll_interval=0.01,
    )
    calls: list[CodeType] = []
    with traced(calls), site(app) as place:
        serve(settings, app, OneSite(place), tmp_path / "run")
    assert_in_order(once(names_on_the_page("both", "wall clock")), calls)
