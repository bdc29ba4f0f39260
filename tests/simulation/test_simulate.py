"""One call from an experiment to its result: the same bits from every executor, for one seed."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import torch
from tests.simulation.tiny_runs import (
    STRATEGIES,
    assert_same_run,
    drive,
    eventful,
    experiment,
    problem,
)

import fedcompass
from fedcompass.errors import DataError, RunFolderError, SettingsError
from fedcompass.experiment import Experiment
from fedcompass.simulation.executors import ProcessesExecutor
from fedcompass.simulation.experiment_folder import create_run
from fedcompass.simulation.problems import build_problem
from fedcompass.simulation.result import Result
from fedcompass.simulation.run import Run, simulate

KEYS = count()


@pytest.fixture(scope="module")
def two_workers() -> Iterator[ProcessesExecutor]:
    """Processes that all strategies' runs share, one after the other."""
    chosen = experiment(local={"sampling": "epochs"})  # usual for a problem given in Python
    with ProcessesExecutor(problem(), chosen.local, chosen.seed, workers=2) as executor:
        yield executor


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_seed_gives_the_same_bytes_whoever_trains_and_another_seed_does_not(
    name: str, two_workers: ProcessesExecutor, tmp_path: Path
) -> None:
    chosen = simulate(eventful(name), problem=problem(), folder=tmp_path / "serial").experiment
    folder = create_run(tmp_path / "processes", chosen)
    run = Run(chosen, problem(), two_workers, folder=folder, keys=KEYS)
    drive(run.steps(), two_workers)
    run.result()
    assert_same_run(tmp_path / "serial", tmp_path / "processes")
    simulate(eventful(name, seed=1), problem=problem(), folder=tmp_path / "other")
    for record in ("journal.jsonl", "metrics.jsonl", "final.safetensors"):
        first, other = (tmp_path / run / record for run in ("serial", "other"))
        assert first.read_bytes() != other.read_bytes()


def test_a_run_merges_with_one_thread_whatever_the_process_uses() -> None:
    threads: list[int] = []
    torch.set_num_threads(2)
    try:
        simulate(
            experiment(),
            problem=problem(),
            on_progress=lambda _: threads.append(torch.get_num_threads()),
        )
        assert set(threads) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_the_executor_can_be_named(tmp_path: Path) -> None:
    simulate(experiment(), problem=problem(), folder=tmp_path / "serial")
    simulate(
        experiment(), problem=problem(), executor="processes", workers=2, folder=tmp_path / "two"
    )
    assert_same_run(tmp_path / "serial", tmp_path / "two")


def test_torchs_own_random_numbers_are_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    simulate(experiment(), problem=problem())
    assert torch.equal(torch.rand(2), expected)


@pytest.fixture(scope="module")
def result() -> Result:
    chosen = experiment("fedasync", horizon=12.0, local={"learning_rate": 0.05})
    return fedcompass.simulate(chosen, problem=problem())


def test_training_really_learns(result: Result) -> None:
    assert result.top() > 0.9 > result.curve[0]["accuracy"]


def test_time_to_is_the_first_measurement_at_or_above_the_target(result: Result) -> None:
    reached = result.time_to(0.8)
    assert reached is not None
    assert reached == min(row["time"] for row in result.curve if row["accuracy"] >= 0.8)
    assert result.time_to(result.top()) is not None
    assert result.time_to(1.1) is None
    assert result.summary["time_to_target"] == result.time_to(0.7)


def test_a_loss_is_to_fall(result: Result) -> None:
    lowest = min(row["loss"] for row in result.curve)
    assert result.top("loss") == lowest
    assert result.time_to(lowest, "loss") == next(
        row["time"] for row in result.curve if row["loss"] == lowest
    )
    assert result.time_to(-1.0, "loss") is None


@pytest.mark.parametrize("metric", ["acuracy", "time", "version"])
def test_a_metric_that_was_not_measured_is_one_clear_line(result: Result, metric: str) -> None:
    for ask in (result.top, lambda name: result.time_to(0.5, name)):
        with pytest.raises(SettingsError, match=f"'{metric}'; measured were: loss, accuracy"):
            ask(metric)


def test_without_training_nothing_is_measured() -> None:
    result = simulate(experiment(), executor="none")
    assert result.curve == []
    assert result.time_to(0.5) is None
    assert result.summary["top_accuracy"] is None
    assert result.summary["global_updates"] > 5
    with pytest.raises(SettingsError, match="accuracy was not measured"):
        result.top()


def test_the_models_load_into_the_users_module(result: Result) -> None:
    module = problem().model()
    module.load_state_dict(result.model)
    module.load_state_dict(result.best_model)


def test_a_result_can_be_saved_into_a_new_folder(result: Result, tmp_path: Path) -> None:
    saved = result.save(tmp_path / "deep" / "folder")
    assert Experiment.from_toml(saved / "experiment.toml") == result.experiment
    assert json.loads((saved / "summary.json").read_text()) == result.summary
    assert len((saved / "metrics.jsonl").read_text().splitlines()) == len(result.curve)
    assert sorted(path.name for path in saved.iterdir()) == [
        "best.safetensors",
        "clients.json",
        "experiment.toml",
        "final.safetensors",
        "metrics.jsonl",
        "summary.json",
    ]
    with pytest.raises(RunFolderError, match="exists already; choose another folder"):
        result.save(saved)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be made"):
        result.save(tmp_path / "file" / "folder")


def test_saving_writes_what_a_run_kept_in_a_folder_has(tmp_path: Path) -> None:
    kept = simulate(eventful("fedat"), problem=problem(), folder=tmp_path / "kept")
    saved = kept.save(tmp_path / "saved")
    for path in saved.iterdir():
        assert path.read_bytes() == (tmp_path / "kept" / path.name).read_bytes()


def test_the_clients_of_fleet_and_problem_must_be_as_many() -> None:
    with pytest.raises(SettingsError, match=r"fleet\.clients is 4, the problem has 3 clients"):
        simulate(experiment(), problem=problem(3))


def test_an_unknown_executor_is_one_clear_line() -> None:
    with pytest.raises(SettingsError, match="allowed: serial, processes, stacked, none"):
        simulate(experiment(), problem=problem(), executor="gpu")  # type: ignore[arg-type]


def test_a_missing_dataset_is_found_out_before_anything_is_written(tmp_path: Path) -> None:
    chosen = Experiment(data={"name": "no-such-data"})
    with pytest.raises((DataError, SettingsError), match="no-such-data"):
        simulate(chosen, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_fleet_trace_that_is_missing_is_one_clear_line(tmp_path: Path) -> None:
    fleet = {"clients": 4, "speed": "trace", "trace": str(tmp_path / "none.csv")}
    chosen = experiment().with_settings({"fleet": {**fleet, "paces": None}})
    with pytest.raises(DataError, match=r"none\.csv"):
        simulate(chosen, problem=problem())


def test_a_newcomers_first_run_learns_from_the_bundled_data() -> None:
    result = simulate(
        Experiment(horizon=6.0, evaluation={"every_updates": None, "per_client": True})
    )
    assert result.curve[-1]["accuracy"] > result.curve[0]["accuracy"] + 0.2
    assert len(result.curve[-1]["clients"]) == 5


def test_the_problem_follows_the_seed_and_the_partition() -> None:
    first, again = build_problem(Experiment()), build_problem(Experiment())
    other = build_problem(Experiment(seed=1))
    iid = build_problem(Experiment(partition={"kind": "iid"}))
    sizes = [[len(samples) for samples in built.clients] for built in (first, again, other, iid)]
    assert sizes[0] == sizes[1] != sizes[2]
    assert sizes[3] == [2000] * 5
    assert all(sum(size) == 10_000 for size in sizes)
