"""The tables of choices in the documentation name settings that there are, with their defaults."""

import json
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from fedcompass.experiment import Experiment

DOCS = Path(__file__).parents[2] / "docs"
RUNS = (("mnist", "fedcompass"), ("mnist", "fedasync"), ("mnist", "fedat"), ("cifar10", "fedavg"))


def values(profile: str, setting: str) -> list[Any]:
    """A setting under a profile, for each of a few experiments that has it."""
    table, *path = setting.split(".")
    found = []
    for dataset, name in RUNS:
        experiment = Experiment(profile=profile, data={"name": dataset}, strategy={"name": name})
        chosen = experiment.chosen_strategy()
        settings = {
            "fleet": experiment.fleet.model_dump(),
            "local": experiment.local.model_dump(),
            "strategy": experiment.strategy
            | chosen.scheduling.model_dump()
            | chosen.aggregation.model_dump(),
        }
        try:
            found.append(reduce(lambda part, key: part[key], path, settings[table]))
        except KeyError:
            continue
    return found


def rows(page: str, pattern: str) -> list[tuple[str, ...]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return [match.groups() for match in re.finditer(pattern, text, re.MULTILINE)]


DEFAULTS = r"^\|.*\| `(\w+\.[\w.]+)` \| `(.+)` \| `(.+)` \|$"


@pytest.mark.parametrize(
    ("setting", "paper", "as_run"),
    [*rows("paper-map.md", DEFAULTS), *rows("reproduction/method.md", DEFAULTS)],
)
def test_a_choice_has_the_defaults_that_its_row_says(setting: str, paper: str, as_run: str) -> None:
    assert paper in map(str, values("paper", setting))
    assert as_run in map(str, values("as-run", setting))


@pytest.mark.parametrize(
    ("setting", "value"), rows("as-run.md", r"^\|.*\| `(\w+\.[\w.]+) = (.+)` \| .*\|$")
)
def test_a_habit_is_the_setting_that_its_row_says(setting: str, value: str) -> None:
    assert json.loads(value) not in values("paper", setting)
    assert json.loads(value) in values("as-run", setting)
