"""A learning rate that decays with a client's steps, through executors, a stop and a resume."""

from pathlib import Path

import pytest
import torch
from tests.simulation.tiny_runs import assert_same_run, eventful, problem, resumed, stopped_run

from fedcompass.experiment import Experiment
from fedcompass.simulation.run import ExecutorName, simulate

DECAY = {"rate_decay": 0.5, "rate_decay_steps": 10}


def decaying() -> Experiment:
    return eventful("fedcompass", profile="authors", local=DECAY)


def test_a_resumed_run_goes_on_with_the_decayed_rates(tmp_path: Path) -> None:
    whole = simulate(decaying(), problem=problem(), folder=tmp_path / "whole")
    plain = simulate(eventful("fedcompass", profile="authors"), problem=problem())
    assert any(not torch.equal(whole.model[name], plain.model[name]) for name in plain.model)
    stopped_run(decaying(), tmp_path / "stopped", saved=8, stopped=13)
    resumed(tmp_path / "stopped")
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.parametrize("executor", ["processes", "stacked"])
def test_every_executor_decays_alike(executor: ExecutorName) -> None:
    alone = simulate(decaying(), problem=problem())
    other = simulate(decaying(), problem=problem(), executor=executor, workers=2)
    for name in ("0.weight", "1.weight", "3.weight"):  # a bias before batch norm is Adam's noise
        torch.testing.assert_close(other.model[name], alone.model[name], rtol=1e-3, atol=1e-5)
