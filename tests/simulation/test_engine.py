"""The event loop: delays, absences and broken clients; nothing hangs and no update is lost."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.simulation.tiny_runs import (
    STRATEGIES,
    eventful,
    events_of,
    experiment,
    network,
    of_kind,
    problem,
    refuses_label_nine,
    steps_of,
)

from fedcompass.aggregation.layout import Layout
from fedcompass.errors import TaskFailed
from fedcompass.experiment import Experiment
from fedcompass.simulation.engine import Simulation
from fedcompass.simulation.experiment_folder import experiment_of, resume_run
from fedcompass.simulation.result import Result
from fedcompass.simulation.run import simulate

Records = list[dict[str, Any]]


def journal_of(name: str, folder: Path, **changes: Any) -> Records:
    """The journal of a run without noise in its speeds and without training."""
    chosen = experiment(name, **changes).with_settings({"fleet": {"jitter": 0.0}})
    simulate(chosen, problem=problem(chosen.fleet.clients), executor="none", folder=folder)
    return events_of(folder)


def test_a_task_takes_its_steps_and_the_model_down_and_up(tmp_path: Path) -> None:
    model_bytes = Layout.of(network()).zeros().nbytes
    records = journal_of(
        "fedasync",
        tmp_path / "run",
        fleet={
            "latency_seconds": [0.0, 0.3, 0.0, 0.1],
            "bandwidth_bytes_per_second": [1e12, 1e12, model_bytes / 0.5, model_bytes / 0.2],
        },
    )
    first = {client: of_kind(records, "UpdateArrived", client=client)[0] for client in "0123"}
    arrivals = [first[client]["at"] for client in "0123"]
    assert arrivals == pytest.approx([0.4, 0.8 + 0.6, 1.0 + 1.0, 2.0 + 0.2 + 0.4])
    computing = [first[client]["compute_seconds"] for client in "0123"]
    assert computing == pytest.approx([0.4, 0.8, 1.0, 2.0])


def pace_of_the_first(overhead_aware: bool) -> tuple[float, float]:
    chosen = experiment(
        "fedcompass",
        fleet={"paces": [0.1], "jitter": 0.0, "latency_seconds": 0.25},
        strategy={"pace": {"overhead_aware": overhead_aware}},
        horizon=5.0,
    )
    seen: list[Simulation] = []
    simulate(chosen, problem=problem(1), executor="none", on_progress=seen.append)
    pace = seen[-1].coordinator.scheduler.pace("0")
    assert pace is not None
    return pace.seconds_per_step, pace.overhead


def test_an_overhead_aware_pace_is_of_the_computing_alone() -> None:
    assert pace_of_the_first(overhead_aware=True) == pytest.approx((0.1, 0.5))
    together, overhead = pace_of_the_first(overhead_aware=False)
    assert together > 0.1 + 0.5 / 8 - 1e-9  # the delay is spread over at most eight steps
    assert overhead == 0


def test_a_client_that_drops_out_comes_back_with_a_warm_up(tmp_path: Path) -> None:
    records = journal_of("fedcompass", tmp_path / "run", fleet={"dropouts": [[0, 1.0, 2.5]]})
    lost = of_kind(records, "ClientLost")
    assert [(event["client"], event["at"]) for event in lost] == [("0", 1.0)]
    back = of_kind(records, "ClientJoined", client="0")[-1]
    assert back["at"] == 2.5
    starts = of_kind(records, "StartTraining", client="0")
    assert not [start for start in starts if 1.0 < start["at"] < 2.5]
    again = next(start for start in starts if start["at"] >= 2.5)
    assert (again["at"], again["steps"], again["group"]) == (2.5, 2, None)
    assert of_kind(records, "UpdateArrived", client="0", task=again["task"])


def test_a_client_that_leaves_for_good_is_not_heard_of_again(tmp_path: Path) -> None:
    for name in STRATEGIES:
        records = journal_of(name, tmp_path / name, fleet={"dropouts": [[3, 0.9]]})
        assert not of_kind(records, "UpdateArrived", client="3")
        others = of_kind(records, "StartTraining", client="0")
        assert others[-1]["at"] > 4.0, name


def test_when_everybody_has_left_a_run_is_over() -> None:
    gone = [[client, 1.0] for client in range(4)]
    for name in STRATEGIES:
        result = simulate(experiment(name, fleet={"dropouts": gone}), problem=problem())
        assert result.curve[-1]["time"] <= 1.0, name
        assert all(row["busy"] + row["waiting"] <= 1.0 + 1e-9 for row in result.clients)


def test_the_clock_does_not_wait_for_the_answer_of_a_client_that_is_gone() -> None:
    chosen = experiment("fedasync", fleet={"paces": [1.0], "jitter": 0.0, "dropouts": [[0, 1.0]]})
    result = simulate(chosen, problem=problem(1))
    assert result.summary["virtual_seconds"] == 1.0
    assert result.curve[-1]["time"] == 0.0


def test_a_client_that_is_away_for_two_reasons_returns_after_both(tmp_path: Path) -> None:
    """Every task drops out; the script takes client 0 away during one of those absences."""
    chosen = experiment(
        "fedasync",
        fleet={
            "paces": [0.25],
            "dropout_probability": 1.0,
            "dropout_seconds": 3.0,
            "dropouts": [[0, 1.5, 9.0]],
        },
        horizon=30.0,
    )
    simulate(chosen, problem=problem(1), executor="none", folder=tmp_path / "run")
    records = events_of(tmp_path / "run")
    away = False
    for record in records:
        if record.get("event") == "ClientLost":
            assert not away
            away = True
        elif record.get("event") == "ClientJoined" and record["at"] > 0:
            assert away
            assert not 1.5 < record["at"] < 9.0
            away = False
    assert len(of_kind(records, "ClientLost")) > 2
    assert not of_kind(records, "UpdateArrived")


def check_nothing_is_lost(records: Records, result: Result) -> None:
    """Every update that was accepted is merged once or listed as pending at the end."""
    folded = sorted(record["task"] for record in of_kind(records, "Fold"))
    merged = [
        task for commit in of_kind(records, "Commit") for _, task, _ in commit["contributions"]
    ]
    assert sorted(merged + [task for _, task, _ in result.pending]) == folded
    assert len(folded) == result.summary["updates"]
    assert len(folded) + result.summary["refused"] == len(
        of_kind(records, "UpdateArrived") + of_kind(records, "UpdateRefused")
    )
    versions = [commit["version"] for commit in of_kind(records, "Commit")]
    assert versions == list(range(1, len(versions) + 1))


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_whatever_happens_nobody_hangs_and_nothing_is_lost(
    name: str, seed: int, tmp_path: Path
) -> None:
    chosen = eventful(name, seed=seed, horizon=60.0, fleet={"dropouts": [[1, 0.9, 2.6], [3, 40.0]]})
    result = simulate(chosen, problem=problem(), executor="none", folder=tmp_path / "run")
    records = events_of(tmp_path / "run")
    check_nothing_is_lost(records, result)
    assert len(of_kind(records, "ClientLost")) > 10
    for client in "012":
        starts = of_kind(records, "StartTraining", client=client)
        assert starts[-1]["at"] > 45.0, f"client {client} waits"
    assert not [s for s in of_kind(records, "StartTraining", client="3") if s["at"] > 40.0]


def test_speeds_that_change_are_told_by_the_times_of_the_answers(tmp_path: Path) -> None:
    records = journal_of(
        "fedasync", tmp_path / "run", fleet={"paces": [0.1, 0.1], "changes": [[1, 2, 0.5]]}
    )
    answers = [record["at"] for record in of_kind(records, "UpdateArrived", client="1")]
    assert answers[:4] == pytest.approx([0.4, 0.8, 2.8, 4.8])


def test_a_run_ends_after_so_many_updates() -> None:
    result = simulate(experiment("fedbuff", max_updates=4), problem=problem())
    assert result.summary["global_updates"] == 4
    assert result.summary["virtual_seconds"] < 6.0


@pytest.mark.parametrize("name", ["fedavg", "fedasync", "fedbuff", "fedat", "fedcompass"])
def test_a_client_that_diverges_is_refused_and_then_in_quarantine(
    name: str, tmp_path: Path
) -> None:
    chosen = experiment(name, horizon=12.0)
    result = simulate(chosen, problem=problem(broken=2), folder=tmp_path / "run")
    records = events_of(tmp_path / "run")
    refused = of_kind(records, "UpdateRefused")
    assert [(event["client"], event["reason"]) for event in refused] == [("2", "not-finite")] * 3
    excluded = of_kind(records, "Quarantine")
    assert [(command["client"], command["at"]) for command in excluded] == [
        ("2", refused[-1]["at"])
    ]
    assert result.summary["refused"] == 3
    assert [row["refused"] for row in result.clients] == [0, 0, 3, 0]
    assert result.clients[2]["updates"] == 0
    assert result.clients[2]["busy"] + result.clients[2]["waiting"] <= refused[-1]["at"] + 1e-9
    assert all(torch.isfinite(tensor).all() for tensor in result.model.values())
    assert of_kind(records, "StartTraining", client="0")[-1]["at"] > 8.0
    check_nothing_is_lost(records, result)


def test_a_run_in_which_everybody_diverges_ends_cleanly() -> None:
    chosen = experiment(fleet={"paces": [0.1]}, horizon=50.0)
    result = simulate(chosen, problem=problem(1, broken=0))
    assert result.summary["refused"] == 3
    assert result.summary["global_updates"] == 0
    assert len(result.curve) == 1


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_a_model_that_raises_is_one_error_that_names_the_client(
    executor: Any, tmp_path: Path
) -> None:
    tiny = problem(loss=refuses_label_nine)
    tiny.clients[3].targets[-1] = 9
    with pytest.raises(TaskFailed, match=r"client 3 failed in local round \d.*ValueError: label 9"):
        simulate(experiment(), problem=tiny, executor=executor, workers=2, folder=tmp_path / "run")
    kept = experiment_of(resume_run(tmp_path / "run"))
    assert kept.problem is not None
    assert kept.fingerprint is not None
    assert kept == experiment().on_problem(kept.problem, kept.fingerprint)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_schedule_does_not_depend_on_the_training(name: str, tmp_path: Path) -> None:
    simulate(eventful(name), problem=problem(), folder=tmp_path / "trained")
    simulate(eventful(name), problem=problem(), folder=tmp_path / "not", executor="none")
    assert events_of(tmp_path / "trained") == events_of(tmp_path / "not")


@pytest.mark.whatever_is_learned
def test_a_thousand_clients_are_simulated_without_training() -> None:
    for name in ("fedcompass", "fedasync", "fedavg"):
        chosen = Experiment(strategy=steps_of(name), fleet={"clients": 1000}, horizon=0.6)
        result = simulate(chosen, executor="none")
        assert result.summary["updates"] > 100
        assert result.curve == []
