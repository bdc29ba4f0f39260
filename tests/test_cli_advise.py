"""The `fedcompass advise` command, as a user sees it."""

import json
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fedcompass.advice.clients import Clients
from fedcompass.advice.measured import RECOMMENDATIONS
from fedcompass.advice.scheduled import STRATEGIES, schedules
from fedcompass.cli.setting_options import experiment_from
from fedcompass.errors import SettingsError
from fedcompass.strategies import strategy

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from typer.testing import CliRunner

    from fedcompass.cli import app, main

FAR_APART = "0.01,0.06,0.1,0.16,0.5"
EXPECTED = """\
5 clients, 0.01 to 0.5 s per step (slowest 50.0x the fastest), task overhead up to 1.5 s, Q = 200
All clients count with as many samples; --samples says how many each has.

strategy    waiting  by plan  uploads  merges  staleness   updates
fedavg          66%       0%       34       6        0.0     7 : 6
fedasync         0%       0%      307     307        3.8   198 : 6
fedbuff          0%       0%      307     102        1.3   198 : 6
fedat           16%       0%      250     219        2.9   170 : 6
fedcompass       7%       4%      364     206        1.7  185 : 18
metronome        5%       5%      637     147        0.2  147 : 49
"""


def advise(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["advise", *arguments], catch_exceptions=False)


def told(*arguments: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(advise(*arguments, "--json").output)
    return record


def options_of(command: str) -> tuple[list[str], dict[str, Any], list[str]]:
    """A command's arguments, its setting options and what it --sets."""
    words = shlex.split(command)[2:]
    files, options, assignments = [], {}, []
    while words:
        word = words.pop(0)
        if word == "--set":
            assignments.append(words.pop(0))
        elif word.startswith("--"):
            options[word[2:]] = words.pop(0)
        else:
            files.append(word)
    return files, options, assignments


def test_the_strategies_are_shown_on_these_very_clients() -> None:
    result = advise("--paces", FAR_APART, "--overhead", "1.5")
    assert result.output.startswith(EXPECTED)
    assert result.exit_code == 0


def test_it_ends_with_one_command_the_setting_for_a_federation_and_the_reasons() -> None:
    output = advise("--paces", "0.05,0.1,0.1,0.25").output
    assert (
        "\nUse metronome:\n\n  fedcompass run --strategy metronome --clients 4 --min-steps 20 "
        "--max-steps 200 --set strategy.absent=catch-up --horizon 200 --set "
        "'fleet.paces=[0.05,0.1,0.1,0.25]'\n\n"
        'In a federation: strategy = { name = "metronome", min_steps = 20, max_steps = 200, '
        'latest = 1.2, absent = "catch-up" }\n\nWhy:\n- In rounds of 200 steps (FedAvg) '
        "these clients wait 50% of their time;"
    ) in output
    in_one_line = " ".join(output.split())
    assert in_one_line.endswith("Source: docs/metronome-study.md; docs/pieces.md for CA2FL.")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["--paces", "0.1,0.1,0.105"], "alike"),
        (["--paces", "0.7"], "alike"),
        (["--paces", "0.01,0.05", "--overhead", "100"], "alike"),  # a task costs both the same
        (["--paces", "0.1,0.2,0.3,0.25"], "alike"),  # as far apart as normal speeds
        (["--paces", "0.05,0.1,0.1,0.25"], "far apart"),  # one group of Compass's
        (["--paces", FAR_APART], "far apart"),
        (["--paces", "0.2,0.2,0.2,6"], "one straggler"),
        (["--paces", "0.2,6"], "far apart"),  # two are no fleet with a straggler
    ],
)
def test_how_far_the_clients_are_apart_decides(arguments: list[str], kind: str) -> None:
    advice = told(*arguments)["advice"]
    assert advice["kind"] == kind
    verdict = RECOMMENDATIONS[advice["kind"]]
    assert advice["strategy"] == verdict.strategy
    assert advice["source"] == verdict.source
    assert set(verdict.because) <= set(advice["reasons"])


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        (["--paces", "0.1,0.1"], 40),
        (["--paces", "0.1,0.1", "--steps", "4"], 1),
        (["--paces", "0.15,0.15", "--overhead", "1.5"], 40),
        (["--paces", "0.15,0.15", "--overhead", "3"], 80),
        (["--paces", "0.15,0.15", "--overhead", "30"], 200),
    ],
)
def test_clients_that_are_alike_are_advised_rounds_as_short_as_a_tasks_fixed_cost_allows(
    arguments: list[str], steps: int
) -> None:
    advice = told(*arguments)["advice"]
    assert (advice["strategy"], advice["settings"]["steps"]) == ("fedavg", steps)


@pytest.mark.parametrize("kind", RECOMMENDATIONS)
def test_a_verdict_names_a_strategy_and_a_page_of_the_docs(kind: Any) -> None:
    verdict = RECOMMENDATIONS[kind]
    strategy(verdict.strategy)
    root = Path(__file__).parents[1]
    assert (root / verdict.source.split(",")[0].split(";")[0]).is_file()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--paces", "0.1,0.1,0.105"],
        ["--paces", "0.1,0.2,0.3,0.25", "--overhead", "1,2,3,4"],
        ["--paces", FAR_APART, "--overhead", "1.5", "--steps", "7"],
    ],
)
def test_the_command_is_one_that_runs_with_these_clients(arguments: list[str]) -> None:
    record = told(*arguments)
    files, options, assignments = options_of(record["advice"]["command"])
    keys = {"strategy": "strategy.name", "clients": "fleet.clients"}
    options.pop("horizon")
    settings: dict[str, Any] = {
        keys.get(name, f"strategy.{name.replace('-', '_')}"): value
        for name, value in options.items()
    }
    settings = {k: v if k == "strategy.name" else int(v) for k, v in settings.items()}
    experiment = experiment_from(None, assignments, settings)
    assert files == []
    assert experiment.chosen_strategy().name == record["advice"]["strategy"]
    assert list(experiment.fleet.paces or ()) == record["clients"]["paces"]
    round_trips = [2 * latency for latency in experiment.fleet.per_client_latency()]
    assert round_trips == pytest.approx(record["clients"]["overhead"])


def test_an_experiments_fleet_is_taken_and_its_file_run(tmp_path: Path) -> None:
    file = tmp_path / "far.toml"
    file.write_text("[fleet]\npaces = [0.01, 0.06, 0.1, 0.16, 0.5]\nlatency_seconds = 0.75\n")
    record = told(str(file))
    assert record["clients"]["paces"] == [0.01, 0.06, 0.1, 0.16, 0.5]
    assert record["clients"]["overhead"] == [1.5] * 5
    assert record["clients"]["steps"] == 40
    caught_up = "--set strategy.absent=catch-up"
    command = f"fedcompass run {file} --strategy metronome --min-steps 4 --max-steps 40 {caught_up}"
    assert record["advice"]["command"] == command
    changed = told(str(file), "--overhead", "3", "--steps", "200")
    assert changed["advice"]["command"] == (
        f"fedcompass run {file} --strategy metronome --min-steps 20 --max-steps 200 {caught_up} "
        "--set fleet.latency_seconds=1.5"
    )


def test_where_the_steps_come_from_a_source_it_says_so(tmp_path: Path) -> None:
    file = tmp_path / "short.toml"
    file.write_text('[fleet]\nspeed = "homogeneous"\n[strategy]\nname = "fedavg"\nsteps = 8\n')
    assert f", Q = 8 as in {file} (--steps: another)\n" in advise(str(file)).output
    assert ", Q = 40\n" in advise(str(file), "--steps", "40").output


def test_a_file_with_settings_that_the_advised_strategy_lacks_is_compared_instead(
    tmp_path: Path,
) -> None:
    file = tmp_path / "alike.toml"
    file.write_text('[fleet]\nspeed = "homogeneous"\n[strategy]\nname="fedcompass"\nlatest=1.5\n')
    command = told(str(file))["advice"]["command"]
    assert command == f"fedcompass compare {file} --strategies fedavg --seeds 1 --steps 8"


def test_a_runs_folder_tells_paces_overheads_and_samples(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [
        {"journal": 1, "strategy": {"name": "metronome", "scheduling": {"max_steps": 80}}},
        {"event": "ClientJoined", "at": 0.0, "client": "north", "samples": 30},
        {"event": "ClientJoined", "at": 0.0, "client": "south", "samples": 70},
        {"event": "ClientJoined", "at": 0.0, "client": "never answers", "samples": 9},
    ]
    arrivals = [("north", 0, 3.0, 2.0), ("south", 1, 7.0, None), ("north", 2, 4.0, 3.0)]
    for client, task, seconds, computing in arrivals:
        start = {"at": 0.0, "client": client, "task": task, "steps": 10, "version": 0}
        records.append({"command": "StartTraining", **start, "group": None})
        arrived = {"at": seconds, "client": client, "task": task, "steps_done": 10}
        records.append({"event": "UpdateArrived", **arrived, "compute_seconds": computing})
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    clients = told(str(tmp_path))["clients"]
    assert clients["paces"] == pytest.approx([0.25, 0.7])
    assert clients["overhead"] == [1.0, 0.0]
    assert clients["samples"] == [30, 70]
    assert clients["steps"] == 80
    assert clients["remark"] == "1 of 3 clients have not answered yet: 1 left out."


def test_who_has_not_answered_yet_counts_by_how_long_its_first_task_has_lasted(
    tmp_path: Path,
) -> None:
    joins = [
        {"event": "ClientJoined", "at": 0.0, "client": client, "samples": 5}
        for client in ("quick", "slow", "just came", "left")
    ]
    start = {"command": "StartTraining", "steps": 10, "version": 0, "group": None}
    tasks = [("quick", 0, 0.0), ("slow", 1, 0.0), ("just came", 2, 49.0), ("left", 3, 0.0)]
    starts = [{**start, "client": c, "task": task, "at": at} for c, task, at in tasks]
    arrived = {"event": "UpdateArrived", "client": "quick", "task": 0, "steps_done": 10}
    gone = {"event": "ClientLost", "at": 50.0, "client": "left"}
    records = [{"journal": 1}, *joins, *starts, {**arrived, "at": 1.0}, gone]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    clients = told(str(tmp_path))["clients"]
    assert clients["paces"] == pytest.approx([0.1, 5.0])
    assert advise(str(tmp_path)).output.splitlines()[1] == (
        "Not counted: 1 client that left. 2 of 3 clients have not answered yet: 1 counted by how "
        "long a first task has lasted, 1 left out."
    )


def test_who_has_left_does_not_decide(tmp_path: Path) -> None:
    clients = ("a", "b", "c", "d", "old")
    records: list[dict[str, Any]] = [{"journal": 1}]
    for task, client in enumerate(clients):
        records.append({"event": "ClientJoined", "at": 0.0, "client": client, "samples": 5})
        start = {"at": 0.0, "client": client, "task": task, "steps": 10, "version": 0}
        records.append({"command": "StartTraining", **start, "group": None})
    for task, client in enumerate(clients):
        at = 50.0 if client == "old" else 1.0
        arrived = {"at": at, "client": client, "task": task, "steps_done": 10}
        records.append({"event": "UpdateArrived", **arrived})
    records.append({"event": "ClientLost", "at": 51.0, "client": "old"})
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    made = told(str(tmp_path))
    assert made["clients"]["paces"] == pytest.approx([0.1] * 4)
    assert made["clients"]["remark"] == "Not counted: 1 client that left."
    assert made["advice"]["kind"] == "alike"


def test_the_advised_strategy_is_shown_with_the_settings_advised() -> None:
    for paces in ("0.1,0.1,0.1,0.11", "0.2,0.2,0.2,6"):
        made = told("--paces", paces)
        shown = {one["strategy"]: one for one in made["schedules"]}[made["advice"]["strategy"]]
        (usual,) = (
            one
            for one in schedules(Clients(**made["clients"]))[1]
            if one.strategy == shown["strategy"]
        )
        assert shown["uploads"] > usual.uploads  # of fewer steps


@pytest.mark.parametrize("name", ["metronome", "fedbuff"])
@pytest.mark.parametrize("piece", ["calibrated = true", "staleness_window = 5"])
def test_a_piece_of_the_files_that_makes_up_for_absent_clients_stays(
    tmp_path: Path, name: str, piece: str
) -> None:
    file = tmp_path / "own.toml"
    fleet = "clients = 5\npaces = [0.01, 0.1, 0.4, 0.4, 2.0]"
    file.write_text(f'[fleet]\n{fleet}\n[strategy]\nname = "{name}"\n{piece}\n')
    advice = told(str(file))["advice"]
    assert advice["command"].endswith("--set strategy.absent=skip")
    assert advice["settings"]["absent"] == "skip"
    assert advice["reasons"][-1].endswith("makes up for absent clients, so absent stays skip.")


def test_where_catch_up_is_not_advised_the_files_is_switched_off(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    fleet = "clients = 6\npaces = [0.01, 0.1, 0.1, 0.3, 0.3, 10.0]"
    file.write_text(f'[fleet]\n{fleet}\n[strategy]\nname = "metronome"\nabsent = "catch-up"\n')
    assert told(str(file))["advice"]["command"].endswith("--set strategy.absent=skip")


def test_the_commands_horizon_fits_fast_clients_too() -> None:
    command = told("--paces", "0.0002,0.0003,0.0002,0.0002", "--steps", "30")["advice"]["command"]
    assert "--horizon 0.054 " in command


def test_that_all_answer_together_is_said_only_where_the_schedules_do() -> None:
    apart = advise("--paces", "0.01,0.147,0.026", "--overhead", "1.5", "--steps", "40").output
    assert "answer together" not in apart
    together = advise("--paces", "0.05,0.1,0.1,0.25").output
    assert "FedCompass and Metronome let all of them answer together." in " ".join(together.split())


def test_a_trace_of_paces_is_a_fleet_too(tmp_path: Path) -> None:
    file = tmp_path / "paces.csv"
    file.write_text("client,seconds_per_step\nhospital A,0.1\nhospital B,0.2\n")
    record = told(str(file), "--samples", "100")
    assert record["clients"]["paces"] == [0.1, 0.2]
    assert record["clients"]["samples"] == [100, 100]
    assert record["clients"]["steps"] == 200
    file.write_text("client,round,seconds_per_step\n0,0,0.1\n0,1,0.5\n0,2,0.2\n3,0,0.4\n")
    assert told(str(file))["clients"]["paces"] == [0.2, 0.4]
    assert "fleet.paces=[0.1,0.2]" in record["advice"]["command"]


def test_a_client_a_million_times_as_fast_does_not_take_for_ever() -> None:
    clients = Clients(paces=(1e-6, 1.0), overhead=(0.0, 0.0), samples=(1, 1))
    _, made = schedules(clients.checked())
    assert [one.strategy for one in made] == list(STRATEGIES)
    assert max(one.uploads for one in made) <= 25_000
    output = advise("--paces", "1e-6,0.01,0.02,0.05,0.1,1").output
    assert "no longer, since fast clients make so many tasks" in " ".join(output.split())
    assert "Use metronome" in output  # FedAvg's first round is not over then, but will be


def test_many_clients_are_told_apart_as_few_are() -> None:
    paces = ",".join(str(0.02 + 0.01 * (client % 10) ** 2) for client in range(1000))
    advice = told("--paces", paces)
    assert advice["schedules"][0]["waiting"] == pytest.approx(0.63, abs=0.01)
    assert advice["advice"]["kind"] == "far apart"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either a run's folder or a file, or --paces"),
        (["--paces", "fast"], "--paces is 'fast'; allowed: numbers with commas"),
        (["--paces", "0.1,0"], "paces has 0; allowed: 1e-09 to 1e+09"),
        (["--paces", "0.1,nan"], "paces has nan; allowed: 1e-09 to 1e+09"),
        (["--paces", "0.1", "--overhead", "-1"], "overhead has -1; allowed: 0 to 1e+09"),
        (["--paces", "1,2", "--overhead", "1,2,3"], "overhead has 3 values for 2 paces; give one"),
        (["--paces", "1,2", "--samples", "0.5"], "samples has 0.5; allowed: whole numbers above 0"),
        (["--paces", "1,2", "--samples", "0"], "samples has 0; allowed: whole numbers above 0"),
        (["--paces", "1e308,1"], "paces has 1e+308; allowed: 1e-09 to 1e+09"),
        (["--paces", "1,2", "--samples", "1e400"], "samples has inf; allowed: whole numbers"),
        (["--paces", "1,2", "--steps", "0"], "steps is 0; allowed: at least 1"),
        (["missing.toml"], "missing.toml is not there; give a run's folder, an experiment's TOML"),
        (["missing.csv"], "missing.csv is not there; give a run's folder"),
        (["empty.csv"], "empty.csv has no rows; give one for each client: client,seconds_per_step"),
        (["nameless.csv"], "nameless.csv row 1: client is empty; give it a name or a number"),
        (["."], ". is not a run's folder: it has no journal.jsonl"),
    ],
)
def test_an_error_is_one_line_on_stderr_and_exit_code_1(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.csv").write_text("client,seconds_per_step\n")
    (tmp_path / "nameless.csv").write_text("client,seconds_per_step\n ,0.1\n")
    monkeypatch.setattr(sys, "argv", ["fedcompass", "advise", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    output = capsys.readouterr()
    assert caught.value.code == 1
    assert output.out == ""
    assert output.err.startswith(f"error: {message}")
    assert output.err.count("\n") == 1


def test_a_straggler_among_equals_is_advised_what_did_best_there() -> None:
    output = advise("--paces", "0.2,0.2,0.2,6").output
    assert "--min-steps 10 --max-steps 200 --set strategy.staleness.kind=growing --hor" in output
    assert 'latest = 1.2, staleness = { kind = "growing" } }\n' in output
    assert "wait 72% of their time; without the slowest they would wait 0%." in " ".join(
        output.split()
    )


def test_what_speaks_against_the_advice_is_said_with_it() -> None:
    def reasons(*arguments: str) -> list[str]:
        advice = told(*arguments)["advice"]
        given: list[str] = advice["reasons"]
        return given[1 + len(RECOMMENDATIONS[advice["kind"]].because) :]

    assert reasons("--paces", "0.1,0.1,0.1,0.1") == []
    assert reasons("--paces", "0.1,0.1,0.1,0.1", "--overhead", "60") == [
        "Here a task's fixed cost is larger, so that rounds of 200 steps are advised."
    ]
    (slow,) = reasons("--paces", "0.1,0.1,0.3,0.3,0.3,0.3,9,9")
    assert slow.startswith("The slowest client's tasks take more than 7 beats, for which catch-up")
    (waits,) = reasons("--paces", "0.01,0.02,0.03,0.05,20,20")
    assert waits.startswith("With Metronome these clients would wait 66% of their time, more than")
    (border,) = reasons("--paces", "0.1,0.2,0.9,0.9,0.3,0.2")
    assert border.startswith("These clients are near the border of 45% between the two kinds")
    (few,) = reasons("--paces", "1,1,1.1")
    assert few.startswith("With fewer than 4 clients nothing was measured")


def test_one_client_is_told_that_it_waits_for_nobody() -> None:
    assert "Why:\n- One client waits for nobody" in advise("--paces", "0.7").output


def test_samples_that_the_printed_command_leaves_out_are_named() -> None:
    output = advise("--paces", "0.1,0.2", "--samples", "500,1200").output
    assert "It leaves out the clients' samples: `run` divides its own data among them." in output
    assert "leaves out" not in advise("--paces", "0.1,0.2", "--samples", "500").output


def test_a_comparisons_folder_is_answered_with_its_runs_folders(tmp_path: Path) -> None:
    for name in ("fedavg-seed0", "fedcompass-seed0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "journal.jsonl").write_text('{"journal": 1}\n')
    with pytest.raises(SettingsError) as caught:
        advise(str(tmp_path))
    assert str(caught.value).endswith(
        f"; give one of those in it: {tmp_path}/fedavg-seed0, {tmp_path}/fedcompass-seed0"
    )


def test_a_run_in_which_nobody_has_answered_gives_no_paces(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"journal": 1}\n')
    program = "from fedcompass.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "advise", str(tmp_path)], capture_output=True, text=True
    )
    assert done.stderr == f"error: {tmp_path}: nobody has answered yet; give --paces instead\n"
