"""A run on a problem given in Python says so wherever data and model are named."""

import sys
import tomllib
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from tests.simulation.tiny_runs import (
    Stopped,
    assert_same_run,
    experiment,
    problem,
    stop_after,
    stopped_run,
)
from torch import nn
from torch.nn import functional

import fedcompass
from fedcompass.errors import CheckpointError, RunFolderError, SettingsError
from fedcompass.experiment import Experiment
from fedcompass.runs.folder import RunFolder
from fedcompass.simulation.experiment_folder import experiment_of
from fedcompass.simulation.problems import build_problem
from fedcompass.simulation.run import simulate
from fedcompass.training.problem import Problem, Samples

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from fedcompass.cli import main

WORDS = "a model of 57 parameters, 80 samples of 4 clients, 80 for testing"


def stopped_at_once(folder: Path, events: int = 3) -> Path:
    with pytest.raises(Stopped):
        simulate(experiment(), problem=problem(), folder=folder, on_progress=stop_after(events))
    return folder


def test_the_record_names_the_problem_instead_of_a_dataset_and_a_network(tmp_path: Path) -> None:
    result = simulate(experiment(), problem=problem(), folder=tmp_path / "run")
    record = tomllib.loads((tmp_path / "run" / "experiment.toml").read_text())
    assert record["problem"] == WORDS
    assert (record["data"], record["model"]) == ({"name": "own problem"}, "own model")
    assert "partition" not in record
    assert (result.experiment.problem, result.experiment.model) == (WORDS, "own model")
    assert Experiment.from_toml(tmp_path / "run" / "experiment.toml") == result.experiment
    assert result.experiment.key() != experiment().key()


def test_a_result_without_a_folder_says_so_too(tmp_path: Path) -> None:
    result = simulate(experiment(), problem=problem())
    result.save(tmp_path / "saved")
    assert tomllib.loads((tmp_path / "saved" / "experiment.toml").read_text())["problem"] == WORDS


def test_a_run_on_a_dataset_is_recorded_as_ever() -> None:
    record = experiment().to_record()
    assert "problem" not in record
    assert "fingerprint" not in record
    assert record["data"]["name"] == "mnist-mini"


def test_the_command_line_does_not_go_on_with_other_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stopped_at_once(tmp_path / "run")
    before = (folder / "journal.jsonl").read_bytes()
    monkeypatch.setattr(sys, "argv", ["fedcompass", "run", "--resume", str(folder)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    error = capsys.readouterr().err
    assert f"{folder} is a run on a problem given in Python ({WORDS}); go on with it " in error
    assert len(error.strip().splitlines()) == 1
    assert (folder / "journal.jsonl").read_bytes() == before
    assert not (folder / "summary.json").exists()


def test_the_record_alone_does_not_train_something_else(tmp_path: Path) -> None:
    chosen = simulate(experiment(), problem=problem()).experiment
    with pytest.raises(SettingsError, match=r"was run on a problem given in Python \(a model of"):
        simulate(chosen)
    with pytest.raises(SettingsError, match="give it again"):
        build_problem(chosen)
    again = simulate(chosen, problem=problem())
    assert again.experiment == chosen


def test_with_the_same_problem_it_goes_on_to_the_same_end(tmp_path: Path) -> None:
    whole = fedcompass.simulate(experiment(), problem=problem(), folder=tmp_path / "whole")
    folder = stopped_at_once(tmp_path / "stopped", events=9)
    resumed = fedcompass.simulate(problem=problem(), folder=str(folder), resume=True)
    assert resumed.summary == whole.summary
    assert_same_run(tmp_path / "whole", folder)


def test_the_experiment_may_be_given_again_with_the_problem(tmp_path: Path) -> None:
    folder = stopped_at_once(tmp_path / "run")
    with pytest.raises(RunFolderError, match="belongs to another experiment"):
        simulate(experiment(horizon=7.0), problem=problem(), folder=folder, resume=True)
    assert simulate(experiment(), problem=problem(), folder=folder, resume=True).curve


def other_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 2 * functional.cross_entropy(outputs, targets)


def others() -> dict[str, Problem]:
    plain = problem()
    first, *rest = plain.clients
    changed = replace(first, inputs=first.tensor + 1)
    assert first.indices is not None
    fewer = Samples(first.inputs, first.targets, first.indices[1:])
    return {
        "another network": replace(plain, model=partial(nn.Linear, 6, 2)),
        "another loss": replace(plain, loss=other_loss),
        "other values": replace(plain, clients=[changed, *rest]),
        "fewer samples": replace(plain, clients=[fewer, *rest]),
        "another split": replace(plain, clients=[*rest, first]),
        "another test set": replace(plain, test=changed),
    }


@pytest.mark.parametrize("name", others())
def test_another_problem_is_refused(name: str, tmp_path: Path) -> None:
    folder = stopped_at_once(tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"was run on another problem .* give the same"):
        simulate(problem=others()[name], folder=folder, resume=True)


def test_a_run_on_a_dataset_is_not_continued_with_a_problem_and_the_reverse(
    tmp_path: Path,
) -> None:
    chosen = Experiment(fleet={"paces": [0.1] * 4}, horizon=2.0)
    with pytest.raises(Stopped):
        simulate(chosen, folder=tmp_path / "mnist", on_progress=stop_after(2))
    with pytest.raises(CheckpointError, match="was run on another problem"):
        simulate(problem=problem(), folder=tmp_path / "mnist", resume=True)
    own = stopped_at_once(tmp_path / "own")
    with pytest.raises(RunFolderError, match="is a run on a problem given in Python"):
        simulate(folder=own, resume=True)


def test_a_folder_made_before_the_problem_was_known_is_marked_when_it_begins(
    tmp_path: Path,
) -> None:
    stopped_run(experiment(), tmp_path / "run", saved=3, stopped=5)
    assert experiment_of(RunFolder(tmp_path / "run")).problem == WORDS


def test_resuming_needs_a_folder() -> None:
    with pytest.raises(SettingsError, match="resume is true, but there is no folder"):
        simulate(experiment(), problem=problem(), resume=True)
