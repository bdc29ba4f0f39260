"""Settings as a project's pyproject.toml has them and Flower hands them over: flat."""

from pathlib import Path
from typing import Any

import pytest

from fedcompass.errors import SettingsError
from fedcompass.flower.flower_settings import read_settings

LEAST = {"fedcompass.model": "app.task:Net", "fedcompass.max_updates": 3}


def refused(**changes: Any) -> str:
    with pytest.raises(SettingsError) as told:
        read_settings(LEAST | {f"fedcompass.{key}": value for key, value in changes.items()})
    return str(told.value)


def test_a_project_says_little_and_others_settings_are_left_alone() -> None:
    own, settings = read_settings({**LEAST, "learning-rate": 0.1})
    assert (own.model, own.evaluate, own.train, own.resume) == ("app.task:Net", "clients", {}, "")
    assert settings.max_updates == 3
    assert settings.chosen_strategy().name == "fedcompass"


def test_dotted_names_are_tables() -> None:
    own, settings = read_settings(
        {
            **LEAST,
            "fedcompass.strategy.name": "metronome",
            "fedcompass.strategy.pace.newest_weight": 0.25,
            "fedcompass.train.lr": 0.1,
        }
    )
    strategy = settings.chosen_strategy()
    assert strategy.name == "metronome"
    assert strategy.to_json()["scheduling"]["pace"]["newest_weight"] == 0.25
    assert own.train == {"lr": 0.1}


def test_settings_of_another_strategy_are_left_out_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = {"fedcompass.strategy.name": "fedavg", "fedcompass.strategy.min_steps": 5}
    with caplog.at_level("INFO", logger="flwr"):
        _, settings = read_settings(LEAST | table | {"fedcompass.strategy.steps": 7})
    assert settings.strategy == {"name": "fedavg", "steps": 7}
    assert caplog.messages == ["fedcompass: strategy fedavg has no min_steps: left out"]


def test_settings_that_no_strategy_has_are_refused() -> None:
    assert "has no setting 'min_stepz'" in refused(**{"strategy.min_stepz": 5})
    assert refused(**{"strategy.name": "fedcompas"}).startswith(
        "strategy is 'fedcompas' (did you mean 'fedcompass'?)"
    )


def test_a_run_has_the_folder_of_its_number_and_a_resumed_one_its_first() -> None:
    own, _ = read_settings({**LEAST, "fedcompass.folder": "/runs"})
    assert own.run_folder(12) == Path("/runs/12")
    own, _ = read_settings({**LEAST, "fedcompass.folder": "/runs", "fedcompass.resume": 11})
    assert own.run_folder(12) == Path("/runs/11")


def test_an_unknown_setting_is_told_with_the_nearest() -> None:
    told = refused(modle="x")
    assert told.startswith(
        "[tool.flwr.app.config.fedcompass] has no setting 'modle' (did you mean 'model'?)"
    )


def test_a_folder_of_nowhere_in_particular_is_refused() -> None:
    assert refused(folder="runs").startswith("folder is 'runs'; allowed: an absolute path, or one")


def test_what_the_server_sets_itself_is_refused() -> None:
    told = refused(**{"train.steps": 5})
    assert told == "train.steps is set by the server; choose another name"


def test_a_run_needs_a_model_and_an_end() -> None:
    with pytest.raises(SettingsError, match="model is missing"):
        read_settings({"fedcompass.max_updates": 3})
    with pytest.raises(SettingsError, match="the run would never end"):
        read_settings({"fedcompass.model": "app.task:Net"})
