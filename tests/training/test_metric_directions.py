"""Metrics have a direction, which decides what is best and when a target is reached."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.simulation.tiny_runs import experiment, problem
from torch import Tensor
from typer.testing import CliRunner

from fedcompass.cli import app
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.errors import SettingsError
from fedcompass.experiment import EvaluationSettings
from fedcompass.settings.training import METRICS
from fedcompass.simulation.result import curve_of
from fedcompass.simulation.run import simulate
from fedcompass.training.metrics import OURS, register_metric
from fedcompass.training.problem import Loss


class ErrorRate:
    """A metric of one's own, which is better the lower it is."""

    def __init__(self, loss: Loss) -> None:
        self._accuracy = OURS["accuracy"](loss)

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        self._accuracy.add(outputs, targets)

    def value(self) -> float:
        return 1.0 - self._accuracy.value()


@pytest.fixture
def error_rate() -> Iterator[str]:
    register_metric("error_rate", ErrorRate, higher_is_better=False)
    yield "error_rate"
    del METRICS["error_rate"]


def test_a_metric_of_ones_own_that_is_to_fall_does(error_rate: str, tmp_path: Path) -> None:
    metrics = {"metrics": ["accuracy", error_rate], "target_metric": error_rate}
    chosen = experiment(evaluation=metrics, target=0.3, local={"learning_rate": 0.1})
    result = simulate(chosen, problem=problem(), folder=tmp_path / "run")
    rates = [row[error_rate] for row in result.curve]
    assert result.top() == min(rates) < max(rates)
    first = next(row["time"] for row in result.curve if row[error_rate] <= 0.3)
    assert result.summary["time_to_target"] == first > 0
    header = json.loads((tmp_path / "run" / "journal.jsonl").read_text().splitlines()[0])
    assert header["lower_is_better"] == [error_rate]


def test_a_metric_of_an_unknown_direction_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"'rmse' is no metric.*there are: loss, accuracy, bal"):
        curve_of([{"time": 0.0, "rmse": 1.0}], "rmse")


def test_a_metric_put_into_the_table_without_a_direction_is_refused() -> None:
    METRICS["error_rate"] = ErrorRate  # type: ignore[assignment]
    try:
        with pytest.raises(SettingsError, match="metric 'error_rate' has no direction; add it wi"):
            EvaluationSettings(metrics=("error_rate",), target_metric="error_rate")
    finally:
        del METRICS["error_rate"]


def test_a_name_means_one_metric(error_rate: str) -> None:
    register_metric(error_rate, ErrorRate, higher_is_better=False)
    with pytest.raises(SettingsError, match="a metric named 'error_rate' exists already"):
        register_metric(error_rate, ErrorRate, higher_is_better=True)


def test_a_federation_knows_the_direction_of_its_target_metric() -> None:
    assert FederationSettings(max_updates=1).target_rises
    assert not FederationSettings(max_updates=1, target_metric="loss").target_rises
    own = FederationSettings(max_updates=1, target_metric="rmse", higher_is_better=False)
    assert not own.target_rises
    with pytest.raises(
        SettingsError, match="target_metric is 'rmse', whose direction is not known"
    ):
        FederationSettings(max_updates=1, target_metric="rmse")
    with pytest.raises(SettingsError, match="accuracy is better the higher it is; leave it out"):
        FederationSettings(max_updates=1, higher_is_better=False)


def test_a_problem_does_not_take_metrics_that_nobody_would_measure() -> None:
    with pytest.raises(TypeError, match="metrics"):
        problem(metrics=("dice",))


def test_a_loss_is_not_told_in_percent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    about = ("--set", "evaluation.target_metric='loss'", "--target", "2.5")
    done = CliRunner(mix_stderr=False).invoke(
        app, ["run", "--horizon", "3", "--executor", "serial", *about]
    )
    assert done.exit_code == 0, done.output
    top = next(line for line in done.stdout.splitlines() if "best loss" in line)
    assert "%" not in top
    assert top.startswith("  best loss          ")  # in line with the others
    assert "  loss 2.5           after 0.0 s" in done.stdout


def test_each_metric_that_an_experiment_may_name_is_measured_here() -> None:
    assert list(OURS) == [name for name, kind in METRICS.items() if kind.make is None]
