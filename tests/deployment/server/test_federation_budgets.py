"""Sites with privacy budgets in a federation: what they spent, and how they leave."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.exactly_once import audit, check_exactly_once, records
from tests.deployment.fake_network import (
    Clock,
    FakeNetwork,
    FakeSite,
    federation,
    run_until,
    settings,
    sites,
)

from fedcompass.cli.deploy_words import summary_line
from fedcompass.deployment.operator.run_view import RunView
from fedcompass.deployment.server.audit_words import in_words
from fedcompass.deployment.wire.transport import Greeting, NodeId, Reply
from fedcompass.errors import RunFolderError

pytestmark = pytest.mark.usefixtures("quick_disk")

WHY = "budget spent: epsilon is 3.9 of 4, and one more step would exceed it"
STRATEGIES: list[dict[str, Any]] = [
    {"name": "fedcompass", "min_steps": 2, "max_steps": 10},
    {"name": "metronome", "min_steps": 2, "max_steps": 10},
    {"name": "fedavg", "steps": 4},
    {"name": "fedasync", "steps": 4},
    {"name": "fedbuff", "steps": 4, "buffer_size": 2},
]


def private(most: int) -> Callable[[Reply, int], Reply]:
    """A site that can afford so many tasks."""

    def spoil(reply: Reply, number: int) -> Reply:
        told = replace(reply, epsilon=1.3 * min(number, most), delta=1e-5)
        if number > most:
            return replace(told, payload=None, budget_spent=True, error=WHY)
        return told

    return spoil


def network_of(**most: int) -> FakeNetwork:
    """Three sites; those named with so many tasks that they can afford."""
    made: dict[NodeId, FakeSite] = sites(0.1, 0.2, 0.4)
    for site in made.values():
        if (affords := most.get(str(site.name).replace("-", "_"))) is not None:
            site.spoil = private(affords)
    return FakeNetwork(Clock(), made)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s["name"])
def test_a_site_whose_budget_is_spent_leaves_with_that_reason_and_the_others_go_on(
    tmp_path: Path, strategy: dict[str, Any]
) -> None:
    network, chosen = network_of(site_2=2), settings(strategy, max_updates=12, min_clients=3)
    summary = federation(tmp_path, network, chosen).run()
    assert summary.reason == "max_updates"
    [lost] = [r for r in records(tmp_path) if r.get("event") == "ClientLost"]
    assert lost["client"] == "site-2"
    assert lost["privacy"] == {"epsilon": 2.6, "delta": 1e-5, "left": WHY}
    assert len(network.sites[102].tasks) == 3  # it was not asked again
    later = [r for r in records(tmp_path) if r.get("event") == "UpdateArrived"]
    assert {r["client"] for r in later if r["at"] > lost["at"]} == {"site-1", "site-3"}
    [line] = audit(tmp_path, "left")
    assert (line["who"], line["why"]) == ("site-2", WHY)
    check_exactly_once(tmp_path, chosen)


def reporting(*epsilons: float | None, delta: float = 1e-5) -> Callable[[Reply, int], Reply]:
    """A site that says this of its budget, one after the other, and then the last for ever."""

    def spoil(reply: Reply, number: int) -> Reply:
        epsilon = epsilons[min(number, len(epsilons)) - 1]
        return replace(reply, epsilon=epsilon, delta=None if epsilon is None else delta)

    return spoil


def told_of(folder: Path) -> list[tuple[str, str]]:
    return [(line["who"], line["why"]) for line in audit(folder, "account set back")]


def test_an_epsilon_lower_than_one_before_is_said_once_for_each_fall_also_in_the_next_run(
    tmp_path: Path,
) -> None:
    chosen = settings({"name": "fedasync", "steps": 4}, max_updates=12, min_clients=1)

    def run(name: str, spoil: Callable[[Reply, int], Reply]) -> list[tuple[str, str]]:
        network = FakeNetwork(Clock(), sites(0.1))
        network.sites[101].spoil = spoil
        federation(tmp_path / name, network, chosen, spent=tmp_path / "epsilons.json").run()
        return told_of(tmp_path / name)

    lost = "its account was lost or set back; ask there"
    had = "and had 3 (delta 1e-05) before"
    assert run("honest", reporting(1.0, 2.0, 1.995, 3.0)) == []  # accurate to 0.01
    assert run("reset", reporting(3.0, 0.5, 0.7, 0.9, 0.2)) == [
        ("site-1", f"it reports epsilon 0.5 spent, {had}: {lost}"),
        ("site-1", f"it reports epsilon 0.2 spent, {had}: {lost}"),
    ]
    assert run("next run", reporting(0.8, 3.1)) == [
        ("site-1", f"it reports epsilon 0.8 spent, {had}: {lost}")
    ]
    assert run("none", reporting(None)) == [
        ("site-1", f"it reports no privacy budget, and had 3.1 (delta 1e-05) before: {lost}")
    ]
    assert run("delta", reporting(1.0, delta=1e-3)) == [
        ("site-1", "its delta is 0.001, with epsilon 1; it was 3.1 (delta 1e-05) before")
    ]
    line = audit(tmp_path / "delta", "account set back")[0]
    assert "site-1 account set back: its delta is 0.001" in (in_words(line) or "")
    (tmp_path / "epsilons.json").write_text('{"site-1": 3}')
    with pytest.raises(RunFolderError, match=r"epsilons\.json.* is damaged; restore it"):
        run("damaged", reporting(1.0))


def test_no_group_waits_for_a_site_that_has_left(tmp_path: Path) -> None:
    waited = {}
    for name, most in (("never", 10**6), ("soon", 1)):
        chosen = settings({"name": "fedavg", "steps": 4}, max_updates=8, min_clients=3)
        waited[name] = federation(tmp_path / name, network_of(site_1=most), chosen).run().seconds
    assert waited["soon"] == pytest.approx(waited["never"], abs=1.0)


def test_when_all_have_left_the_run_ends_in_order_with_what_was_reached(tmp_path: Path) -> None:
    network = network_of(site_1=3, site_2=2, site_3=1)
    summary = federation(tmp_path, network, settings(max_updates=1000, min_clients=3)).run()
    assert summary.reason == "budgets spent"
    assert 1 <= summary.global_updates < 1000
    told = summary.to_json()["sites"]
    assert {name: row["epsilon"] for name, row in told.items()} == pytest.approx(
        {"site-1": 3.9, "site-2": 2.6, "site-3": 1.3}
    )
    assert all(row["budget_spent"] for row in told.values())
    assert (tmp_path / "final.safetensors").exists()
    view = RunView(tmp_path)
    view.refresh()
    header, rows = view.table()
    assert header == ("site", "last", "updates", "steps", "epsilon", "at (s)")
    assert [(row[0], row[1], row[4]) for row in rows] == [
        ("site-1", "budget spent", "3.90"),
        ("site-2", "budget spent", "2.60"),
        ("site-3", "budget spent", "1.30"),
    ]
    assert audit(tmp_path, "stopped")[0]["why"] == "budgets spent"


def test_every_update_is_journalled_with_what_its_site_has_spent(tmp_path: Path) -> None:
    federation(tmp_path, network_of(site_1=100), settings(min_clients=3)).run()
    folds = [r for r in records(tmp_path) if r.get("command") == "Fold"]
    spent = [fold["epsilon"] for fold in folds if fold["client"] == "site-1"]
    assert spent == pytest.approx([1.3 * (n + 1) for n in range(len(spent))])
    assert all("epsilon" not in fold for fold in folds if fold["client"] != "site-1")


@pytest.mark.parametrize("nonsense", [-1.0, float("nan"), float("inf")])
def test_an_epsilon_that_cannot_be_is_not_written_down(tmp_path: Path, nonsense: float) -> None:
    network = network_of()
    network.sites[101].spoil = lambda reply, _: replace(reply, epsilon=nonsense, delta=1e-5)
    federation(tmp_path, network, settings(min_clients=3)).run()
    assert not [r for r in records(tmp_path) if "epsilon" in r or "privacy" in r]


def test_a_resumed_server_knows_what_was_spent_and_who_has_left(tmp_path: Path) -> None:
    network = network_of(site_1=1, site_2=3, site_3=3)
    chosen = settings({"name": "fedbuff", "steps": 4, "buffer_size": 3}, min_clients=3)
    chosen = chosen.model_copy(update={"max_updates": 1000})
    running = federation(tmp_path, network, chosen)
    run_until(running, lambda _: len(audit(tmp_path, "left")) == 1)
    run_until(running, lambda f: len(f.coordinator.scheduler.pending()) == 2)
    running.close()  # two updates are beyond the checkpoint
    network.connected.discard(101)
    network.restart()
    summary = federation(tmp_path, network, chosen, resume=True).run()
    assert summary.reason == "budgets spent"
    told = summary.to_json()["sites"]
    assert [told[f"site-{n}"]["epsilon"] for n in (1, 2, 3)] == pytest.approx([1.3, 3.9, 3.9])
    check_exactly_once(tmp_path, chosen)


def test_a_site_with_a_larger_budget_may_come_back(tmp_path: Path) -> None:
    network = network_of(site_2=1)
    running = federation(tmp_path, network, settings(max_updates=1000, min_clients=3))
    run_until(running, lambda _: bool(audit(tmp_path, "left")))
    network.connected.discard(102)  # its process ends
    run_until(running, lambda f: 102 not in f.membership.peers)
    network.sites[102].spoil = private(1000)
    network.connected.add(102)
    run_until(running, lambda _: len(audit(tmp_path, "joined")) == 4)
    assert running._run.tally.clients["site-2"].budget_spent is False
    running.close()


def departure(node: int, samples: int = 20) -> Reply:
    greeting = Greeting(f"site-{node - 100}", samples)
    return Reply(message="", node=node, error=WHY, greeting=greeting, budget_spent=True)


@pytest.mark.parametrize("given_up", [False, True])
def test_a_site_that_returns_only_to_say_that_it_leaves_has_left_with_that_reason(
    tmp_path: Path, given_up: bool
) -> None:
    network = network_of(site_1=4, site_3=4)
    network.sites[102].spoil = lambda reply, number: reply if number < 3 else None
    chosen = settings(max_updates=1000, min_clients=3)
    running = federation(tmp_path, network, chosen)
    run_until(running, lambda _: len(network.sites[102].tasks) == 3)
    network.connected.discard(102)  # it dies over its last task
    if given_up:
        run_until(running, lambda _: "site-2" in [line["who"] for line in audit(tmp_path, "left")])
    network.departed = [departure(102)]
    summary = running.run()
    assert summary.reason == "budgets spent"
    lost = [r for r in records(tmp_path) if r.get("event") == "ClientLost"]
    told = [r.get("privacy", {}).get("left") for r in lost if r["client"] == "site-2"]
    assert told == ([None, WHY] if given_up else [WHY])
    assert summary.to_json()["sites"]["site-2"]["budget_spent"]
    assert summary_line(tmp_path).endswith(
        f"; epsilon spent: site-1 5.20, site-3 5.20; budget spent, left: site-1, site-2, site-3; "
        f"see {tmp_path}"
    )
    check_exactly_once(tmp_path, chosen)


def test_a_site_that_was_never_in_the_run_may_say_so_too(tmp_path: Path) -> None:
    network = network_of()
    network.connected.discard(103)
    network.departed = [departure(103)]
    summary = federation(tmp_path, network, settings(min_clients=2)).run()
    assert set(summary.sites) == {"site-1", "site-2"}
