"""The `fedcompass schedule` command and the start of the command line, as a user sees them."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from click.testing import Result

from fedcompass import __version__
from fedcompass.errors import SettingsError
from fedcompass.runs.replay import replay

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from typer.testing import CliRunner

    from fedcompass.cli import app, main

PAPER = ["--paces", "0.1,0.2,0.25,0.4,0.5", "--min-steps", "20", "--max-steps", "100"]
KEYS = ["time", "event", "client", "steps", "group", "version", "staleness"]

OVERVIEW_FIGURE = """\
      time  event     client  steps  group  version  staleness
    0.0000  dispatch       0     20               0
    0.0000  dispatch       1     20               0
    0.0000  dispatch       2     20               0
    0.0000  dispatch       3     20               0
    0.0000  dispatch       4     20               0
    2.0000  merge                                 1  0: 0
    2.0000  dispatch       0    100      1        1
    4.0000  merge                                 2  1: 1
    4.0000  dispatch       1     40      1        2
    5.0000  merge                                 3  2: 2
    5.0000  dispatch       2     28      1        3
    8.0000  merge                                 4  3: 3
    8.0000  dispatch       3     35      2        4
   10.0000  merge                                 5  4: 4
   10.0000  dispatch       4     24      2        5
   12.0000  merge                        1        6  0: 4, 1: 3, 2: 2
   12.0000  dispatch       0    100      2        6
   12.0000  dispatch       1     50      2        6
   12.0000  dispatch       2     40      2        6
   22.0000  merge                        2        7  3: 2, 4: 1, 0: 0, 1: 0, 2: 0
   22.0000  dispatch       0    100      3        7
   22.0000  dispatch       1     50      3        7
   22.0000  dispatch       2     40      3        7
   22.0000  dispatch       3     25      3        7
   22.0000  dispatch       4     20      3        7
   32.0000  merge                        3        8  0: 0, 1: 0, 2: 0, 3: 0, 4: 0
   32.0000  dispatch       0    100      4        8
   32.0000  dispatch       1     50      4        8
   32.0000  dispatch       2     40      4        8
   32.0000  dispatch       3     25      4        8
   32.0000  dispatch       4     20      4        8
"""


def schedule(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["schedule", *arguments], catch_exceptions=False)


def rows(*arguments: str) -> list[dict[str, object]]:
    output = schedule(*PAPER, *arguments, "--json").output
    return [json.loads(line) for line in output.splitlines()]


def dispatched(records: list[dict[str, object]], at: float) -> list[tuple[object, ...]]:
    """Client, steps and group of everyone who is sent off at that time."""
    return [
        (record["client"], record["steps"], record["group"])
        for record in records
        if record["event"] == "dispatch" and record["time"] == pytest.approx(at)
    ]


def fedcompass(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedcompass", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_papers_overview_figure_is_printed_as_a_table() -> None:
    result = schedule(*PAPER, "--latest", "1.2", "--until", "34")
    assert result.output == OVERVIEW_FIGURE
    assert result.exit_code == 0


def test_json_lines_say_the_same_with_the_promised_keys() -> None:
    records = rows("--until", "34")
    assert len(records) == OVERVIEW_FIGURE.count("\n") - 1
    for record in records:
        merge = record["event"] == "merge"
        assert list(record) == [*KEYS, "contributions"] if merge else KEYS
        assert (record["client"] is None) == merge
        assert (record["steps"] is None) == merge
    merges = [record for record in records if record["event"] == "merge"]
    assert [merge["version"] for merge in merges] == list(range(1, 9))
    assert merges[6] == {
        "time": pytest.approx(22.0),
        "event": "merge",
        "client": None,
        "steps": None,
        "group": 2,
        "version": 7,
        "staleness": 2,
        "contributions": [[3, 2], [4, 1], [0, 0], [1, 0], [2, 0]],
    }


ONE_BEAT_FOR_EVERYBODY = """\
      time  event     client  steps   beat  version  staleness
    0.0000  dispatch       0     20               0
    0.0000  dispatch       1     20               0
    0.0000  dispatch       2     20               0
    0.0000  dispatch       3     20               0
    8.0000  merge                                 1  0: 0, 1: 0, 2: 0
    8.0000  dispatch       0    100      1        1
    8.0000  dispatch       1     80      1        1
    8.0000  dispatch       2     20      1        1
   16.0000  merge                        1        2  0: 0, 1: 0, 2: 0
   16.0000  dispatch       0    100      2        2
   16.0000  dispatch       1     80      2        2
   16.0000  dispatch       2     20      2        2

Clients waited 32% of the time up to 16: 11% by plan, ahead of their beat, 21% for others.

Once every pace is known a beat lasts 8; for each client, the beats that a task takes,
its steps, and the share of time it waits by plan:

client  beats  steps  waiting
     0      1    100      88%
     1      1     80       0%
     2      1     20       0%
     3      5     20       0%
"""


def test_samples_decide_for_whom_a_beat_is_long_enough() -> None:
    given = ("--strategy", "metronome", "--paces", "0.1,0.2,0.8", "--until", "20")
    assert "a beat lasts 10;" in schedule(*given, "--samples", "45,45,10").output
    assert "a beat lasts 16;" in schedule(*given, "--samples", "10,10,80").output
    with pytest.raises(SettingsError, match="samples has 2 values for 3 paces; give one, or one"):
        schedule(*given, "--samples", "1,2")


def test_metronomes_schedule_has_beats_and_says_who_waits() -> None:
    result = schedule("--strategy", "metronome", "--paces", "0.01,0.1,0.4,2.0", "--until", "16")
    assert result.output == ONE_BEAT_FOR_EVERYBODY
    assert result.exit_code == 0


def test_a_fixed_cost_of_each_task_makes_the_beat_longer() -> None:
    fleet = ["--strategy", "metronome", "--paces", "0.01,0.1,0.4,2.0", "--until", "30"]
    output = schedule(*fleet, "--overhead", "1.5").output
    assert "a beat lasts 9.5;" in output
    records = [
        json.loads(line)
        for line in schedule(*fleet, "--overhead", "1.5", "--json").output.splitlines()
    ]
    merges = [record["time"] for record in records if record["event"] == "merge"]
    assert merges == pytest.approx([9.5, 19.0, 28.5])


def test_a_beat_is_as_long_as_asked_for() -> None:
    fleet = ["--strategy", "metronome", "--paces", "0.01,0.1,0.4,2.0", "--until", "1"]
    assert "a beat lasts 2;" in schedule(*fleet, "--covered", "0.5").output


def test_both_readings_of_create_group_can_be_looked_at() -> None:
    fleet = ["--paces", "0.1,1,2", "--until", "40", "--json"]
    chosen = {
        reading: [json.loads(line) for line in schedule(*fleet, *options).output.splitlines()]
        for reading, options in {
            "default": [],
            "clamp": ["--create-group", "clamp"],
            "pass-over": ["--create-group", "pass-over"],
        }.items()
    }
    assert chosen["default"] == chosen["clamp"]
    # Client 2's group is back after 200 steps of client 1 or more, client 0's after 20 at most.
    steps = {reading: dispatched(entries, 40.0)[-1][1] for reading, entries in chosen.items()}
    assert steps == {"default": 100, "clamp": 100, "pass-over": 20}


def test_a_schedule_by_metronome_is_kept_for_the_report(tmp_path: Path) -> None:
    folder = tmp_path / "idea"
    fleet = ["--strategy", "metronome", "--paces", "0.01,0.1,0.4,2.0", "--until", "16"]
    assert schedule(*fleet, "--record", str(folder)).exit_code == 0
    header = json.loads((folder / "journal.jsonl").read_text().splitlines()[0])
    assert header["strategy"]["name"] == header["strategy"]["scheduler"] == "metronome"
    assert replay(folder / "journal.jsonl").events > 0


def test_everything_up_to_and_including_until_is_told_and_nothing_after() -> None:
    everything = rows("--until", "34")
    for until in ("0", "2", "11.9", "12", "22", "32"):
        expected = [record for record in everything if float(str(record["time"])) <= float(until)]
        assert rows("--until", until) == expected
    assert dispatched(everything, 0.0) == [(client, 20, None) for client in range(5)]


def test_a_client_that_speeds_up_waits_and_gets_more_steps() -> None:
    records = rows("--until", "12", "--change", "2:1:0.2")
    assert dispatched(records, 12.0) == [(0, 100, 2), (1, 50, 2), (2, 50, 2)]


def test_a_client_that_slows_down_a_little_is_waited_for() -> None:
    records = rows("--until", "14", "--change", "2:1:0.3")
    assert dispatched(records, 13.4) == [(0, 86, 2), (1, 43, 2), (2, 28, 2)]


def test_a_client_that_slows_down_much_is_merged_late() -> None:
    records = rows("--until", "23", "--change", "2:1:0.3642857142857143")
    assert dispatched(records, 14.0) == [(0, 80, 2), (1, 40, 2)]
    assert dispatched(records, 15.2) == [(2, 46, 3)]
    merge = next(record for record in records if record["version"] == 7)
    assert merge["time"] == pytest.approx(22.0)
    assert [2, 3] in merge["contributions"]  # type: ignore[operator]  # a list in a merge


def test_late_answers_alone_are_merged_by_the_group_whose_deadline_it_is() -> None:
    slower = ("--change", "0:1:0.2", "--change", "0:2:0.4")  # answers at 22 and 62, too late
    output = schedule("--paces", "0.1", "--until", "46", *slower).output
    assert output.splitlines()[-1] == ("   46.0000  merge                        2        2  0: 0")


def test_changes_can_be_repeated() -> None:
    records = rows("--until", "13", "--change", "2:1:0.2", "--change", "0:1:0.11")
    assert dispatched(records, 13.0) == [(0, 81, 2), (1, 45, 2), (2, 45, 2)]


def test_jitter_follows_the_seed() -> None:
    noisy = rows("--until", "40", "--jitter", "0.1", "--seed", "3")
    assert noisy == rows("--until", "40", "--jitter", "0.1", "--seed", "3")
    assert noisy != rows("--until", "40", "--jitter", "0.1", "--seed", "4")
    assert noisy != rows("--until", "40")
    assert rows("--until", "40", "--seed", "3") == rows("--until", "40")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--paces", "fast", "--until", "3"], "--paces is 'fast'; allowed: numbers with commas"),
        (["--paces", "", "--until", "3"], "--paces is ''"),
        (["--paces", "0.1,-1", "--until", "3"], "paces"),
        (["--paces", "nan", "--until", "3"], "paces"),
        (["--paces", "1", "--until", "nan"], "--until is nan; allowed: a finite time"),
        (["--paces", "1", "--until", "inf"], "--until is inf"),
        (["--paces", "1", "--until", "-1"], "--until is -1.0"),
        (
            ["--paces", "1", "--until", "3", "--change", "2:1"],
            "--change is '2:1'; allowed: CLIENT:",
        ),
        (["--paces", "1", "--until", "3", "--change", "a:b:c"], "--change is 'a:b:c'"),
        (["--paces", "1", "--until", "3", "--change", "0:1:-2"], "seconds_per_step is -2"),
        (["--paces", "1", "--until", "3", "--change", "7:1:2"], ""),
        (["--paces", "1", "--until", "3", "--jitter", "-1"], "jitter is -1"),
        (
            ["--paces", "1", "--until", "3", "--min-steps", "9", "--max-steps", "8"],
            "min_steps is 9; allowed: at least 1 and at most max_steps, which is 8",
        ),
        (["--paces", "1", "--until", "3", "--min-steps", "0"], "min_steps is 0; allowed"),
        (["--paces", "1", "--until", "3", "--latest", "0.5"], "latest is 0.5; allowed"),
        (
            ["--paces", "1", "--until", "3", "--strategy", "fedavg"],
            "--strategy is 'fedavg'; allowed: fedcompass, metronome",
        ),
        (["--paces", "1", "--until", "3", "--overhead", "-1"], "--overhead is -1.0; allowed: a"),
        (
            ["--paces", "1", "--until", "3", "--covered", "0.5"],
            "--covered is 0.5, but fedcompass has no beats; leave it out",
        ),
        (
            ["--paces", "1", "--until", "3", "--strategy", "metronome", "--create-group", "clamp"],
            "--create-group is 'clamp', but metronome has no groups; leave it out",
        ),
        (
            ["--paces", "1", "--until", "3", "--create-group", "skip"],
            "create_group is 'skip'; allowed: one of 'clamp', 'pass-over'",
        ),
        (
            ["--paces", "1", "--until", "3", "--strategy", "metronome", "--covered", "2"],
            "covered is 2",
        ),
    ],
)
def test_an_error_is_one_line_on_stderr_and_exit_code_1(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["fedcompass", "schedule", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    output = capsys.readouterr()
    assert caught.value.code == 1
    assert output.out == ""
    assert output.err.startswith(f"error: {message}")
    assert output.err.count("\n") == 1


def test_a_real_process_prints_one_line_and_no_traceback() -> None:
    result = fedcompass("schedule", "--paces", "fast", "--until", "3")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "error: --paces is 'fast'; allowed: numbers with commas between them, such as 0.1,0.25\n"
    )


def test_a_missing_option_is_named_in_plain_words() -> None:
    result = schedule("--paces", "1")
    assert result.exit_code == 2
    assert "Error: Missing option '--until'." in result.output


def test_help_is_plain_text_and_shows_brackets_as_they_are() -> None:
    result = CliRunner().invoke(app, ["schedule", "--help"], catch_exceptions=False)
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    assert "contributions, [client, staleness] each." in text
    assert "Q_min: fewest local steps. [default: 20]" in text
    assert "\\" not in text
    for option in ("--paces", "--until", "--change", "--jitter", "--seed", "--json"):
        assert option in text


def test_python_m_fedcompass_help_lists_the_commands() -> None:
    result = fedcompass("--help")
    assert result.returncode == 0
    assert result.stdout.startswith("Usage: ")
    assert "schedule" in result.stdout
    assert result.stderr == ""


def test_the_installed_command_prints_its_version() -> None:
    command = Path(sys.executable).with_name("fedcompass")
    result = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"fedcompass {__version__}\n"


def test_the_version_wins_over_everything_else() -> None:
    result = CliRunner().invoke(app, ["--version", "schedule"], catch_exceptions=False)
    assert (result.output, result.exit_code) == (f"fedcompass {__version__}\n", 0)


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from fedcompass.cli import main\n"
        "sys.argv = ['fedcompass', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    heavy = {'torch', 'numpy', 'pydantic', 'rich', 'matplotlib', 'flwr'}\n"
        "    print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stderr == "[]\n"


def test_a_schedule_needs_no_torch() -> None:
    program = (
        "import sys\n"
        "from fedcompass.cli import app\n"
        "app(['schedule', '--paces', '1,2', '--until', '3'], standalone_mode=False)\n"
        "print('torch' in sys.modules, file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stderr == "False\n"
