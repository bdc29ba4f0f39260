"""`fedcompass completion`: the Tab key in bash, zsh and fish."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedcompass.cli import app, main

ASKS = "import sys; sys.argv[0] = 'fedcompass'; from fedcompass.cli import main; main()"


@pytest.fixture
def path_with_fedcompass(tmp_path: Path) -> str:
    """A PATH on which `fedcompass` is this checkout's."""
    program = tmp_path / "fedcompass"
    program.write_text(f"#!{sys.executable}\n{ASKS}\n")
    program.chmod(0o755)
    return f"{tmp_path}{os.pathsep}{os.environ['PATH']}"


def completed_by_bash(line: str, path: str) -> list[str]:
    """What Tab offers at the end of a line, by the script that is printed."""
    words = line.split(" ")
    typed = " ".join(f"'{word}'" for word in words)
    script = (
        f'eval "$(fedcompass completion bash)"; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; '
        "_fedcompass_completion fedcompass; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fedcompass re", ["report"]),
        ("fedcompass deploy rea", ["readmit"]),
        ("fedcompass run --parti", ["--partition"]),
        ("fedcompass run --partition d", ["dual-dirichlet"]),
        ("fedcompass run --strategy fedav", ["fedavg", "fedavgm"]),
        ("fedcompass strategies fedb", ["fedbuff"]),
    ],
)
def test_bash_completes_commands_options_and_their_values(
    line: str, offered: list[str], path_with_fedcompass: str
) -> None:
    assert completed_by_bash(line, path_with_fedcompass) == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_zsh_and_fish_ask_and_get_an_answer(shell: str, path_with_fedcompass: str) -> None:
    script = CliRunner().invoke(app, ["completion", shell]).output
    asked = f"_FEDCOMPASS_COMPLETE=complete_{shell}"
    assert asked in script
    done = subprocess.run(
        ["fedcompass"],
        env={
            **os.environ,
            "PATH": path_with_fedcompass,
            "_FEDCOMPASS_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": "fedcompass run --parti",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "--partition" in done.stdout
    assert done.stderr == ""


def test_another_shell_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fedcompass", "completion", "tcsh"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: the shell is 'tcsh'; allowed: bash, zsh, fish\n"


@pytest.mark.parametrize(
    "command", [[], ["run"], ["deploy"], ["deploy", "init"], ["paper", "show"]]
)
def test_h_shows_the_help_as_help_does(command: list[str]) -> None:
    short, long = (CliRunner().invoke(app, [*command, each]) for each in ("-h", "--help"))
    assert short.exit_code == 0
    assert short.output == long.output
