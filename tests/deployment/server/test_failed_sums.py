"""A federation whose server sees only sums, with sites that spoil them: what is lost, and said."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
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
from fedcompass.deployment.server.readmission import put_request
from fedcompass.deployment.wire.sum_parts import Begin
from fedcompass.deployment.wire.sum_rounds import RoundResult
from fedcompass.deployment.wire.transport import NodeId
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

    def attending(self) -> set[NodeId]:
        return set(self.connected)

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
    failed = audit_of(tmp_path / "run", "sum failed")
    assert len([line for line in failed if line["members"]]) == len(network.failed) >= 1
    table = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert table["failed_merges"] == len(failed)
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
    at, lost = f"{failed['at']:7.1f} s", "a's 5, c's 7, d's 8, b's 6"
    said = f"{at}  a sum of a, b, c, d failed; b spoiled it; updates lost: {lost}: "
    assert any(line.startswith(said) for line in told)
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


def always(*liars: str) -> Lies:
    return lambda name, _: name in liars


def quarantined(running: Federation) -> list[str]:
    members = running.coordinator.scheduler.roster.members.values()
    return [member.client for member in members if member.quarantined]


@pytest.mark.parametrize("sites", ["abcd", "abcde", "abcdefg"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_site_that_spoils_every_sum_is_found_and_the_run_goes_on_without_it(
    name: str, sites: str, tmp_path: Path
) -> None:
    network = Summing(*sites, lies=always("c"))
    running = begun(tmp_path / "run", network, name, max_updates=12)
    summary = running.run()
    assert quarantined(running) == ["c"]
    assert summary.global_updates == 12
    [found] = audit_of(tmp_path / "run", "spoiler found")
    assert found["who"] == "c"
    assert found["why"].startswith("it alone was in all sums that failed")
    assert len(network.failed) <= 4
    assert len({frozenset(members) for members in network.failed}) == len(network.failed), "differ"
    for members in network.rounds[1:]:
        assert len(members) >= 3
    after = [m for m in network.rounds if network.rounds.index(m) > len(network.rounds) - 3]
    assert all("c" not in members for members in after)
    failed = audit_of(tmp_path / "run", "sum failed")
    assert failed[-1]["among"] == ["c"]
    replay(tmp_path / "run" / "journal.jsonl")


@pytest.mark.parametrize("seed", range(4))
def test_a_site_that_lies_now_and_then_is_found_and_never_another(
    seed: int, tmp_path: Path
) -> None:
    """Also where it lies only together with a site that it wants to be found in its place."""
    random = Random(seed)
    network = Summing(*"abcde")

    def lies(name: str, _: int) -> bool:
        return name == "b" and ("d" in network.rounds[-1] if seed % 2 else random.random() < 0.5)

    network.lies = lies
    running = begun(tmp_path / "run", network, "fedbuff", max_updates=60)
    run_until(running, lambda f: bool(quarantined(f)) or f.over is not None, 40_000)
    assert quarantined(running) in (["b"], [])
    if not seed % 2:
        assert quarantined(running) == ["b"]
    running.close()


def test_one_sum_that_failed_puts_nobody_into_quarantine(tmp_path: Path) -> None:
    network = Summing(*"abcde", lies=of(("b", 2)))
    running = begun(tmp_path / "run", network, max_updates=20)
    running.run()
    assert quarantined(running) == []
    assert len(network.failed) == 1
    assert len(network.rounds[-1]) == 5, "in the end all are asked together again"


@pytest.mark.parametrize("name", STRATEGIES)
def test_with_three_members_the_run_pauses_and_says_what_to_do(name: str, tmp_path: Path) -> None:
    network = Summing(*"abc", lies=always("b"))
    running = begun(tmp_path / "run", network, name, max_updates=8)
    run_until(running, lambda _: bool(audit_of(tmp_path / "run", "paused")))
    rounds, trained = len(network.rounds), None
    for _ in range(600):
        running.step()
        running._pause(running._until_next())
    trained = [len(site.tasks) for site in network.sites.values()]
    for _ in range(600):
        running.step()
        running._pause(running._until_next())
    assert len(network.rounds) == rounds == 2
    assert [len(site.tasks) for site in network.sites.values()] == trained, "nobody trains on"
    assert all(
        count <= 2 + rounds
        for count in Counter(
            fold.client for fold in running.coordinator.scheduler.pending()
        ).values()
    )
    [paused] = audit_of(tmp_path / "run", "paused")
    assert paused["sites"] == ["a", "b", "c"]
    assert "fedcompass deploy add-site" in paused["why"]
    view = RunView(tmp_path / "run")
    assert any("paused: a, b, c: one of them" in (in_words(one) or "") for one in view.refresh())
    replay(tmp_path / "run" / "journal.jsonl")
    # A fourth site comes: sums differ, the liar is found, and the run ends as it should.
    network.sites["d"] = FakeSite("d", 10, 0.1)
    network.connected.add("d")
    run_until(running, lambda f: f.over is not None, 20_000)
    assert quarantined(running) == ["b"]
    assert running.coordinator.version == 8
    running.finish()
    replay(tmp_path / "run" / "journal.jsonl")


def test_an_operator_who_has_found_the_cause_lets_a_paused_run_go_on(tmp_path: Path) -> None:
    network = Summing(*"abc", lies=always("b"))
    running = begun(tmp_path / "run", network, max_updates=5)
    run_until(running, lambda _: bool(audit_of(tmp_path / "run", "paused")))
    running.close()
    network.restart()
    running = federation(tmp_path / "run", network, running.settings, resume=True)
    network.lies = always()
    for _ in range(300):
        running.step()
        running._pause(running._until_next())
    assert running.coordinator.version == 0
    put_request(tmp_path / "run", "a", "operator")
    run_until(running, lambda f: f.over is not None)
    assert running.coordinator.version == 5
    assert [line["who"] for line in audit_of(tmp_path / "run", "readmitted")] == ["a"]
    running.finish()


def test_what_is_known_of_a_liar_survives_a_restart(tmp_path: Path) -> None:
    network = Summing(*"abcde", lies=always("e"))
    running = begun(tmp_path / "run", network, max_updates=30)
    while not quarantined(running):
        rounds = len(network.rounds)
        while len(network.rounds) == rounds and not quarantined(running):
            running.step()
            running._pause(running._until_next())
        known = running.coordinator._summed.search.to_json()  # type: ignore[union-attr]
        running.close()
        network.restart()
        running = federation(tmp_path / "run", network, running.settings, resume=True)
        assert running.coordinator._summed.search.to_json() == known  # type: ignore[union-attr]
    assert quarantined(running) == ["e"]
    running.close()


def test_a_site_that_is_named_twice_is_found_though_three_cannot_do_without_it(
    tmp_path: Path,
) -> None:
    network = Summing(*"abc", lies=always("b"))
    network.named = {"b": "revealed wrong shares of ['a']"}
    running = begun(tmp_path / "run", network, max_updates=5)
    run_until(running, lambda f: bool(quarantined(f)))
    assert quarantined(running) == ["b"]
    assert len(network.failed) == 2
    running.close()
