"""docs/flower.md: its code is that of a project that is tested, its settings those there are."""

import re
import tomllib
from pathlib import Path

import pytest

from fedcompass.cli.setting_rows import setting_rows
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.flower.flower_settings import FlowerSettings, read_settings

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "flower.md").read_text(encoding="utf-8")
QUICKSTART = ROOT / "tests" / "flower" / "quickstart"


def code(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_settings_shown_are_those_of_the_quickstart() -> None:
    components, settings = (tomllib.loads(text)["tool"]["flwr"]["app"] for text in code("toml"))
    project = tomllib.loads((QUICKSTART / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert components["components"] == project["components"]
    assert settings["config"]["fedcompass"] == project["config"]["fedcompass"]


def test_the_change_shown_is_that_of_the_quickstarts_client() -> None:
    change, _ = code("python")
    assert change in (QUICKSTART / "quickstart" / "client_app.py").read_text()


def test_every_setting_of_a_flower_project_is_told() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\|", PAGE, flags=re.MULTILINE))
    rows = {row.key: row.value for row in setting_rows(FlowerSettings(model="m:f"))}
    rows |= {"model": "", "train": "", "resume": ""}  # nothing, or to be given
    assert told == rows


def test_other_defaults_than_a_federations_are_told() -> None:
    _, here = read_settings({"fedcompass.model": "m:f", "fedcompass.max_updates": 1})
    there = FederationSettings(max_updates=1)
    names = FederationSettings.model_fields
    changed = [name for name in names if getattr(here, name) != getattr(there, name)]
    assert changed == ["poll_interval"]
    for name in changed:
        assert f"`{name}` {getattr(here, name):g}" in PAGE


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https:)([^)#]+)", PAGE))
def test_every_link_leads_somewhere(target: str) -> None:
    assert (ROOT / "docs" / target).exists()
