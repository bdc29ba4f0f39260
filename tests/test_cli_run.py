"""`fedcompass run` and `fedcompass compare` as a person uses them, on tiny horizons."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result
from tests.child_processes import PATIENCE, started
from typer.testing import CliRunner

from fedcompass.cli import app
from fedcompass.cli.sweep_progress import SweepProgress
from fedcompass.errors import FedcompassError, RunFolderError, SettingsError, TaskFailed
from fedcompass.experiment import Experiment
from fedcompass.number_text import number_of
from fedcompass.runs.replay import replay
from fedcompass.simulation.experiment_folder import create_run
from fedcompass.simulation.problems import build_problem
from fedcompass.simulation.run import simulate
from fedcompass.sweeps.record import Record
from fedcompass.training.problem import Problem

QUICK = ["--horizon", "3", "--executor", "serial"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fedcompass(*arguments: str) -> Result:
    result = CliRunner(mix_stderr=False).invoke(app, arguments)
    if isinstance(result.exception, FedcompassError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_a_run_says_how_much_of_the_waiting_was_by_plan() -> None:
    paces = "fleet.paces=[0.01,0.06,0.1,0.16,0.5]"
    fleet = ["--no-train", "--horizon", "10", "--set", paces, "--set", "fleet.jitter=0"]
    output = fedcompass("run", *fleet, "--strategy", "metronome").output
    summary = json.loads(Path("runs/metronome-mnist-mini-seed0/summary.json").read_text())
    assert 0.05 < summary["ahead_share"] < summary["idle_share"]
    idle, ahead = f"{summary['idle_share']:.0%}", f"{summary['ahead_share']:.0%}"
    assert f"  clients waited     {idle} of their time, {ahead} by plan\n" in output
    output = fedcompass("run", *fleet, "--strategy", "fedavg").output
    assert "of their time\n" in output


@pytest.mark.whatever_is_learned
def test_a_private_run_says_what_each_client_has_spent() -> None:
    few = ["--set", "privacy.epsilon=2", "--set", "model=linear", "--set", "local.batch_size=8"]
    lines = fedcompass("run", *few, "--horizon", "2", "--executor", "serial").output.splitlines()
    assert lines[3] == "  privacy            epsilon at most 2, delta 1e-05; clip 1, noise 1"
    [spent] = [line for line in lines if line.startswith("  epsilon per client ")]
    epsilons = [float(number) for number in spent.split()[3:]]
    assert len(epsilons) == 5
    assert all(0 <= epsilon <= 2 for epsilon in epsilons)
    summary = json.loads(Path("runs/fedcompass-mnist-mini-seed0/summary.json").read_text())
    assert [f"{value:.2f}" for value in summary["epsilon_per_client"]] == spent.split()[3:]


@pytest.mark.whatever_is_learned
def test_run_says_what_it_did_and_keeps_a_record() -> None:
    output = fedcompass("run", *QUICK).output
    assert output.startswith(
        "run: runs/fedcompass-mnist-mini-seed0\n"
        "fedcompass on mnist-mini (mlp): 5 clients, exponential speeds (slowest 24.6x\n"
        "the fastest), class partition, seed 0\n"
    )
    for words in ("accuracy 80%", "top accuracy", "clients waited", "staleness", "updates per"):
        assert words in output
    folder = Path("runs/fedcompass-mnist-mini-seed0")
    assert f"record             {folder}" in output
    assert output.endswith(f"  to look at it      {folder}/report.html\n")
    assert sorted(path.name for path in folder.iterdir()) == [
        "best.safetensors",
        "clients.json",
        "experiment.toml",
        "final.safetensors",
        "journal.jsonl",
        "metrics.jsonl",
        "origin.json",
        "report.html",
        "summary.json",
    ]
    assert replay(folder / "journal.jsonl").events > 0


def test_a_second_run_gets_a_name_of_its_own_and_a_given_name_is_not_overwritten() -> None:
    fedcompass("run", "--no-train", "--horizon", "3")
    output = fedcompass("run", "--no-train", "--horizon", "3").output
    assert "runs/fedcompass-mnist-mini-seed0-2" in output
    fedcompass("run", "--no-train", "--horizon", "3", "--name", "mine")
    with pytest.raises(RunFolderError, match="runs/mine exists already"):
        fedcompass("run", "--no-train", "--horizon", "3", "--name", "mine")
    fedcompass("run", "--no-train", "--horizon", "3", "--name", "mine", "--overwrite")


def test_options_a_file_and_set_are_laid_over_each_other() -> None:
    Path("exp.toml").write_text(
        'seed = 3\nhorizon = 2.0\n[fleet]\nclients = 4\n[strategy]\nname = "fedavg"\nsteps = 3\n'
    )
    fedcompass(
        *("run", "exp.toml", "--clients", "3", "--set", "strategy.steps=2", "--name", "x"),
        *("--no-train", "--set", "evaluation.metrics=['loss','accuracy','balanced_accuracy']"),
    )
    record = Path("runs/x/experiment.toml").read_text()
    for line in ("seed = 3", "clients = 3", "steps = 2", 'name = "fedavg"', "balanced_accuracy"):
        assert line in record


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--strategy", "fedag"],
            r"strategy is 'fedag' \(did you mean 'fedavg'\?\); allowed: fedavg, ",
        ),
        (["--set", "fleet.jiter=1"], "fleet has no setting 'jiter' .did you mean 'jitter'."),
        (["--set", "nonsense"], "--set is 'nonsense'; allowed: KEY=VALUE"),
        (["missing.toml"], "missing.toml: No such file"),
        (["--executor", "magic"], "executor is 'magic'; allowed: serial, processes, stacked, none"),
        (["--min-steps", "50"], "min_steps is 50; allowed: at least 1 and at most max_steps"),
    ],
)
def test_bad_input_gets_one_clear_line(arguments: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        fedcompass("run", *arguments)
    assert "\n" not in str(caught.value)


def test_resume_takes_no_settings() -> None:
    with pytest.raises(RunFolderError, match="leave the settings out"):
        fedcompass("run", "--resume", "runs/x", "--seed", "1")


HELD = """
from pathlib import Path
from time import sleep
from torch import nn

class Held(nn.Linear):
    calls = 0

    def forward(self, inputs):
        Held.calls += 1
        while Held.calls > 200 and Path("hold").exists():
            sleep(0.01)
        return super().forward(inputs.flatten(1))

def net(classes):
    return Held(784, classes)
"""


@pytest.mark.whatever_is_learned
def test_a_run_stopped_by_ctrl_c_says_how_to_go_on_and_ends_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("held.py").write_text(HELD)
    Path("hold").touch()  # it does not come to its end before it is stopped
    arguments = ["--horizon", "10", "--executor", "serial", "--model", "./held.py:net"]
    command = [sys.executable, "-m", "fedcompass", "run", "--name", "stopped", *arguments]
    with started(command, stderr=subprocess.PIPE) as process:
        metrics = Path("runs/stopped/journal.jsonl")
        deadline = time.monotonic() + PATIENCE
        while not metrics.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert errors.endswith("stopped. To go on: fedcompass run --resume runs/stopped\n")
    Path("hold").unlink()
    fedcompass("run", "--resume", "runs/stopped", "--executor", "serial")
    fedcompass("run", "--name", "whole", *arguments)
    sys.modules.pop("held")
    for name in ("journal.jsonl", "metrics.jsonl", "summary.json", "final.safetensors"):
        assert Path("runs/stopped", name).read_bytes() == Path("runs/whole", name).read_bytes()


def test_compare_prints_the_table_over_seeds_and_what_it_means() -> None:
    output = fedcompass(
        *("compare", "--strategies", "fedavg,fedbuff,fedcompass", "--seeds", "2"),
        *("--horizon", "4", "--target", "0.3", "--workers", "1", "--buffer-size", "2"),
    ).output
    lines = output.splitlines()
    header = next(line for line in lines if line.startswith("strategy"))
    assert header.split("  ")[0] == "strategy"
    assert "time to 30%" in header
    rows = [re.split(r"\s{2,}", line) for line in lines if line.startswith("fed")]
    assert [row[0] for row in rows] == ["fedavg", "fedbuff", "fedcompass"]
    assert all(re.fullmatch(r"[0-2]/2", row[2]) for row in rows)
    assert "misses counted at the horizon (4 s)" in " ".join(output.split())
    assert max(map(len, lines)) <= 80
    assert output.startswith("compare: runs/compare\n")
    assert output.endswith("To look at them: runs/compare/report.html\n")
    assert "buffer_size = 2" in Path("runs/compare/fedbuff-seed1/experiment.toml").read_text()
    summary = json.loads(Path("runs/compare/fedcompass-seed0/summary.json").read_text())
    assert summary["strategy"] == "fedcompass"


def test_compare_names_what_times_are_relative_to_and_the_targets_side_of_a_loss() -> None:
    about = ("--metric", "loss", "--target", "2.5", "--horizon", "2", "--workers", "1")
    compared = fedcompass("compare", "--strategies", "fedbuff,fedavg", "--seeds", "1", *about)
    said = " ".join(compared.output.split())
    assert "first evaluation at or below it" in said
    assert "ratio: that mean over fedbuff's." in said
    assert " best loss " in said
    assert "top" not in said
    told = " ".join(fedcompass("table", "runs/compare").output.split())
    assert "first evaluation at or below the target" in told
    assert "ratio: none, as fedcompass is not among these; --reference names another" in told


def test_one_is_not_told_in_the_plural() -> None:
    assert [number_of(n, "client update") for n in (0, 1, 2)] == [
        "0 client updates",
        "1 client update",
        "2 client updates",
    ]
    said = fedcompass(
        "run", *QUICK, "--no-train", "--strategy", "fedasync", "--set", "max_updates=1"
    )
    assert "  global updates     1 from 1 client update\n" in said.output


@pytest.mark.whatever_is_learned
def test_compare_gives_the_same_numbers_with_two_processes() -> None:
    arguments = ["compare", "--strategies", "fedavg,fedcompass", "--seeds", "1", "--horizon", "3"]
    one = fedcompass(*arguments, "--workers", "1", "--name", "one").stdout
    two = fedcompass(*arguments, "--workers", "2", "--name", "two").stdout
    assert "mean staleness" in two
    assert one.replace("runs/one", "runs/two") == two
    # Which run ends first is the machine's affair; what it gave is not.
    for name in ("fedavg-seed0", "fedcompass-seed0"):
        for file in ("journal.jsonl", "metrics.jsonl", "final.safetensors"):
            first, second = Path("runs/one", name, file), Path("runs/two", name, file)
            assert first.read_bytes() == second.read_bytes()


def test_a_run_stopped_before_its_first_task_leaves_nothing_that_is_in_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stopped_while_it_prepares(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("fedcompass.simulation.run.simulate", stopped_while_it_prepares)
        done = CliRunner(mix_stderr=False).invoke(app, ["run", "--name", "early"])
    assert done.exit_code == 130
    assert done.stderr.endswith("stopped before the first task; nothing is kept\n")
    assert not Path("runs/early").exists()


@pytest.mark.whatever_is_learned
def test_a_stopped_comparison_goes_on_to_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--strategies", "fedavg,fedcompass", "--seeds", "2", "--horizon", "3"]
    whole = fedcompass("compare", *arguments, "--workers", "1", "--name", "whole").stdout
    count_run = SweepProgress.update

    def stop_after_one(progress: SweepProgress, record: Record) -> None:
        count_run(progress, record)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SweepProgress, "update", stop_after_one)
        stopped = CliRunner(mix_stderr=False).invoke(app, ["compare", *arguments, "--workers", "1"])
    assert stopped.exit_code == 130
    assert stopped.stderr.splitlines()[-1] == (
        "stopped; 1 of 4 done. To go on: fedcompass compare --resume runs/compare"
    )
    assert re.search("^fedcompass +… +0/0 of 2", fedcompass("table", "runs/compare").stdout, re.M)
    resumed = fedcompass("compare", "--resume", "runs/compare", "--workers", "1")
    assert [line.split(":")[0] for line in resumed.stderr.splitlines() if "[" in line] == [
        "  [2/4] fedcompass, seed 0",
        "  [3/4] fedavg, seed 1",
        "  [4/4] fedcompass, seed 1",
    ]
    assert resumed.stdout == whole.replace("runs/whole", "runs/compare")
    for name in ("fedavg-seed0", "fedcompass-seed1"):
        for file in ("journal.jsonl", "summary.json", "final.safetensors"):
            assert Path("runs/whole", name, file).read_bytes() == (
                Path("runs/compare", name, file).read_bytes()
            )


def test_a_comparison_is_tabulated_and_reported_like_any_sweep() -> None:
    short = ("--strategies", "fedavg,fedcompass", "--seeds", "1", "--horizon", "2")
    fedcompass("compare", *short, "--workers", "1", "--target", "0.2")
    table = fedcompass("table", "runs/compare").stdout.splitlines()
    assert table[0].split("  ")[:2] == ["strategy.name", "time to 20%"]
    assert [line.split()[0] for line in table[1:3]] == ["fedavg", "fedcompass"]
    assert fedcompass("table", "runs/compare/sweep.toml").stdout.splitlines() == table
    again = fedcompass("sweep", "runs/compare/sweep.toml").stdout.splitlines()
    assert again[0] == "sweep: runs/compare/results.jsonl: 2 of 2 done"
    assert again[1].startswith("2 of 2 done; see them")
    assert fedcompass("report", "runs/compare").stdout == "report: runs/compare/report.html\n"


def test_a_run_that_fails_ends_no_other_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_for_fedavg(experiment: Experiment) -> Problem:
        if experiment.strategy["name"] == "fedavg":
            raise TaskFailed("no luck")
        return build_problem(experiment)

    short = ["--strategies", "fedavg,fedcompass", "--seeds", "1", "--horizon", "2"]
    with monkeypatch.context() as patched:
        patched.setattr("fedcompass.sweeps.one_at_a_time.build_problem", fails_for_fedavg)
        failed = CliRunner().invoke(app, ["compare", *short, "--workers", "1"])
    assert failed.exit_code == 1
    assert failed.output.splitlines()[-1] == "failed: no luck"
    assert re.search("^fedcompass .* 0/1 ", failed.output, re.M)
    again = fedcompass("compare", "--resume", "runs/compare", "--workers", "1")
    assert "[2/2] fedavg, seed 0" in again.stderr
    assert "failed" not in again.stdout


def test_an_error_that_runs_share_is_told_once_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Experiment) -> Problem:
        raise TaskFailed("no luck")

    monkeypatch.setattr("fedcompass.sweeps.one_at_a_time.build_problem", fails)
    short = ["--strategies", "fedavg,fedcompass", "--seeds", "2", "--horizon", "2"]
    failed = CliRunner(mix_stderr=False).invoke(app, ["compare", *short, "--workers", "1"])
    assert failed.exit_code == 1
    assert failed.stderr.count("failed: no luck") == 1
    assert failed.stderr.count("failed: the same error") == 3
    assert failed.stdout.splitlines()[-1] == "failed (4 runs): no luck"


def test_a_comparison_goes_on_as_it_is_or_not_at_all() -> None:
    with pytest.raises(RunFolderError, match=r"leave the settings out .--seeds."):
        fedcompass("compare", "--resume", "runs/x", "--seeds", "3")
    with pytest.raises(RunFolderError, match=r"runs/x is not a comparison's folder: it has no sw"):
        fedcompass("compare", "--resume", "runs/x")


def test_a_comparison_that_cannot_begin_leaves_no_folder() -> None:
    with pytest.raises(SettingsError, match="device is 'abacus', which cannot be used"):
        fedcompass("compare", "--device", "abacus")
    with pytest.raises(
        SettingsError, match=r"strategy is 'fedag' \(did you mean 'fedavg'\?\); allowed: fedavg, "
    ):
        fedcompass("compare", "--strategies", "fedag")
    assert not Path("runs").exists()


def test_a_run_that_cannot_begin_leaves_no_folder() -> None:
    with pytest.raises(SettingsError, match="device is 'abacus', which cannot be used"):
        fedcompass("run", "--device", "abacus", "--name", "never")
    assert not Path("runs/never").exists()


def test_worker_processes_train_on_the_cpu_only() -> None:
    with pytest.raises(SettingsError, match="goes with serial or stacked only"):
        simulate(Experiment(horizon=1.0), executor="processes", device="cuda")


def test_a_name_leads_nowhere_but_to_runs() -> None:
    for name in ("..", "a/b", "/tmp/x", "."):
        with pytest.raises(SettingsError, match="allowed: a plain name, without folders"):
            fedcompass("run", "--no-train", "--name", name, "--overwrite")


def test_overwriting_removes_nothing_that_no_run_wrote() -> None:
    fedcompass("run", "--no-train", "--horizon", "2", "--name", "mine")
    notes = Path("runs/mine/notes.md")
    notes.write_text("precious")
    with pytest.raises(RunFolderError, match=r"also holds notes\.md, which no run wrote"):
        fedcompass("run", "--no-train", "--horizon", "2", "--name", "mine", "--overwrite")
    assert notes.read_text() == "precious"
    assert Path("runs/mine/summary.json").exists()


def test_a_run_in_progress_is_not_overwritten() -> None:
    folder = create_run(Path("runs/live"), Experiment())
    with folder.lock(), pytest.raises(RunFolderError, match="another process is running"):
        fedcompass("run", "--no-train", "--name", "live", "--overwrite")


def test_only_what_was_begun_is_resumed() -> None:
    Path("experiment.toml").write_text("seed = 1")
    with pytest.raises(RunFolderError, match="has no journal: nothing was begun"):
        fedcompass("run", "--resume", ".")


def test_compare_refuses_what_it_sets_itself_and_an_existing_folder() -> None:
    with pytest.raises(SettingsError, match=r"compare sets seed and strategy\.name itself"):
        fedcompass("compare", "--set", "seed=7")
    with pytest.raises(SettingsError, match="allowed: each name once"):
        fedcompass("compare", "--strategies", "fedavg,fedavg")
    Path("runs/two").mkdir(parents=True)
    with pytest.raises(RunFolderError, match="runs/two exists already"):
        fedcompass("compare", "--name", "two")


@pytest.mark.whatever_is_learned
def test_compare_takes_a_files_strategy_settings_where_they_fit() -> None:
    Path("e.toml").write_text('horizon = 2.0\n[strategy]\nname = "fedcompass"\nmin_steps = 4\n')
    arguments = ("--strategies", "fedavg,fedcompass", "--seeds", "1", "--workers", "1")
    said = fedcompass("compare", "e.toml", *arguments, "--name", "c").output
    assert "a fifth of its steps); for every strategy that has it: min_steps = 4." in " ".join(
        said.split()
    )
    assert "min_steps = 4" in Path("runs/c/fedcompass-seed0/experiment.toml").read_text()
    assert "min_steps" not in Path("runs/c/fedavg-seed0/experiment.toml").read_text()


def test_a_target_in_percent_is_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"target is 80; allowed: at least 0 and at most 1 .* .80% is 0.8."
    ):
        fedcompass("run", "--target", "80")
