"""Processes killed with -9 at the worst moments: every answer is taken in exactly once."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deployment.wire.loopback_wire import Papers, digest
from tests.deployment.wire.wire_process import content

from fedcompass.deployment.supervision import free_port

ROOT = Path(__file__).parents[3]
LONGEST = 180.0  # seconds; only a failing test waits so long


class Pair:
    """A server and a site, each started again when it dies; `deaths` counts by name."""

    def __init__(self, folder: Path, tasks: int) -> None:
        self.folder, self.deaths = folder, {"server": 0, "site": 0}
        port = str(free_port())
        self._arguments = {"server": [str(folder), port, str(tasks)], "site": [str(folder), port]}
        self.processes = {name: self._start(name) for name in self._arguments}

    def _start(self, name: str) -> "subprocess.Popen[bytes]":
        module = "tests.deployment.wire.wire_process"
        command = [sys.executable, "-m", module, name, *self._arguments[name]]
        return subprocess.Popen(command, cwd=ROOT)

    def tend(self) -> bool:
        """Start again what was killed; whether the server is done."""
        for name, process in self.processes.items():
            code = process.poll()
            if code == -signal.SIGKILL:
                self.deaths[name] += 1
                self.processes[name] = self._start(name)
            elif code == 0:
                return True
            else:
                assert code is None, f"{name} ended with {code}"
        return False

    def until_done(self) -> None:
        ends = time.monotonic() + LONGEST
        while not self.tend():
            assert time.monotonic() < ends, "not done in time"
            time.sleep(0.02)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def records(self, name: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    Papers(tmp_path / "papers", "north")
    made = Pair(tmp_path, tasks=4)
    yield made
    made.stop()


def assert_all_taken_once(pair: Pair) -> None:
    expected = [{"task": n, "digest": digest(content(n))} for n in range(1, 5)]
    assert pair.records("accepted.jsonl") == expected


@pytest.mark.parametrize(
    ("moment", "who"),
    [
        ("before-event", "server"),
        ("after-event", "server"),
        ("training", "site"),
        ("answered", "site"),
    ],
)
def test_a_kill_at_the_worst_moment_loses_and_repeats_nothing(
    moment: str, who: str, pair: Pair
) -> None:
    (pair.folder / f"die-{moment}").touch()
    pair.until_done()
    assert pair.deaths[who] == 1
    assert_all_taken_once(pair)
    if moment != "training":  # what was on the site's disk is not trained again
        assert [record["task"] for record in pair.records("trained.jsonl")] == [1, 2, 3, 4]


def test_random_kills_of_both_lose_and_repeat_nothing(pair: Pair) -> None:
    chance, ends = random.Random(0), time.monotonic() + LONGEST
    for _ in range(6):
        time.sleep(chance.uniform(0.3, 1.5))
        victims = chance.choice([["server"], ["site"], ["server", "site"]])
        for name in victims:
            pair.processes[name].kill()
            pair.processes[name].wait()
        if pair.tend() or time.monotonic() > ends:
            break
    pair.until_done()
    assert_all_taken_once(pair)
