"""`fedcompass sweep` and `fedcompass table` as a person uses them."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.sweeps.small_sweeps import FILE, made_record
from typer.testing import CliRunner

from fedcompass.cli import app
from fedcompass.cli.options import parse_budget
from fedcompass.cli.text import in_words
from fedcompass.errors import FedcompassError, SettingsError
from fedcompass.sweeps.store import Store
from fedcompass.sweeps.sweep_file import Sweep

LONG = FILE.replace("horizon = 2.0", "horizon = 4000.0")
TABLE_FILE = """\
name = "made"
seeds = 3
[base]
horizon = 40.0
target = 0.8
[grid]
"fleet.clients" = [5, 20]
"strategy.name" = ["fedavg", "fedbuff", "fedcompass"]
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(FILE)


def fedcompass(*arguments: str, code: int = 0) -> Result:
    result = CliRunner(mix_stderr=False).invoke(app, arguments)
    if isinstance(result.exception, FedcompassError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.mark.whatever_is_learned
def test_a_sweep_runs_each_experiment_once_and_says_how_to_see_them() -> None:
    result = fedcompass("sweep", "small.toml", "--executor", "serial")
    see = "4 of 4 done; see them: fedcompass table small.toml\n"
    assert result.stdout == f"sweep: runs/small/results.jsonl: 0 of 4 done\n{see}"
    lines = [line for line in result.stderr.splitlines() if "[" in line]
    assert [line.split(":")[0] for line in lines] == [
        "  [1/4] fedavg, seed 0",
        "  [2/4] fedcompass, seed 0",
        "  [3/4] fedavg, seed 1",
        "  [4/4] fedcompass, seed 1",
    ]
    again = fedcompass("sweep", "small.toml", "--executor", "serial")
    assert again.stdout == f"sweep: runs/small/results.jsonl: 4 of 4 done\n{see}"
    assert again.stderr == ""
    assert len(Store("runs/small/results.jsonl").records()) == 4
    assert sorted(path.name for path in Path("runs/small").iterdir()) == [
        ".results.jsonl.claims",
        "in-progress",
        "results.jsonl",
    ]
    table = fedcompass("table", "small.toml").stdout.splitlines()
    assert table[0].split("  ")[:2] == ["strategy.name", "time to 20%"]
    assert [line.split()[0] for line in table[1:3]] == ["fedavg", "fedcompass"]


def test_a_spent_budget_is_no_failure() -> None:
    result = fedcompass("sweep", "small.toml", "--budget", "0.000001s", "--executor", "serial")
    assert result.stdout.endswith("\n0 of 4 done; the same command goes on\n")


@pytest.mark.whatever_is_learned
def test_a_failed_run_is_named_and_makes_the_exit_code_one() -> None:
    model = "tests.sweeps.small_sweeps:network"
    Path("small.toml").write_text(FILE.replace("horizon =", f'model = "{model}"\nhorizon ='))
    in_the_way = Path("runs/small/in-progress")
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()  # no run's folder can be made in it
    result = fedcompass("sweep", "small.toml", "--executor", "serial", code=1)
    assert result.stdout.endswith("\n0 of 4 done; 4 failed; the same command tries them again\n")
    assert "fedavg, seed 0: failed: " in result.stderr
    in_the_way.unlink()
    assert "\n4 of 4" in fedcompass("sweep", "small.toml", "--executor", "serial").stdout


@pytest.mark.whatever_is_learned
def test_ctrl_c_or_sigterm_puts_runs_away_and_two_sweeps_share_a_store() -> None:
    Path("long.toml").write_text(LONG)
    command = [sys.executable, "-m", "fedcompass", "sweep", "long.toml", "--executor", "serial"]
    folder = Path("runs/small/in-progress")
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        deadline = time.monotonic() + 120
        while len(list(folder.glob("*/journal.jsonl"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(list(folder.glob("*/journal.jsonl"))) == 2, "both are at the same run"
        for process, ended_by in zip(processes, (signal.SIGINT, signal.SIGTERM), strict=True):
            process.send_signal(ended_by)
        for process in processes:
            out, errors = process.communicate(timeout=120)
            assert (process.returncode, len(out.splitlines())) == (130, 1)
            assert errors.endswith("stopped; 0 of 4 done; the same command goes on\n")
    finally:
        for process in processes:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.communicate()
    assert len(list(folder.glob("*/checkpoint.safetensors"))) == 2


@pytest.mark.whatever_is_learned
def test_a_killed_sweep_leaves_no_process_behind() -> None:
    Path("long.toml").write_text(LONG)
    command = [sys.executable, "-m", "fedcompass", "sweep", "long.toml", "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sweep:
        try:
            until(lambda: len(list(Path("runs/small/in-progress").glob("*/journal.jsonl"))) == 2)
            children = Path(f"/proc/{sweep.pid}/task/{sweep.pid}/children").read_text().split()
            assert len(children) >= 2
        finally:
            sweep.kill()
    until(lambda: not any(is_alive(child) for child in children))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert holds()


def is_alive(process: str) -> bool:
    """Whether a process is there and not merely waiting for its exit code to be asked for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "small.toml", "--budget", "soon"], "--budget is 'soon'; allowed: such as 9m"),
        (["sweep", "small.toml", "--executor", "magic"], "executor is 'magic'; allowed: serial"),
        (["sweep", "missing.toml"], "missing.toml: No such file"),
        (["table", "small.toml"], "runs/small/results.jsonl is not there; run `fedcompass sweep`"),
        (["table", "x.jsonl", "--format", "pdf"], "--format is 'pdf'; allowed: text, csv"),
        (["table", "x.jsonl", "--metric", "joy"], "--metric is 'joy'; allowed: time, accuracy"),
        (["table", "x.jsonl", "--metric", "accuracy"], "--metric is for a grid: give --columns"),
        (["table", "x.jsonl", "--metric", "time", "--paired"], "--metric is for a grid"),
    ],
)
def test_bad_input_gets_one_clear_line(arguments: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        fedcompass(*arguments)
    assert "\n" not in str(caught.value)


def test_a_budget_is_written_as_people_write_it() -> None:
    durations = {
        "9m": 540.0,
        "1h30m": 5400.0,
        "90s": 90.0,
        "90": 90.0,
        "1.5h": 5400.0,
        "2m5": 125.0,
    }
    assert {text: parse_budget(text) for text in durations} == durations
    for text in ("", "0", "-1", "9 m", "m", "1m1h"):
        with pytest.raises(SettingsError, match="allowed: such as 9m, 90s or 1h30m"):
            parse_budget(text)
    words = [in_words(seconds) for seconds in (4.4, 100, 1000, 4000)]
    assert words == ["4 s", "1 min 40 s", "17 min", "1 h 6 min"]


@pytest.fixture
def made() -> None:
    """A store no run gave: one cell whole, one partial, one failed, one that misses."""
    Path("made.toml").write_text(TABLE_FILE)
    store = Store("runs/made/results.jsonl")
    times: dict[tuple[int, str], list[float | None]] = {
        (5, "fedavg"): [31.0, 29.0, 33.5],
        (5, "fedbuff"): [12.0, None, None],
        (5, "fedcompass"): [10.0, 11.0, 12.0],
        (20, "fedavg"): [38.0],
        (20, "fedcompass"): [20.0, 21.0],
    }
    for (clients, name), runs in times.items():
        for seed, reached in enumerate(runs):
            top = 0.9 - clients / 1000 + seed / 100
            store.append(made_record(name, seed, time=reached, top=top, fleet={"clients": clients}))
    store.append(made_record("fedbuff", 0, error="no data", fleet={"clients": 20}))


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("output", ["text", "csv", "markdown", "latex"])
def test_tables_look_as_they_should(output: str, golden: Callable[[str, str], None]) -> None:
    parts = [
        fedcompass("table", "made.toml", "--format", output).stdout,
        fedcompass("table", "made.toml", "--format", output, "--columns", "fleet.clients").stdout,
        fedcompass(
            *("table", "runs/made", "--format", output, "--metric", "accuracy"),
            *("--rows", "fleet.clients", "--reference", "fedavg"),
        ).stdout,
    ]
    golden(f"table-{output}.txt", "\n".join(parts))


@pytest.mark.usefixtures("made")
def test_an_axis_that_is_not_there_is_named() -> None:
    with pytest.raises(SettingsError, match="axis 'speed' is not in these results; they have: "):
        fedcompass("table", "made.toml", "--columns", "speed")
    with pytest.raises(SettingsError, match=r"'fleet\.clients' is named twice"):
        fedcompass("table", "made.toml", "--columns", "fleet.clients", "--rows", "fleet.clients")


@pytest.mark.usefixtures("made")
def test_a_table_can_be_of_some_labels_alone() -> None:
    narrowed = fedcompass("table", "made.toml", "--where", "fleet.clients=2*").stdout
    assert "20" in narrowed
    assert "fedbuff" in narrowed
    alone = fedcompass(
        "table", "made.toml", "--where", "fleet.clients=20", "--where", "strategy.name=fedbuff"
    ).stdout
    assert "fedavg" not in alone
    with pytest.raises(SettingsError, match="--where is 'fedbuff'; give AXIS=LABEL"):
        fedcompass("table", "made.toml", "--where", "fedbuff")


MANY_AXES = """\
name = "made"
seeds = 3
[base]
horizon = 40.0
target = 0.8
[grid]
"fleet.clients" = [5, 20]
"local.learning_rate" = [0.001, 0.003, 0.01]
"partition.kind" = ["class", "iid"]
"strategy.name" = ["fedavg", "fedbuff", "fedcompass+n"]
"""


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--columns fleet.clients",
        "--columns fleet.clients,local.learning_rate,partition.kind",
        "--rows partition.kind,local.learning_rate --columns strategy.name,fleet.clients",
        "--columns fleet.clients,local.learning_rate,partition.kind --metric accuracy",
    ],
)
def test_a_table_of_many_axes_fits_80_columns_and_loses_nothing(options: str) -> None:
    Path("many.toml").write_text(MANY_AXES)
    store = Store(Path("runs/made/results.jsonl"))
    sweep = Sweep.from_toml(Path("many.toml"))
    for number, each in enumerate(sweep.experiments()):
        settings: dict[str, Any] = {
            "fleet": {"clients": each.fleet.clients},
            "local": {"learning_rate": each.local.learning_rate},
            "partition": {"kind": each.partition.kind},
        }
        time = 10.0 + number / 10
        store.append(made_record(each.strategy["name"], each.seed, time=time, **settings))
    shown = fedcompass("table", "many.toml", *options.split()).stdout
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    whole = fedcompass("table", "many.toml", "--format", "markdown", *options.split()).stdout
    cells = "\n".join(line for line in whole.splitlines() if line.startswith("|"))
    numbers = set(re.findall(r"\d+\.\d+(?:x| s|%)?", cells))
    assert numbers
    assert [number for number in numbers if number not in shown] == []
