"""Runs with privacy budgets: charged by the steps really done, repeatable, never exceeded."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedcompass import Experiment, Problem, simulate
from fedcompass.errors import SettingsError
from fedcompass.models import build
from fedcompass.privacy.spending import Spent, epsilon_of
from fedcompass.runs.journal import read_journal
from fedcompass.simulation.result import Result

SAMPLES = 60
FEW_TO_MANY = {"min_steps": 2, "max_steps": 20}
STEPS: dict[str, dict[str, int]] = {"fedcompass": FEW_TO_MANY, "metronome": FEW_TO_MANY}


def model() -> torch.nn.Module:
    return build("linear", input_shape=(4,), classes=3)


def problem() -> Problem:
    made = torch.Generator().manual_seed(0)
    inputs = torch.randn(3 * SAMPLES, 4, generator=made)
    targets = inputs[:, :3].argmax(1)
    parts = torch.arange(3 * SAMPLES).view(3, SAMPLES)
    return Problem.from_tensors(
        model, train=(inputs, targets), test=(inputs, targets), parts=list(parts)
    )


def experiment(strategy: str = "fedasync", **privacy: Any) -> Experiment:
    return Experiment(
        seed=4,
        fleet={"paces": [0.01, 0.02, 0.08], "jitter": 0.0},
        local={"optimizer": "sgd", "learning_rate": 0.5, "batch_size": 6},
        strategy={"name": strategy, **STEPS.get(strategy, {"steps": 10})},
        privacy={"epsilon": 4.0, "noise": 1.3, **privacy},
        evaluation={"every_updates": 5},
        horizon=2.0,
        target="none",
    )


def run(chosen: Experiment, **options: Any) -> Result:
    return simulate(chosen, problem=problem(), **options)


@pytest.fixture(scope="module")
def spent_run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(experiment(), folder=tmp_path_factory.mktemp("private") / "run")


def test_the_spent_epsilon_is_that_of_the_steps_really_done(spent_run: Result) -> None:
    summary = spent_run.summary
    for spent, steps in zip(
        summary["epsilon_per_client"], summary["steps_per_client"], strict=True
    ):
        assert spent <= 4.0
        # a task that was not answered when the run ended is charged, too
        most = epsilon_of([Spent(1.3, 0.1, steps + 10)], 1e-5)
        assert epsilon_of([Spent(1.3, 0.1, steps)], 1e-5) <= spent <= most


def test_fast_clients_spend_their_budget_first_and_leave_and_the_run_goes_on(
    spent_run: Result,
) -> None:
    summary = spent_run.summary
    assert summary["ended"] == "horizon"
    assert 0 in summary["budget_spent"]
    assert 2 not in summary["budget_spent"]
    fast, _, slow = summary["epsilon_per_client"]
    assert 3.9 < fast <= 4.0
    assert slow < fast
    assert summary["virtual_seconds"] > 1.5


def test_the_last_task_has_as_many_steps_as_the_budget_allows(spent_run: Result) -> None:
    steps = spent_run.summary["steps_per_client"][0]
    assert epsilon_of([Spent(1.3, 0.1, steps)], 1e-5) <= 4.0
    assert epsilon_of([Spent(1.3, 0.1, steps + 1)], 1e-5) > 4.0


def test_the_journal_says_with_each_update_what_its_client_has_spent(spent_run: Result) -> None:
    assert spent_run.folder is not None
    lines = [record for _, record in read_journal(spent_run.folder / "journal.jsonl")]
    told = [
        line["epsilon"] for line in lines if line.get("command") == "Fold" and line["client"] == "0"
    ]
    assert told == sorted(told)
    assert told[-1] == spent_run.summary["epsilon_per_client"][0]
    assert spent_run.clients[0]["epsilon"] == told[-1]


def test_the_same_seed_gives_the_same_run_in_processes_too(spent_run: Result) -> None:
    again = run(experiment(), executor="processes", workers=1)
    assert again.summary == {k: v for k, v in spent_run.summary.items() if k != "journal_bytes"}
    assert all(torch.equal(again.model[name], tensor) for name, tensor in spent_run.model.items())


def test_the_stacked_executor_trains_private_tasks_one_at_a_time(spent_run: Result) -> None:
    with pytest.warns(UserWarning, match="private tasks train one at a time"):
        again = run(experiment(), executor="stacked")
    assert again.summary["epsilon_per_client"] == spent_run.summary["epsilon_per_client"]
    assert all(torch.equal(again.model[name], tensor) for name, tensor in spent_run.model.items())


def test_a_stopped_run_goes_on_with_its_accounts(spent_run: Result, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(simulation: Any) -> None:
        if simulation.now > 0.9:
            raise Stopped

    with pytest.raises(Stopped):
        run(experiment(), folder=tmp_path / "run", checkpoint_every=0.0, on_progress=stop)
    again = simulate(problem=problem(), folder=tmp_path / "run", resume=True)
    assert again.summary == spent_run.summary
    assert all(torch.equal(again.model[name], tensor) for name, tensor in spent_run.model.items())


@pytest.mark.parametrize("strategy", ["fedavg", "fedbuff", "fedcompass", "metronome"])
def test_every_client_may_leave_and_that_is_how_the_run_ends(strategy: str) -> None:
    chosen = experiment(strategy, epsilon=[1.5, 2.0, 1.8], noise=2.0)
    summary = run(chosen.with_settings({"horizon": 60.0})).summary
    assert summary["ended"] == "budgets spent"
    assert summary["budget_spent"] == [0, 1, 2]
    for spent, most in zip(summary["epsilon_per_client"], (1.5, 2.0, 1.8), strict=True):
        assert most - 0.3 < spent <= most


def test_what_is_wrong_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"delta is 0.5 and client 0 has 60 samples"):
        run(experiment(delta=0.5), folder=tmp_path / "run")
    with pytest.raises(SettingsError, match=r"privacy.epsilon has 2 values for 3 clients"):
        experiment(epsilon=[1.0, 2.0])
