"""Page one: its session prints what it shows, its program works as printed, and it stays short."""

import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from typer.testing import CliRunner

    from fedcompass.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
# The same digits on every processor: the plainest arithmetic that torch has.
PLAIN = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "COLUMNS": "80",
}


def blocks(language: str) -> list[str]:
    """The blocks of code of a language; the empty one for those that name none."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    return [body for kind, body in found if kind == language]


def fedcompass(command: str, cwd: Path) -> str:
    """What a command prints on stdout, which must succeed."""
    program, *arguments = shlex.split(command)
    assert program == "fedcompass"
    done = subprocess.run(
        [sys.executable, "-m", "fedcompass", *arguments],
        cwd=cwd,
        env=os.environ | PLAIN,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_session_prints_what_it_shows(tmp_path: Path) -> None:
    (session,) = blocks("console")
    command, _, shown = session.removeprefix("$ ").partition("\n")
    assert fedcompass(command, tmp_path) == shown


def test_the_program_and_its_command_work_as_printed(tmp_path: Path) -> None:
    (program,) = blocks("python")
    (tmp_path / program.split()[1]).write_text(program, encoding="utf-8")
    assert len([line for line in program.splitlines() if line.strip()]) <= 20
    (command,) = blocks("sh")
    lines = fedcompass(f"{command.strip()} --seeds 1", tmp_path).splitlines()
    (metronome,) = (line for line in lines if line.startswith("metronome"))
    assert " 1/1 " in metronome, "it is worth looking at: the target is reached"


def test_it_names_only_commands_that_exist() -> None:
    text = "".join(blocks("") + blocks("sh") + re.findall(r"`(fedcompass [^`]*)`", README))
    named = set(re.findall(r"fedcompass ([a-z]+)", text))
    known = CliRunner().invoke(app, ["--help"]).output
    assert {"deploy", "advise", "compare"} <= named
    assert all(re.search(rf"^  {name}\b", known, flags=re.MULTILINE) for name in named)


@pytest.mark.parametrize(
    ("text", "most"), [(README, 800), (CHANGELOG, 400)], ids=["README", "CHANGELOG"]
)
def test_page_one_and_the_changelog_stay_short(text: str, most: int) -> None:
    assert len(text.split()) <= most


def test_a_release_has_at_most_ten_lines_in_the_changelog() -> None:
    for release in CHANGELOG.split("\n## ")[1:]:
        assert 0 < len([line for line in release.splitlines()[1:] if line.strip()]) <= 10
