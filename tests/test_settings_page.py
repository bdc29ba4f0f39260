"""docs/settings.md says what the program does."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedcompass import strategies
from fedcompass.cli.setting_rows import setting_rows

ROOT = Path(__file__).parent.parent


def test_the_page_of_settings_is_up_to_date() -> None:
    script = ROOT / "scripts" / "settings_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def rows_of_the_page() -> list[list[str]]:
    return [
        [cell.strip() for cell in line.replace("\\|", "/").split("|")[1:-1]]
        for line in (ROOT / "docs" / "settings.md").read_text().splitlines()
        if line.startswith("| `")
    ]


def test_every_setting_on_the_page_says_what_is_allowed() -> None:
    rows = rows_of_the_page()
    assert len(rows) > 80
    assert [row[0] for row in rows if not row[2] or row[2].startswith(",")] == []


def test_each_setting_of_the_strategies_is_said_once() -> None:
    said = [(row[0], row[3]) for row in rows_of_the_page() if len(row) == 5]
    assert said
    assert len(set(said)) == len(said)


def takes(who: str, name: str) -> bool:
    """Whether a cell such as "all but fedat" means a strategy."""
    if who.startswith("all"):
        return name not in who.removeprefix("all but ").split(", ")
    return name in who.split(", ")


def default_for(cell: str, name: str) -> str:
    """What a cell such as "1.0; fedadam, fedyogi: 0.01" says of a strategy."""
    usual, *others = cell.split("; ")
    for other in others:
        names, _, value = other.partition(": ")
        if name in names.split(", "):
            return value
    return usual


@pytest.mark.parametrize("name", strategies.names())
def test_every_key_of_a_strategy_is_on_the_page_with_its_default(name: str) -> None:
    chosen = strategies.strategy(name)
    found = {
        row[0].strip("`"): default_for(row[1], name)
        for row in rows_of_the_page()
        if len(row) == 5 and takes(row[4], name)
    }
    wanted = {
        row.key: row.value
        for settings, table in (
            (chosen.scheduling, ""),
            (chosen.aggregation, ""),
            (chosen.guard, "guard."),
        )
        for row in setting_rows(settings, table)
    }
    known = strategies.known_keys(name)
    wanted |= {"variant": "own"} if "variant" in known else {}
    assert found == {key: value for key, value in wanted.items() if key.split(".")[0] in known}
