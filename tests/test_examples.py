"""The examples print what their `.out` files say, and the README shows what is printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedcompass.cli import app

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_its_out_file_says(script: Path, tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert finished.stderr == ""
    assert finished.stdout == script.with_suffix(".out").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "most"), [("own_model_and_data", 20), ("custom_scheduler", 60)], ids=str
)
def test_an_example_is_as_short_as_promised(name: str, most: int) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    code = re.sub(r'\A""".*?"""', "", text, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= most


def test_the_readme_shows_what_schedule_prints() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"\$ fedcompass (schedule .*)\n((?:.*\n)*?)```", text)
    assert found is not None
    result = CliRunner().invoke(app, found[1].split())
    assert result.output == found[2]


def test_the_readme_names_only_commands_that_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^(?:\$ )?fedcompass ([a-z]+)", text, flags=re.MULTILINE))
    known = CliRunner().invoke(app, ["--help"]).output
    assert named
    assert all(re.search(rf"^  {name}\b", known, flags=re.MULTILINE) for name in named)


def test_the_readmes_first_steps_go_on_with_runs_that_they_made() -> None:
    """`make run` has made runs/compare before: what comes later needs a name of its own."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    steps = text.split("## First steps")[1].split("```")[1].splitlines()
    made: set[str] = set()
    for line in steps:
        command = line.partition("#")[0]
        assert set(re.findall(r"runs/(\w+)", command)) <= made, line
        made |= set(re.findall(r"--name (\w+)", command))
    assert made


def test_the_readmes_install_line_has_what_its_first_steps_need() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "fedcompass partition mnist-mini --clients 10 -o partition.png" in text
    assert "-e '.[plot]'" in text.split("## Install")[1]
