"""Options that are settings: one table, and everything else about them from the settings."""

import re
import subprocess
import sys
from typing import Any

import click
import pytest
import typer.main
from typer.testing import CliRunner

from fedcompass.cli import app
from fedcompass.cli.setting_options import OPTIONS, given, option_help
from fedcompass.cli.setting_rows import setting_rows
from fedcompass.experiment import Experiment
from fedcompass.strategies import known_keys, names

SAMPLES: dict[str, Any] = {"INTEGER": 3, "FLOAT": 0.5, "TEXT": "some", "BOOLEAN": True}


def command(name: str) -> click.Command:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    return group.commands[name]


def parsed(name: str, *arguments: str) -> dict[str, Any]:
    context = command(name).make_context(name, list(arguments))
    return given(context)


def type_of(option: str) -> str:
    run = command("run")
    found = {p.opts[0]: p for p in run.get_params(click.Context(run))}
    return found[f"--{option}"].type.name.upper()


@pytest.mark.parametrize(("option", "key"), OPTIONS.items())
def test_an_option_stands_for_a_setting_that_says_what_it_is_for(option: str, key: str) -> None:
    settings = {row.key for row in setting_rows(Experiment())}
    strategies = {f"strategy.{key}" for name in names() for key in known_keys(name)}
    assert key in {"strategy.name"} | settings | strategies
    assert re.fullmatch(r"\S.{10,}\.", option_help(option))


@pytest.mark.parametrize(("option", "key"), OPTIONS.items())
def test_an_option_of_the_settings_type_sets_it(option: str, key: str) -> None:
    value = SAMPLES[type_of(option)]
    arguments = [f"--{option}"] if value is True else [f"--{option}", str(value)]
    assert parsed("run", *arguments) == {key: value}
    if option not in ("strategy", "seed"):
        assert parsed("compare", *arguments) == {key: value}


def test_what_is_not_given_sets_nothing() -> None:
    assert parsed("run") == parsed("compare") == {}


def test_help_shows_each_option_in_its_settings_words() -> None:
    shown = {
        name: " ".join(CliRunner().invoke(app, [name, "--help"]).output.split()).replace("- ", "-")
        for name in ("run", "compare")
    }
    for option in OPTIONS:
        words = option_help(option).replace("- ", "-")
        assert f"--{option} " in shown["run"]
        assert words in shown["run"]
        assert (words in shown["compare"]) == (option not in ("strategy", "seed"))
    assert "homogeneous, normal, exponential, trace" in option_help("speed")
    assert option_help("latest").startswith("λ: ")
    assert option_help("buffer-size").endswith("(fedbuff).")


def test_help_loads_nothing_heavier_than_the_settings() -> None:
    program = (
        "import sys\n"
        "from fedcompass.cli import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "before = 'torch' in sys.modules\n"
        "import fedcompass.experiment\n"
        "settings = 'torch' in sys.modules\n"
        "app(['run', '--help'], standalone_mode=False)\n"
        "print(before, ('torch' in sys.modules) == settings, file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stderr == "False True\n"
