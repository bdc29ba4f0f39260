"""A federation over a network of our own making, in virtual time."""

from dataclasses import replace
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.exactly_once import audit, check_exactly_once, records
from tests.deployment.fake_network import (
    Clock,
    FakeNetwork,
    federation,
    run_until,
    settings,
    sites,
)

from fedcompass.aggregation.layout import FlatState
from fedcompass.deployment.server.federation import Federation
from fedcompass.errors import RunFolderError, SettingsError
from fedcompass.runs.journal import read_journal

pytestmark = pytest.mark.usefixtures("quick_disk")

STRATEGIES: list[dict[str, Any]] = [
    {"name": "fedcompass", "min_steps": 2, "max_steps": 10},
    {"name": "fedcompass+m", "min_steps": 2, "max_steps": 10},
    {"name": "fedcompass+n", "min_steps": 2, "max_steps": 10},
    {"name": "fedavg", "steps": 4},
    {"name": "fedavgm", "steps": 4},
    {"name": "fedadam", "steps": 4},
    {"name": "fedyogi", "steps": 4},
    {"name": "fedadagrad", "steps": 4},
    {"name": "fedasync", "steps": 4},
    {"name": "fedasync", "steps": 4, "variant": "share"},
    {"name": "fedbuff", "steps": 4, "buffer_size": 2},
    {"name": "fedbuff", "steps": 4, "buffer_size": 2, "variant": "share"},
    {"name": "fedat", "steps": 4},
    {"name": "fedat", "steps": 4, "profiling": "tasks"},
]


def network_of(*paces: float) -> FakeNetwork:
    return FakeNetwork(Clock(), sites(*paces))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: "-".join(map(str, s.values())))
def test_every_strategy_runs_to_its_end(tmp_path: Path, strategy: dict[str, Any]) -> None:
    chosen = settings(strategy)
    network = network_of(0.1, 0.2, 0.8)
    summary = federation(tmp_path, network, chosen).run()
    assert summary.reason == "max_updates"
    assert summary.global_updates >= 6
    assert set(summary.sites) == {"site-1", "site-2", "site-3"}
    check_exactly_once(tmp_path, chosen)
    assert not list((tmp_path / "updates").iterdir())
    assert not (tmp_path / "checkpoint.safetensors").exists()


def test_the_overhead_is_told_apart_from_the_pace(tmp_path: Path) -> None:
    network = FakeNetwork(Clock(), sites(0.1, 0.4, overhead=3.0))
    running = federation(tmp_path, network, settings(max_updates=8, poll_interval=0.001))
    run_until(running, lambda f: f.coordinator.version >= 4, 50_000)
    for client, pace in (("site-1", 0.1), ("site-2", 0.4)):
        estimate = running.coordinator.scheduler.pace(client)
        assert estimate is not None
        assert estimate.seconds_per_step == pytest.approx(pace)
        assert estimate.overhead == pytest.approx(3.0, abs=0.01)
    running.close()


def test_groups_arrive_together_although_a_task_costs_seconds_before_it_starts(
    tmp_path: Path,
) -> None:
    spread = {}
    for aware in (True, False):
        strategy = {"name": "fedcompass", "min_steps": 5, "max_steps": 40}
        chosen = settings({**strategy, "pace": {"overhead_aware": aware}}, max_updates=20)
        network = FakeNetwork(Clock(), sites(0.1, 0.2, 0.4, overhead=3.0))
        summary = federation(tmp_path / str(aware), network, chosen).run()
        spread[aware] = summary.arrival_spread
    aware_spread, paper_spread = spread[True], spread[False]
    assert aware_spread is not None
    assert paper_spread is not None
    assert aware_spread < 0.1
    assert aware_spread < paper_spread / 2


def test_a_site_may_join_at_any_time(tmp_path: Path) -> None:
    network = network_of(0.1, 0.2, 0.3)
    network.connected = {101, 102}
    running = federation(tmp_path, network, settings(max_updates=12))
    run_until(running, lambda f: f.coordinator.version >= 4)
    network.connected.add(103)
    running.run()
    assert [line["who"] for line in audit(tmp_path, "joined")] == ["site-1", "site-2", "site-3"]
    assert network.sites[103].tasks
    check_exactly_once(tmp_path, running.settings)


def test_the_run_starts_when_enough_sites_are_there(tmp_path: Path) -> None:
    network = network_of(0.1, 0.2)
    network.connected = {101}
    running = federation(tmp_path, network)
    for _ in range(50):
        running.step()
        network.clock.pause(1.0)
    assert not network.sites[101].tasks
    network.connected.add(102)
    assert running.run().global_updates == 6


def test_a_site_that_leaves_does_not_stop_the_others_and_warms_up_when_it_returns(
    tmp_path: Path,
) -> None:
    network = network_of(0.1, 0.2, 0.4)
    running = federation(tmp_path, network, settings(max_updates=40))
    run_until(running, lambda f: f.coordinator.version >= 6)
    network.connected.discard(103)
    network.on_its_way = [entry for entry in network.on_its_way if entry[2].node != 103]
    run_until(running, lambda f: "site-3" not in f.coordinator.scheduler.roster.members)
    there = running.coordinator.version
    run_until(running, lambda f: f.coordinator.version > there + 3)
    network.connected.add(103)
    running.run()
    assert [line["who"] for line in audit(tmp_path, "left")] == ["site-3"]
    joined = [line["who"] for line in audit(tmp_path, "joined")]
    assert joined.count("site-3") == 2
    again = max(n for n, r in enumerate(records(tmp_path)) if r.get("event") == "ClientJoined")
    order = records(tmp_path)[again + 1]
    assert (order["client"], order["steps"], order["group"]) == ("site-3", 2, None)
    told = network.sites[103].told
    before = [sum(task.steps for task in told[:number]) for number in range(len(told))]
    assert [task.steps_before for task in told] == before
    check_exactly_once(tmp_path, running.settings)


def test_a_site_that_was_revoked_is_said_to_be_also_after_a_crash(tmp_path: Path) -> None:
    network = network_of(0.1, 0.2, 0.4)
    running = federation(tmp_path, network, settings(max_updates=40))
    run_until(running, lambda f: f.coordinator.version >= 6)
    network.connected.discard(103)
    network.revoked.add(103)
    run_until(running, lambda f: "site-3" not in f.coordinator.scheduler.roster.members)
    running.close()
    network.restart()
    federation(tmp_path, network, settings(max_updates=40), resume=True).run()
    [line] = audit(tmp_path, "revoked")
    assert (line["who"], line["why"]) == ("site-3", "it is not on the roster any more")
    assert audit(tmp_path, "left") == []


def test_a_short_absence_changes_nothing(tmp_path: Path) -> None:
    network = network_of(0.1, 0.2)
    running = federation(tmp_path, network, settings(max_updates=10))
    run_until(running, lambda f: f.coordinator.version >= 3)
    network.connected.discard(102)
    before = network.clock.now
    run_until(running, lambda _: network.clock.now > before + 10)
    network.connected.add(102)
    running.run()
    assert audit(tmp_path, "left") == []
    check_exactly_once(tmp_path, running.settings)


@pytest.mark.parametrize("frozen", [45.0, 700.0])
def test_a_server_that_was_frozen_gives_its_sites_time_to_come_back(
    frozen: float, tmp_path: Path
) -> None:
    network = network_of(0.1, 0.2)
    running = federation(tmp_path, network, settings(max_updates=10))
    run_until(running, lambda f: f.coordinator.version >= 3)
    network.connected.clear()  # they have given up on it meanwhile
    network.clock.now += frozen
    before = network.clock.now
    run_until(running, lambda _: network.clock.now > before + 10)
    network.connected.add(101)
    run_until(running, lambda _: network.clock.now > before + 30)
    assert [line["who"] for line in audit(tmp_path, "left")] == ["site-2"]  # it did not come
    running.run()
    check_exactly_once(tmp_path, running.settings)


@pytest.mark.parametrize("strategy", [STRATEGIES[0], STRATEGIES[3]], ids=["fedcompass", "fedavg"])
def test_a_hung_site_is_given_up_and_its_late_answer_lets_it_join_again(
    tmp_path: Path, strategy: dict[str, Any]
) -> None:
    network = network_of(0.1, 0.2)
    slow = network.sites[102]
    slow.spoil = lambda reply, _: reply
    chosen = settings(strategy, max_updates=60, task_timeout=30, max_seconds=2000.0)
    running = federation(tmp_path, network, chosen)
    run_until(running, lambda f: f.coordinator.version >= 4)
    slow.seconds_per_step = 50.0
    run_until(running, lambda _: bool(audit(tmp_path, "left")))
    slow.seconds_per_step = 0.2
    running.run()
    (left,) = audit(tmp_path, "left")
    assert left["who"] == "site-2"
    assert "task_timeout" in left["why"]
    assert [line["who"] for line in audit(tmp_path, "joined")].count("site-2") >= 2
    assert running.coordinator.version >= 60
    replayed = [r for r in records(tmp_path) if r.get("event") == "UpdateArrived"]
    assert {r["client"] for r in replayed} == {"site-1", "site-2"}
    check_exactly_once(tmp_path, chosen)


def one_waits_for_a_dead_one(folder: Path) -> tuple[FakeNetwork, Federation]:
    """Site 1 has answered and waits for site 2 of its group, which never will."""
    network = network_of(0.1, 0.25)
    running = federation(folder, network, settings(max_updates=50))
    members = running.coordinator.scheduler.roster.members

    def together(_: Federation) -> bool:
        groups = {member.task.group for member in members.values() if member.task}
        return len(members) == 2 and len(groups) == 1 and None not in groups

    run_until(running, together)
    network.on_its_way = [entry for entry in network.on_its_way if entry[2].node != 102]
    network.sites[102].spoil = lambda *_: None
    run_until(running, lambda _: members["site-1"].task is None)
    return network, running


def test_a_dead_site_is_not_waited_for_beyond_its_groups_deadline(tmp_path: Path) -> None:
    _, running = one_waits_for_a_dead_one(tmp_path)
    version, before = running.coordinator.version, running.now()
    (deadline,) = running._run.deadlines.values()
    run_until(running, lambda f: f.coordinator.version > version)
    assert before < deadline <= running.now() < deadline + 1
    assert running.coordinator.scheduler.outstanding("site-1") is not None
    running.close()


def test_a_task_for_a_site_that_is_found_gone_at_the_same_moment_goes_nowhere(
    tmp_path: Path,
) -> None:
    network, running = one_waits_for_a_dead_one(tmp_path)
    network.connected, network.revoked = {102}, {101}  # one who may not come back is gone at once
    network.clock.now += 300  # the server was held up: the deadline is long past
    running.step()
    running.close()
    given = [r for r in records(tmp_path) if r.get("command") == "StartTraining"]
    (left,) = [r for r in records(tmp_path) if r.get("event") == "ClientLost"]
    assert given[-1]["client"] == left["client"] == "site-1"
    assert set(running.coordinator.scheduler.roster.members) == {"site-2"}
    assert all(
        sent.command is None or sent.command.client != "site-1"
        for sent in running._dispatcher.sent.values()
    )


def test_a_failed_task_is_asked_again_more_and_more_slowly_and_then_the_site_is_left_alone(
    tmp_path: Path,
) -> None:
    network = network_of(0.1, 0.2)
    broken = network.sites[102]
    broken.spoil = lambda reply, number: (
        replace(reply, error="worker\x00 died", payload=None) if number > 1 else reply
    )
    chosen = settings(max_updates=60, min_clients=2)
    running = federation(tmp_path, network, chosen)
    run_until(running, lambda _: bool(audit(tmp_path, "left")), 20_000)
    lost = audit(tmp_path, "task lost")
    assert len(lost) == 4
    assert {line["why"] for line in lost} == {"worker died"}
    gaps = [b["at"] - a["at"] for a, b in pairwise(lost)]
    assert gaps == sorted(gaps)
    broken.spoil = None
    running.run()
    joined = [line["who"] for line in audit(tmp_path, "joined")]
    assert joined.count("site-2") == 2
    check_exactly_once(tmp_path, chosen)


def test_a_site_that_stops_early_counts_with_the_steps_it_did(tmp_path: Path) -> None:
    network = network_of(0.1, 0.2)

    def two_steps(reply: Any, number: int) -> Any:
        return replace(reply, steps_done=2)

    network.sites[102].spoil = two_steps
    running = federation(tmp_path, network)
    running.run()
    steps = [
        r["steps_done"]
        for r in records(tmp_path)
        if r.get("event") == "UpdateArrived" and r["client"] == "site-2"
    ]
    assert steps
    assert set(steps) == {2}


def test_an_ordinary_flower_client_joins_through_its_first_answer(tmp_path: Path) -> None:
    network = network_of(0.1, 0.2)
    network.sites[102].greets = False
    network.sites[102].name = None
    summary = federation(tmp_path, network).run()
    assert set(summary.sites) == {"site-1", "102"}
    assert summary.sites["102"].updates > 0
    joined = {line["who"]: line["samples"] for line in audit(tmp_path, "joined")}
    assert joined == {"site-1": 10, "102": 20}
    assert [task for _, task in network.sites[102].tasks].count(0) == 1


def test_two_sites_of_one_name_are_told_apart(tmp_path: Path) -> None:
    network = network_of(0.1, 0.2)
    network.sites[102].name = "site-1"
    summary = federation(tmp_path, network).run()
    assert set(summary.sites) == {"site-1", "site-1@102"}


@pytest.mark.parametrize("name", ["", "../x", "a\nb", "x" * 65, "naïve"])
def test_a_name_that_nobody_would_write_down_is_not_used(tmp_path: Path, name: str) -> None:
    network = network_of(0.1, 0.2)
    network.sites[102].name = name
    assert set(federation(tmp_path, network).run().sites) == {"site-1", "102"}


def test_the_clock_on_the_wall_decides_nothing(tmp_path: Path) -> None:
    journals = []
    for number, jump in enumerate((0.0, 1e6, -1e6)):
        network = network_of(0.1, 0.2, 0.3)
        folder = tmp_path / str(number)
        times = cycle([1e9, 1e9 + jump, 1e9 - 2 * jump])
        federation(folder, network, wall=times.__next__).run()
        journals.append([record for _, record in list(read_journal(folder / "journal.jsonl"))[1:]])
    assert journals[0] == journals[1] == journals[2]


def test_the_time_limit_ends_the_run(tmp_path: Path) -> None:
    chosen = settings(max_updates=None, max_seconds=20.0)
    summary = federation(tmp_path, network_of(0.1, 0.2), chosen).run()
    assert summary.reason == "max_seconds"
    assert 20.0 <= summary.seconds < 21.0


def test_reaching_the_target_ends_the_run_and_the_best_model_is_kept(tmp_path: Path) -> None:
    def evaluate(version: int, model: FlatState) -> dict[str, float]:
        return {"accuracy": float(model.counted.max()) / 100}

    chosen = settings(max_updates=500, target=0.2)
    running = federation(tmp_path, network_of(0.1, 0.2), chosen, evaluate=evaluate)
    summary = running.run(lambda f: f._measure(wait=True))
    assert summary.reason == "target"
    assert summary.time_to_target is not None
    assert summary.global_updates < 500
    assert (tmp_path / "best.safetensors").is_file()
    assert summary.to_json()["top_accuracy"] >= 0.2


def test_without_a_target_a_metric_that_nothing_measures_means_no_best_model(
    tmp_path: Path,
) -> None:
    chosen, sites = settings(max_updates=2), network_of(0.1, 0.2)
    running = federation(tmp_path, sites, chosen, evaluate=lambda *_: {"dice": 0.5})
    running.run(lambda f: f._measure(wait=True))
    assert not (tmp_path / "best.safetensors").exists()  # the first would stay the best for ever
    (said,) = audit(tmp_path, "no best model")
    assert said["why"] == "target_metric is 'accuracy'; the app measures: dice"


def test_a_target_that_nothing_measures_is_refused(tmp_path: Path) -> None:
    chosen = settings(target=0.2)
    running = federation(tmp_path, network_of(0.1), chosen, evaluate=lambda *_: {"dice": 0.5})
    with pytest.raises(SettingsError, match="target_metric is 'accuracy'; the app measures: dice"):
        running.run(lambda f: f._measure(wait=True))
    running.close()


def test_an_evaluation_that_fails_is_told_and_stops_nothing(tmp_path: Path) -> None:
    def evaluate(version: int, model: FlatState) -> dict[str, float]:
        raise RuntimeError("no test set")

    summary = federation(tmp_path, network_of(0.1, 0.2), evaluate=evaluate).run()
    assert summary.global_updates == 6
    assert "no test set" in audit(tmp_path, "evaluation failed")[0]["why"]


def test_a_second_server_on_the_same_folder_is_refused_at_once(tmp_path: Path) -> None:
    first = federation(tmp_path, network_of(0.1, 0.2))
    for resume in (False, True):
        with pytest.raises(RunFolderError, match="another process is running"):
            federation(tmp_path, network_of(0.1, 0.2), resume=resume)
    assert first.run().global_updates == 6


def test_a_folder_with_a_run_is_not_started_anew_and_a_finished_one_not_resumed(
    tmp_path: Path,
) -> None:
    federation(tmp_path, network_of(0.1, 0.2)).close()
    with pytest.raises(RunFolderError, match="holds a run already; resume it"):
        federation(tmp_path, network_of(0.1, 0.2))
    federation(tmp_path, network_of(0.1, 0.2), resume=True).run()
    with pytest.raises(RunFolderError, match="is finished"):
        federation(tmp_path, network_of(0.1, 0.2), resume=True)
    with pytest.raises(RunFolderError, match="has no run to resume"):
        federation(tmp_path / "nothing", network_of(0.1), resume=True)
    assert not (tmp_path / "nothing").exists()


def test_a_run_that_would_never_end_is_refused() -> None:
    with pytest.raises(SettingsError, match="would never end"):
        settings(max_updates=None)


IMPATIENT: dict[str, Any] = {"name": "fedasync", "steps": 4}


def with_an_impatient_site(others: float = 1.0) -> FakeNetwork:
    """site-1 answers in 10 ms, three others take seconds."""
    network = network_of(0.0, others, others, others)
    network.sites[101].overhead = 0.01
    return network


def versions_of(folder: Path, site: str) -> float:
    """How many versions a site made; one of several sites counts in equal parts."""
    merged = [{who for who, _, _ in line["contributors"]} for line in audit(folder, "merged")]
    return sum(1 / len(sites) for sites in merged if site in sites)


@pytest.mark.parametrize("name", ["fedasync", "fedcompass"])
def test_an_impatient_site_does_not_use_up_max_updates(tmp_path: Path, name: str) -> None:
    network, chosen = with_an_impatient_site(), settings({"name": name}, max_updates=50)
    running = federation(tmp_path, network, chosen)
    assert running.run().reason == "max_updates"
    assert versions_of(tmp_path, "site-1") < 42.5 + 1  # the others are left a fifth of their share
    (said,) = audit(tmp_path, "has had its share")
    assert said["who"] == "site-1"
    assert "of max_updates 50; it waits while others train (fair_share)" in said["why"]
    assert audit(tmp_path, "refused") == audit(tmp_path, "left") == []
    check_exactly_once(tmp_path, chosen)


def test_one_that_has_had_its_share_goes_on_where_the_others_are_silent_or_gone(
    tmp_path: Path,
) -> None:
    network, chosen = with_an_impatient_site(), settings(IMPATIENT, max_updates=50)
    running = federation(tmp_path, network, chosen)
    run_until(running, lambda _: len(audit(tmp_path, "has had its share")) == 1)
    for number in (102, 103, 104):
        network.sites[number].spoil = lambda _reply, _number: None  # they never answer again
    running.settings = chosen.model_copy(update={"task_timeout": 30.0})
    began, version = running.now(), running.coordinator.version
    summary = running.run()
    assert summary.reason == "max_updates"
    assert 30.0 <= summary.seconds - began < 45.0
    assert summary.global_updates - version >= 5


def test_a_share_is_of_the_whole_run_however_often_the_server_restarts(tmp_path: Path) -> None:
    network, chosen = with_an_impatient_site(), settings(IMPATIENT, max_updates=50)
    running = federation(tmp_path, network, chosen)
    run_until(running, lambda f: f.coordinator.version >= 30)
    running.close()
    network.restart()
    federation(tmp_path, network, chosen, resume=True).run()
    assert versions_of(tmp_path, "site-1") < 42.5 + 1
    check_exactly_once(tmp_path, chosen)


def test_two_sites_of_unequal_speed_are_left_alone(tmp_path: Path) -> None:
    network, chosen = network_of(0.05, 0.4), settings(IMPATIENT, max_updates=50)
    federation(tmp_path, network, chosen).run()
    assert audit(tmp_path, "has had its share") == []
