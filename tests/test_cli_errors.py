"""What a new user gets wrong: one clear line and exit code 1, and a traceback with --debug."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.child_processes import PATIENCE

import fedcompass.cli
from fedcompass.cli import interrupts, main
from fedcompass.errors import SettingsError

OWN = """
from torch import nn

def fits(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, classes))

class Wrong(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = nn.Linear(784, classes)

    def forward(self, inputs):
        return self.head(inputs.flatten(1)[:, :5])

def raises():
    raise KeyError("depth")

number = 3
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCOMPASS_DEBUG", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(fedcompass.cli, "stop_cleanly_at", lambda _: None)
    monkeypatch.setattr(fedcompass.cli, "ignore_further", lambda: None)
    Path("own_model.py").write_text(OWN)
    Path("file").write_text("x")
    Path("binary.toml").write_bytes(bytes(range(256)))
    Path("sweep.toml").write_text('seeds = 2\n[grid]\n"strategy.name" = ["fedavg"]\n')
    Path("experiment.toml").write_text("seed = 1\nhorizon = 2.0\n")


def said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str
) -> list[str]:
    """What a command that fails prints to stderr."""
    monkeypatch.setattr(sys, "argv", ["fedcompass", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    sys.modules.pop("own_model", None)
    assert ended.value.code == 1
    told = capsys.readouterr().err.splitlines()
    return [line for line in told if not line.endswith((" so far", " left"))]  # progress


FORMS = "allowed: package.module:name or FILE.py:name"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("deploy init file/x --address a:1", "file/x cannot be made: Not a directory; choose"),
        ("deploy init file --address a:1", "file is a file; choose a new folder"),
        ("run sweep.toml", "sweep.toml is a sweep's file (it has grid, seeds); run: fedcompass "),
        ("compare sweep.toml", "run: fedcompass sweep sweep.toml"),
        ("sweep experiment.toml", "experiment.toml is an experiment's file (it has seed, horizon)"),
        ("table experiment.toml", "run: fedcompass run experiment.toml"),
        ("run binary.toml", "binary.toml is not valid TOML"),
        ("run .", ".: Is a directory; give the path of a TOML file"),
        ("run --target -0.5", "target is -0.5; allowed: at least 0 and at most 1"),
        ("run --model ./missing.py:f", f"there is no Python file {{here}}/missing.py; {FORMS}"),
        ("run --model sub/module:f", f"there is no Python file {{here}}/sub/module; {FORMS}"),
        ("run --model ./own_model.py", "names a file alone; name what is in it"),
        ("run --model ./own_model.py:none", "has no none; it has: fits, Wrong, raises"),
        ("run --model ./own_model.py:number", "is a int; name a function or class"),
        (
            "run --model ./own_model.py:raises",
            "model './own_model.py:raises' raised KeyError: 'depth' (own_model.py:16 in raises)",
        ),
        (
            "run --horizon 1 --executor serial --model ./own_model.py:Wrong",
            "(64x5 and 784x10) (own_model.py:13 in forward)",
        ),
        ("run --mlflow sqlite:///file/mlflow.db", "which cannot be used: File exists; give anoth"),
        ("run --mlflow sqlite:///.", "which cannot be used: unable to open database file; give"),
        ("deploy demo --target 5", "target is 5; allowed: above 0, at most 1 (80% is 0.8)"),
        ("deploy demo --seconds-per-step -1", "seconds_per_step is -1.0; allowed: 0 or more"),
        ("deploy demo --sites 0", "sites is 0; allowed: 1 to 20 on one machine"),
        ("deploy demo --seeds 0", "seeds is 0; allowed: 1 or more"),
        (
            "deploy demo --compare fedag",
            "strategy is 'fedag' (did you mean 'fedavg'?); allowed: fedavg, ",
        ),
    ],
)
def test_a_mistake_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    (told,) = said(capsys, monkeypatch, line)
    assert told.startswith("error: ")
    assert message.replace("{here}", str(Path.cwd())) in told


def test_a_file_that_is_no_table_where_one_is_needed_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("deployment.toml").write_text("server = 5\n")
    (told,) = said(capsys, monkeypatch, "deploy server .")
    assert told.endswith("deployment.toml: server is 5; allowed: a table, [server]")


def test_a_demo_says_before_it_starts_that_its_folder_cannot_be_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("runs").write_text("in the way")
    told = said(capsys, monkeypatch, "deploy demo --sites 1")
    assert told[-1] == "error: runs/demo cannot be made: Not a directory; work in another folder"
    assert len(told) == 1


@pytest.mark.parametrize("line", ["--debug run no.toml", "run --debug no.toml", "run no.toml"])
def test_debug_shows_the_traceback_wherever_it_stands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    if "--debug" not in line:
        monkeypatch.setenv("FEDCOMPASS_DEBUG", "1")
    told = said(capsys, monkeypatch, line)
    assert told[0] == "Traceback (most recent call last):"
    assert told[-1].startswith("error: no.toml: No such file or directory")


def test_a_file_that_cannot_be_used_is_one_line_wherever_it_comes_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        Path("file/x").mkdir()

    monkeypatch.setattr(fedcompass.cli, "app", fails)
    assert said(capsys, monkeypatch, "run") == ["error: file/x: Not a directory"]


def test_a_model_in_a_file_trains_in_worker_processes_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("sub").mkdir()
    Path("own_model.py").rename("sub/own_in_sub.py")
    arguments = "run --horizon 1 --workers 1 --model sub/own_in_sub.py:fits --name own"
    monkeypatch.setattr(sys, "argv", ["fedcompass", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "runs/own" in capsys.readouterr().out


def test_a_file_whose_name_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcompass.models.factory import find_factory

    Path("json.py").write_text("def f(): pass\n")
    with pytest.raises(SettingsError, match=r"json is another module already .*rename the file"):
        find_factory("./json.py:f")


def test_the_second_ctrl_c_does_not_tear_apart_what_the_first_one_stops(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interrupts, "_stopping_since", None)
    before = signal.getsignal(signal.SIGINT)
    interrupts.stop_cleanly_at(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().err == "stopping; Ctrl-C after 10 s ends it at once\n"


def test_a_run_interrupted_again_and_again_ends_with_its_line_and_no_traceback() -> None:
    command = [sys.executable, "-m", "fedcompass", "run", "--name", "stopped", "--horizon", "500"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        until = time.monotonic() + PATIENCE
        while not Path("runs/stopped/journal.jsonl").exists() and time.monotonic() < until:
            time.sleep(0.05)
        while process.poll() is None and time.monotonic() < until:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.02)
        assert process.stderr is not None
        errors = process.stderr.read()
    shown = ("stopping; ", "preparing ", "  ")  # besides: progress
    lines = [line for line in errors.splitlines() if line and not line.startswith(shown)]
    assert lines == ["stopped. To go on: fedcompass run --resume runs/stopped"]
    assert process.returncode == 130
