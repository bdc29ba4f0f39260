"""A quickstart project whose client only reads `steps`, under Flower's own programs.

Each task costs Flower a new process, so that each runtime gets one of our two strategies; what they
do with a grid is in test_server_app.py.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.exactly_once import audit
from tests.flower.stock_flower import StockFlower, lines, stock_flower, wait_for

from fedcompass.runs.replay import replay

BY_CLIENTS = {"evaluate": "clients", "target_metric": "eval_acc", "higher_is_better": True}
CENTRAL = {"evaluate": "quickstart.server_app:global_evaluate", "target_metric": "accuracy"}


@pytest.fixture
def flower(tmp_path: Path) -> Iterator[StockFlower]:
    with stock_flower(tmp_path) as started:
        yield started


def check_finished(run: Path, updates: int, metric: str) -> None:
    """It has learned something from both clients, and left what every run leaves."""
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    assert summary["global_updates"] >= updates
    rows = lines(run / "metrics.jsonl")
    assert rows[-1][metric] > rows[0][metric]
    assert rows[-1]["version"] == summary["global_updates"]
    replay(run / "journal.jsonl")


def check_run(flower: StockFlower, strategy: str, settings: Mapping[str, Any]) -> None:
    run = flower.run({**settings, "strategy.name": strategy})
    flower.wait_until_over(run)
    check_finished(run, settings["max_updates"], settings["target_metric"])
    summary = json.loads((run / "summary.json").read_text())
    assert summary["strategy"] == strategy
    assert len(summary["sites"]) == 2


def start_supernodes(flower: StockFlower) -> None:
    flower.start_superlink()
    for partition in range(2):
        flower.start_supernode(partition, 2)


def wait_for_merge(run: Path) -> None:
    wait_for(lambda: any(line["what"] == "merged" for line in lines(run / "audit.jsonl")), "merge")


def test_in_the_simulation_runtime(flower: StockFlower) -> None:
    flower.start_superlink("--simulation")
    check_run(flower, "fedcompass", {**BY_CLIENTS, "max_updates": 3})


def test_on_a_superlink_with_supernodes(flower: StockFlower) -> None:
    start_supernodes(flower)
    check_run(flower, "metronome", {**CENTRAL, "max_updates": 1})


@pytest.mark.slow_faults
def test_a_killed_serverapp_goes_on_where_it_was(flower: StockFlower) -> None:
    start_supernodes(flower)
    settings = {**CENTRAL, "max_updates": 4}
    run = flower.run(settings)
    wait_for_merge(run)
    flower.kill_app("flwr-serverapp")
    before = audit(run, "accepted")
    assert flower.run({**settings, "resume": run.name}) == run
    flower.wait_until_over(run)
    check_finished(run, 4, "accuracy")
    assert audit(run, "accepted")[: len(before)] == before
    assert len(audit(run, "returned")) == 2  # the nodes are the same: they keep pace and group


@pytest.mark.slow_faults
def test_a_killed_simulation_goes_on_with_new_nodes(flower: StockFlower) -> None:
    flower.start_superlink("--simulation")
    settings = {**BY_CLIENTS, "max_updates": 4}
    run = flower.run(settings)
    wait_for_merge(run)
    flower.kill_app("flwr-simulation")
    flower.run({**settings, "resume": run.name})
    flower.wait_until_over(run)
    check_finished(run, 4, "eval_acc")
    versions = [line["version"] for line in audit(run, "merged")]
    assert versions == list(range(1, len(versions) + 1))
