"""A federation of real processes whose server sees only sums: a look through all that it wrote."""

import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from subprocess import Popen
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.deployment.endless_demo import ENDLESS, end_after

from fedcompass.deployment.operator.demo import Demo, DemoPlan
from fedcompass.deployment.operator.run_view import RunView
from fedcompass.errors import SettingsError
from fedcompass.runs.replay import replay
from fedcompass.secure_aggregation.fixed_point import FixedPoint

PLAN = DemoPlan(
    sites=3,
    slowest=2.0,
    strategies=("fedcompass",),
    target=1.0,
    seconds_per_step=0.004,
    min_steps=10,
    max_steps=40,
    max_updates=ENDLESS,
    secure=True,
)
WINDOW = 24  # values in a row: by chance no file has them


WATCH = """
import os, sys, time
from pathlib import Path

sites, copies = Path(sys.argv[1]), Path(sys.argv[2])
while True:
    kept, models = sites.glob("*/state/wire/kept/*.npz"), sites.glob("*/state/wire/models/*")
    for path in [*kept, *(path for path in models if not path.suffix)]:
        name = path.name if not path.suffix else f"{path.parts[-5]}.{path.name}"
        try:
            os.link(path, copies / name)
        except OSError:  # here already, or spent this moment
            pass
    time.sleep(0.002)
"""


class Spy:
    """Copies what the sites have, and all that the server writes, for as long as a demo runs.

    Sites keep an update for a moment only, so a process of its own watches them.
    """

    def __init__(self, home: Path, run: Path, folder: Path) -> None:
        self._own, self._run, self._folder = home / "federation", run, folder
        self._seen: dict[str, bytes] = {}  # what the server wrote, by digest
        folder.mkdir()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Watch the sites meanwhile."""
        with Popen([sys.executable, "-S", "-c", WATCH, self._own / "sites", self._folder]) as watch:
            try:
                yield
            finally:
                watch.kill()

    def look(self) -> None:
        for path in [*self._own.rglob("*"), *self._run.rglob("*")]:
            if path.is_relative_to(self._own / "sites"):
                continue
            with suppress(OSError):  # a folder, or removed meanwhile
                content = path.read_bytes()
                self._seen[hashlib.sha256(content).hexdigest()] = content

    def updates(self) -> dict[tuple[str, int], NDArray[np.float32]]:
        """Changes by site and task."""
        found = {}
        for path in self._folder.glob("*.npz"):
            with np.load(path) as arrays:
                site, task = path.name.split(".")[0], path.name.split(".")[-2]
                found[site, int(task)] = arrays["trainable"]
        return found

    def models(self) -> dict[str, NDArray[np.float32]]:
        """The versions that sites have fetched, by their digest; others are on their way."""
        paths = (path for path in self._folder.iterdir() if not path.suffix)
        return {path.name: np.frombuffer(path.read_bytes(), np.float32) for path in paths}

    def versions(self) -> dict[int, NDArray[np.float32]]:
        """The same by their version, which the server wrote into its record of tasks."""
        books = (content for content in self._seen.values() if content.startswith(b'{"given"'))
        lines = (line for book in books for line in book.splitlines(True) if line.endswith(b"\n"))
        tasks = [json.loads(line)["given"] for line in lines if line.startswith(b'{"given"')]
        models = self.models()
        return {task["version"]: models[task["model"]] for task in tasks if task["model"] in models}

    def finds(self, values: NDArray[np.floating], where: NDArray[np.bool_]) -> bool:
        """Whether the server has written pieces of a vector, as float32 or float64."""
        starts = [
            start
            for start in range(0, len(values) - WINDOW, WINDOW)
            if where[start : start + WINDOW].all()
        ][::37]
        assert starts, "the vector has no piece to look for"
        pieces = [
            values[start : start + WINDOW].astype(kind).tobytes()
            for start, kind in product(starts, (np.float32, np.float64))
        ]
        return any(piece in content for content in self._seen.values() for piece in pieces)


class Memory:
    """Looks through a server's memory for the updates that sites have kept so far."""

    def __init__(self, spy: Spy) -> None:
        self._spy, self._version = spy, 0
        self.looked_for: set[tuple[str, int]] = set()
        self.found: list[tuple[str, int]] = []
        self.model_seen = False

    def look(self, view: RunView, demo: Demo) -> None:
        """Once after each merge, with the server stopped meanwhile."""
        server = None if demo._server is None else demo._server.children["server"]
        if view.tally.version <= self._version or server is None:
            return
        self._spy.look()
        updates = self._spy.updates()
        models = self._spy.models().values()
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGSTOP)
        content = _memory_of(server)
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGCONT)
        self._version = view.tally.version
        self.model_seen |= any(_piece(model, model != 0) in content for model in models)
        for key, change in updates.items():
            self.looked_for.add(key)
            if any(_piece(form, change != 0) in content for form in (change, -change)):
                self.found.append(key)


def _piece(values: NDArray[np.float32], where: NDArray[np.bool_]) -> bytes:
    """Values in a row from the middle of a vector."""
    starts = range(0, len(values) - WINDOW, WINDOW)
    whole = [start for start in starts if where[start : start + WINDOW].all()]
    start = whole[len(whole) // 2]
    return values[start : start + WINDOW].astype(np.float32).tobytes()


def _memory_of(pid: int) -> bytes:
    """What a process has written into its memory, as far as it is there to be read."""
    pieces = []
    with suppress(OSError):  # it ends meanwhile
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            for line in (line for line in maps if line.split()[1].startswith("rw")):
                start, end = (int(number, 16) for number in line.split()[0].split("-"))
                with suppress(OSError):
                    memory.seek(start)
                    pieces.append(memory.read(end - start))
    return b"".join(pieces)


class Killer:
    """Kills a site after the first merge, and the server after the second."""

    def __init__(self) -> None:
        self.killed: list[str] = []

    def look(self, view: RunView, demo: Demo) -> None:
        view.refresh()
        site = demo._sites[0].children["site"]
        server = None if demo._server is None else demo._server.children["server"]
        if view.tally.version >= 1 and not self.killed and site is not None:
            self._kill("site", site)
        if view.tally.version >= 2 and self.killed == ["site"] and server is not None:
            end_after(view.tally.version + 6, demo)
            self._kill("server", server)

    def _kill(self, what: str, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.killed.append(what)


def test_the_server_of_a_secure_demo_sees_no_single_update_whoever_is_killed(
    tmp_path: Path,
) -> None:
    killer, run = Killer(), tmp_path / "runs" / "fedcompass"

    def watch(view: RunView) -> None:
        spy.look()
        killer.look(view, demo)
        if len(killer.killed) == 2:  # a look takes long; the run would be over before the kills
            memory.look(view, demo)

    with Demo(PLAN, tmp_path / "runs", lambda _: None, watch) as demo:
        spy = Spy(demo._home, run, tmp_path / "spied")
        memory = Memory(spy)
        with spy.beside():
            (done,) = demo.run()
        spy.look()
    assert killer.killed == ["site", "server"]
    assert memory.model_seen, "what is in the server's memory, is found"
    assert len(memory.looked_for) >= 3
    assert memory.found == [], "updates in the server's memory"
    assert done.summary["reason"] == "max_updates"
    assert done.summary["global_updates"] >= 8  # answers that came together all count
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    check_updates(spy, lines)
    check_sums(spy, lines)
    commits = [line for line in lines if line.get("command") == "Commit"]
    merged = [tuple(c) for line in commits for c in line["contributions"]]
    left_out = [task for line in commits for task in line.get("left_out", ())]
    counted = [task for _, task, _ in merged if task not in left_out]
    assert len(counted) == len(set(counted)), "an update was merged twice"
    versions = range(1, done.summary["global_updates"] + 1)
    made = [line["version"] for line in commits if "failed" not in line]
    assert made == list(versions)
    replay(run / "journal.jsonl")


def check_updates(spy: Spy, lines: list[dict[str, Any]]) -> None:
    """See that none of the sites' updates is in what the server wrote, in any form it could be."""
    updates = spy.updates()
    assert len(updates) >= 6, "the sites kept too few updates for this test to tell anything"
    weights = {(r["client"], r["task"]): r["weight"] for r in lines if r.get("command") == "Fold"}
    models = list(spy.models().values())
    assert any(spy.finds(model, model != 0) for model in models), "what is there, is found"
    for key, change in updates.items():
        forms = [change, -change, change * weights.get(key, 1.0)]
        forms += [model - change for model in models]
        assert not any(spy.finds(values, change != 0) for values in forms), key


def check_sums(spy: Spy, lines: list[dict[str, Any]]) -> None:
    """See that merges are what a plain server would have made of the same updates."""
    updates = spy.updates()
    weights = {(r["client"], r["task"]): r["weight"] for r in lines if r.get("command") == "Fold"}
    models = spy.versions()
    bound = FixedPoint(bits=32, clip=1.0, members=PLAN.sites).error_bound
    found = 0
    for commit in (line for line in lines if line.get("command") == "Commit"):
        left_out = commit.get("left_out", ())
        keys = [(c, task) for c, task, _ in commit["contributions"] if task not in left_out]
        before, after = (models.get(commit["version"] - ago) for ago in (1, 0))
        if before is None or after is None:  # no site fetched it, or it was gone before a look
            continue
        if keys and all(key in updates for key in keys):
            moved = sum(weights[key] * updates[key].astype(np.float64) for key in keys)
            assert np.abs(before - moved - after).max() <= bound + 1e-6, commit["version"]
            found += 1
    assert found, "no merge of which models and updates were seen at their sites"


def test_a_secure_demo_has_three_sites_or_more() -> None:
    with pytest.raises(SettingsError, match="sites is 2; allowed: 3 to 20 on one machine"):
        DemoPlan(sites=2, secure=True)
    with pytest.raises(SettingsError, match="'fedasync' merges every update by itself"):
        DemoPlan(strategies=("fedasync",), secure=True)
