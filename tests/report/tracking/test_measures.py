"""The standard metrics, against what the simulation itself counts."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedcompass.experiment import Experiment
from fedcompass.report.tracking.measures import (
    Point,
    evaluation_point,
    journal_point,
    summary_metrics,
)
from fedcompass.runs.tally import Tally
from fedcompass.simulation.run import simulate


def points_of(lines: list[dict[str, Any]]) -> list[Point]:
    tally = Tally()
    return [point for line in lines if (point := journal_point(tally, line)) is not None]


def start(at: float, client: str, task: int) -> dict[str, Any]:
    order = {"command": "StartTraining", "at": at, "client": client, "task": task}
    return {**order, "steps": 10, "group": None}


def answer(at: float, client: str, task: int, kind: str = "UpdateArrived") -> dict[str, Any]:
    facts = {"event": kind, "at": at, "client": client, "task": task}
    return {**facts, "steps_done": 10, "reason": "wrong-steps"}


def merge(at: float, version: int, *staleness: int) -> dict[str, Any]:
    entries = [[str(n), n, stale] for n, stale in enumerate(staleness)]
    facts = {"command": "Commit", "at": at, "version": version, "buffers": [0]}
    return {**facts, "contributions": entries}


@pytest.mark.parametrize("strategy", ["fedcompass", "fedavg", "fedbuff"])
def test_a_runs_last_merge_has_the_summarys_numbers(strategy: str, tmp_path: Path) -> None:
    settings = {"name": strategy} | ({"buffer_size": 3} if strategy == "fedbuff" else {})
    experiment = Experiment(strategy=settings, horizon=20.0)
    result = simulate(experiment, executor="none", folder=tmp_path / "run")
    lines = (tmp_path / "run" / "journal.jsonl").read_text().splitlines()
    points = points_of([json.loads(line) for line in lines])
    assert [point.step for point in points] == list(range(1, len(points) + 1))
    last, summary = points[-1].values, result.summary
    assert points[-1].step == summary["global_updates"]
    assert last["updates"] == summary["updates"] - summary["pending_updates"]
    assert last["time"] == points[-1].at <= summary["virtual_seconds"]
    total = sum(point.values["staleness/mean"] * point.values["merge/updates"] for point in points)
    stale_pending = sum(stale for _, _, stale in summary["pending"])
    assert total + stale_pending == pytest.approx(summary["mean_staleness"] * summary["updates"])
    assert max(point.values["staleness/max"] for point in points) <= summary["max_staleness"]


def test_idle_share_counts_what_is_under_way() -> None:
    (point,) = points_of(
        [start(0.0, "a", 1), start(0.0, "b", 2), answer(1.0, "a", 1), merge(4.0, 1, 0)]
    )
    assert point.values["idle_share"] == pytest.approx(3 / 8)  # a waits for 3 of the 8 seconds


def test_a_client_that_left_neither_works_nor_waits() -> None:
    lost = {"event": "ClientLost", "at": 2.0, "client": "a"}
    (point,) = points_of([start(0.0, "a", 1), lost, start(0.0, "b", 2), merge(4.0, 1, 0)])
    assert point.values["idle_share"] == 0.0


def test_refusals_are_counted_and_a_stray_one_ends_no_task() -> None:
    lines = [
        start(0.0, "a", 1),
        answer(1.0, "a", 9, "UpdateRefused"),
        merge(2.0, 1, 0),
        answer(2.0, "a", 1, "UpdateRefused"),
        merge(4.0, 2, 0),
    ]
    first, second = points_of(lines)
    assert (first.values["refused"], first.values["idle_share"]) == (1.0, 0.0)
    assert (second.values["refused"], second.values["idle_share"]) == (2.0, 0.5)


def test_an_evaluation_is_named_by_its_metrics_and_what_is_not_finite_is_left_out() -> None:
    row = {"time": 2.5, "version": 3, "loss": None, "accuracy": 0.5, "clients": [0.2, 0.6]}
    point = evaluation_point(row, "accuracy")
    assert (point.at, point.step) == (2.5, 3)
    assert point.values == {
        "test/accuracy": 0.5,
        "clients/accuracy/mean": pytest.approx(0.4),
        "clients/accuracy/min": 0.2,
        "clients/accuracy/max": 0.6,
    }


def test_a_summarys_plain_numbers_are_metrics() -> None:
    summary: dict[str, Any] = {"strategy": "fedavg", "target": None, "updates": 3, "pending": []}
    assert summary_metrics(summary) == {"summary/updates": 3.0}
