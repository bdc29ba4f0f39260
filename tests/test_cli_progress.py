"""What a long command shows while it goes on: a header at once, then percent and time left."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedcompass.cli.progress import LiveTable, TimeLeft
from fedcompass.cli.setting_options import _OPTIONS, _row
from fedcompass.cli.sweep_progress import SweepProgress
from fedcompass.experiment import Experiment
from fedcompass.runs.journal import latest_time
from fedcompass.strategies import describe
from fedcompass.strategy_summaries import SUMMARIES
from fedcompass.sweeps.store import Store
from fedcompass.sweeps.sweep_file import Sweep

FIRST_LINE = """
import io, sys

class Told(io.StringIO):
    def write(self, text):
        if text.strip():
            heavy = [name for name in ("pydantic.main", "numpy", "torch") if name in sys.modules]
            sys.__stderr__.write(f"{heavy} {text.strip()}\\n")
            sys.__stderr__.flush()
            raise SystemExit

sys.stdout = Told()
from fedcompass.cli import app
app(sys.argv[1:], standalone_mode=False)
"""


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "--model", "resnet18", "--seed", "3"], "run: runs/fedcompass-mnist-mini-seed3"),
        (
            ["run", "--strategy", "fedavg", "--set", "data.name='cifar10'"],
            "run: runs/fedavg-cifar10-seed0",
        ),
        (["run", "--name", "mine"], "run: runs/mine"),
        (["compare"], "compare: runs/compare"),
        (["strategies"], "fedavg        rounds: everybody"),
    ],
)
def test_the_first_line_is_there_before_anything_heavy_is_loaded(
    tmp_path: Path, arguments: list[str], line: str
) -> None:
    command = [sys.executable, "-c", FIRST_LINE, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.stderr.startswith(f"[] {line}")


def test_the_header_names_the_folder_of_the_default_experiment() -> None:
    from fedcompass.cli.run import _usual_name

    usual = Experiment()
    name = f"{usual.strategy['name']}-{usual.data.name}-seed{usual.seed}"
    assert _usual_name({}) == name
    assert _usual_name({"strategy": "fedavg", "data": 3}) == "fedavg-3-seed0"


def test_options_are_read_as_the_settings_want_them() -> None:
    for key, kind in _OPTIONS.values():
        assert kind is _row(key)[0].kind


def test_the_list_of_strategies_is_the_one_of_the_recipes() -> None:
    assert {name: describe()[name] for name in SUMMARIES} == SUMMARIES


def test_in_a_pipe_a_plain_line_comes_soon_and_then_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedcompass.cli.progress._FIRST", 0.01)
    monkeypatch.setattr("fedcompass.cli.progress._PLAIN", 0.02)
    lines = iter(["first", "second"])
    with LiveTable(lambda: "not shown", lambda: next(lines, "later")):
        deadline = time.monotonic() + 20
        told = ""
        while "second" not in told and time.monotonic() < deadline:
            told += capsys.readouterr().err
            time.sleep(0.005)
    assert told.splitlines()[:2] == ["first", "second"]
    assert "not shown" not in told


def test_time_left_counts_only_what_was_done_since_the_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("fedcompass.cli.progress.monotonic", lambda: now)
    left = TimeLeft()
    now = 103.0
    assert str(left) == "3 s so far"
    left.reach(0.5)  # done by an earlier command
    assert str(left) == "3 s so far"
    now = 110.0
    left.reach(0.6)
    assert str(left) == "about 40 s left"


def test_the_latest_time_of_a_journal_is_found_at_its_end(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    assert latest_time(journal) == 0.0
    journal.write_text('{"journal":1}\n')
    assert latest_time(journal) == 0.0
    events = [{"event": "DeadlinePassed", "at": at / 4, "group": 1} for at in range(2000)]
    lines = [json.dumps(event, separators=(",", ":")) for event in events]
    journal.write_text("\n".join(lines) + '\n{"event":"Upd')
    assert latest_time(journal) == 499.75


def test_a_sweeps_percent_counts_what_runs_under_way_have_done(tmp_path: Path) -> None:
    sweep = Sweep(name="x", base={"horizon": 10.0}, grid={"strategy.name": ["fedavg"]}, seeds=4)
    progress = SweepProgress(sweep, Store(tmp_path / "x.jsonl"), lambda e: tmp_path / e.key())
    assert progress._so_far().startswith("  0%  0 of 4 done, ")
    for experiment, at in zip(sweep.experiments(), (10.0, 4.0), strict=False):
        folder = tmp_path / experiment.key()
        folder.mkdir()
        (folder / "journal.jsonl").write_text(f'{{"event":"DeadlinePassed","at":{at}}}\n')
    assert progress._so_far().startswith("  35%  0 of 4 done, about ")
