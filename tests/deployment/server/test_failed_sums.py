"""A federation whose server sees only sums, with sites that spoil them: what is lost, and said."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deployment.fake_network import (
    Clock,
    FakeNetwork,
    FakeSite,
    federation,
    run_until,
    settings,
)

from fedcompass.cli.deploy_progress import failed_sums
from fedcompass.deployment.operator.run_view import RunView
from fedcompass.deployment.server.audit_words import in_words
from fedcompass.deployment.server.federation import Federation
from fedcompass.deployment.wire.sum_parts import Begin
from fedcompass.deployment.wire.sum_rounds import RoundResult
from fedcompass.runs.replay import replay
from fedcompass.secure_aggregation.messages import RoundFailed, SumOpened

STRATEGIES: dict[str, dict[str, Any]] = {
    "fedavg": {"steps": 4},
    "fedbuff": {"steps": 4, "buffer_size": 4},
    "fedcompass": {"min_steps": 2, "max_steps": 8},
    "metronome": {"min_steps": 2, "max_steps": 8, "absent": "skip"},
}
Lies = Callable[[str, int], bool]  # a site, and the number of its sums so far


class Summing(FakeNetwork):
    """Sites that keep their updates, and mask them for sums; some mask wrongly."""

    def __init__(self, *names: str, lies: Lies = lambda *_: False) -> None:
        paces = (0.1, 0.17, 0.11, 0.13, 0.23, 0.19, 0.15)
        super().__init__(
            Clock(), {n: FakeSite(n, 10, p) for n, p in zip(names, paces, strict=False)}
        )
        self.lies = lies
        self.rounds: list[tuple[str, ...]] = []  # who took part in each
        self.failed: list[tuple[str, ...]] = []
        self.count: Counter[str] = Counter()
        self.revealed: dict[int, int] = {}  # by task, in which round
        self.merged: set[int] = set()
        self.named: dict[str, str] = {}

    def sum(self, begins: Mapping[str, Begin], phase_seconds: float) -> RoundResult:
        members = tuple(begins)
        assert len(members) >= 3
        self.rounds.append(members)
        self.count.update(members)
        tasks = [task for begin in begins.values() for task in begin.tasks]
        for task in tasks:
            assert task not in self.revealed, "an update is offered for one sum only"
            self.revealed[task] = len(self.rounds)
        liars = [name for name in members if self.lies(name, self.count[name])]
        if liars:
            self.failed.append(members)
            among = tuple(self.named) or members
            end = RoundFailed(context=b"", reason="a mask was left over", accused={}, among=among)
            return RoundResult(end, tasks, 10, 20, 0.5, self.named, among)
        self.merged.update(tasks)
        values = np.full(begins[members[0]].terms.length, 1e-3)
        opened = SumOpened(context=b"", members=members, values=values, accused={})
        return RoundResult(opened, [], 10, 20, 0.5)


def begun(folder: Path, network: Summing, name: str = "fedavg", **changes: Any) -> Federation:
    strategy = {"name": name, **STRATEGIES[name]}
    chosen = settings(strategy, secure={"enabled": True}, min_clients=len(network.sites), **changes)
    return federation(folder, network, chosen)


def audit_of(folder: Path, *what: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    return [line for line in lines if line["what"] in what]


def of(*pairs: tuple[str, int]) -> Lies:
    """Lies told by a site in its so-manieth sum."""
    return lambda name, number: (name, number) in pairs


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_run_has_as_many_versions_as_sums_that_were_opened(name: str, tmp_path: Path) -> None:
    network = Summing(*"abcde", lies=of(("a", 2), ("a", 5)))
    running = begun(tmp_path / "run", network, name, max_updates=9)
    summary = running.run()
    made = [line["version"] for line in audit_of(tmp_path / "run", "merged")]
    assert made == list(range(1, 10))
    assert summary.reason == "max_updates"
    assert summary.global_updates == 9
    assert len(audit_of(tmp_path / "run", "sum failed")) == len(network.failed) >= 1
    table = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert table["failed_merges"] == len(network.failed)
    replay(tmp_path / "run" / "journal.jsonl")


def test_it_is_said_that_a_sum_failed_who_took_part_and_what_is_lost(tmp_path: Path) -> None:
    network = Summing(*"abcd", lies=of(("b", 2)))
    network.named = {"b": "revealed wrong shares of ['a']"}
    running = begun(tmp_path / "run", network, max_updates=4)
    run_until(running, lambda _: len(network.failed) == 1)
    [failed] = audit_of(tmp_path / "run", "sum failed")
    assert failed["members"] == ["a", "b", "c", "d"]
    assert failed["lost"] == [["a", 5], ["c", 7], ["d", 8], ["b", 6]]
    assert failed["why"] == "a mask was left over"
    [accused] = audit_of(tmp_path / "run", "accused")
    assert (accused["who"], accused["why"]) == ("b", "revealed wrong shares of ['a']")
    view = RunView(tmp_path / "run")
    told = [words for line in view.refresh() if (words := in_words(line))]
    at = f"{failed['at']:7.1f} s"
    assert f"{at}  a sum of a, b, c, d failed; updates lost: a's 5, c's 7, d's 8, b's 6: " in (
        "\n".join(told)
    )
    assert f"{at}  b accused: revealed wrong shares of ['a']" in told
    assert failed_sums(view) == "1 sum failed, 4 updates lost"
    assert view.tally.version == 1
    running.close()


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_server_that_is_killed_around_failed_sums_goes_on_as_if_never_killed(
    name: str, tmp_path: Path
) -> None:
    """Its disk is copied after every step, and one that was killed there is resumed."""
    network = Summing(*"abcde", lies=of(("a", 2), ("d", 4)))
    running = begun(tmp_path / "run", network, name, max_updates=6)
    steps = 0
    while running.over is None:
        before = len(network.failed)
        running.step()
        steps += 1
        if len(network.failed) > before or steps % 97 == 0:
            expected = running.coordinator.scheduler.to_json()
            running.close()
            network.restart()
            again = federation(tmp_path / "run", network, running.settings, resume=True)
            assert json.dumps(again.coordinator.scheduler.to_json()) == json.dumps(expected)
            running = again
        running._pause(running._until_next())
    running.finish()
    assert len(network.failed) >= 2
    versions = [line["version"] for line in audit_of(tmp_path / "run", "merged")]
    assert versions == list(range(1, 7))
    lines = [json.loads(one) for one in (tmp_path / "run/journal.jsonl").read_text().splitlines()]
    in_merges = [
        task
        for line in lines
        if line.get("command") == "Commit" and "failed" not in line
        for _, task, _ in line["contributions"]
        if task not in line.get("left_out", ())
    ]
    assert sorted(in_merges) == sorted(network.merged)
    replay(tmp_path / "run" / "journal.jsonl")
