"""Where commands train: on a GPU if there is one, unless told otherwise, and they say so."""

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import fedcompass.simulation.run
import fedcompass.sweeps.running
import fedcompass.training.device
from fedcompass import Experiment
from fedcompass.cli import app
from fedcompass.errors import SettingsError
from fedcompass.training.device import chosen_device


class Asked(SettingsError):
    """Raised in the place of training, with what was asked for."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDCOMPASS_DEVICE", raising=False)
    (tmp_path / "sweep.toml").write_text('name = "s"\nseeds = 1\n[base]\nhorizon = 1.0\n')


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What training was asked for by the last command; nothing is trained."""
    found: dict[str, Any] = {}

    def refuse(*_: object, **options: Any) -> None:
        found.update(options)
        raise Asked("enough")

    monkeypatch.setattr(fedcompass.simulation.run, "simulate", refuse)
    monkeypatch.setattr(fedcompass.sweeps.running, "run_all", refuse)
    return found


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "Big GPU")
    monkeypatch.setattr(fedcompass.training.device, "check_device", lambda _device: None)


COMMANDS = {
    "run": ["run"],
    "compare": ["compare", "--seeds", "1"],
    "sweep": ["sweep", "sweep.toml"],
    "paper": ["paper", "run", "table-1-mini", "--seeds", "1", "--results", "."],
}


def output_of(*command: str) -> str:
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, Asked), result.output
    return result.output


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_gpu_is_used_if_it_is_there_and_the_header_says_so(
    command: list[str], asked: dict[str, Any]
) -> None:
    told = output_of(*command)
    assert "\non cuda (Big GPU); --device cpu trains on the CPU\n" in told
    assert asked["device"] == "cuda"


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_without_a_gpu_the_cpu_is_used_and_nothing_is_said(
    command: list[str], asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "\non " not in output_of(*command)
    assert asked["device"] == "cpu"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(
    ("device", "used", "told"),
    [("gpu", "cuda", "on cuda (Big GPU)\n"), ("gpu:1", "cuda:1", "on cuda:1"), ("cpu", "cpu", "")],
)
def test_a_device_that_is_given_is_used_and_gpu_means_cuda(
    command: list[str], device: str, used: str, told: str, asked: dict[str, Any]
) -> None:
    assert told in output_of(*command, "--device", device)
    assert asked["device"] == used


@pytest.mark.usefixtures("gpu")
def test_processes_and_clusters_use_a_gpu_only_if_it_is_asked_for(asked: dict[str, Any]) -> None:
    output_of("sweep", "sweep.toml", "--executor", "processes")
    assert asked["device"] == "cpu"
    output_of("sweep", "sweep.toml", "--on", "ray")
    assert asked["device"] == "cpu"
    output_of("sweep", "sweep.toml", "--on", "ray", "--device", "gpu")
    assert asked["device"] == "cuda"


@pytest.mark.usefixtures("gpu")
def test_the_environment_can_choose_for_all_commands(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDCOMPASS_DEVICE", "cpu")
    output_of("run")
    assert asked["device"] == "cpu"


def test_a_device_that_is_not_there_is_refused_before_anything_is_loaded() -> None:
    result = CliRunner().invoke(app, ["run", "--device", "cuda:99"])
    assert isinstance(result.exception, SettingsError)
    assert str(result.exception).startswith("device is 'cuda:99', which cannot be used: ")
    assert not list(Path("runs").glob("*"))


def test_where_a_run_was_trained_is_no_part_of_what_it_is(
    gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Experiment().key()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Experiment().key() == there


def test_python_trains_on_the_cpu_unless_told_otherwise(gpu: None) -> None:
    assert chosen_device("cpu") == "cpu"
    assert chosen_device("auto") == "cuda"
    assert chosen_device("gpu") == "cuda"
