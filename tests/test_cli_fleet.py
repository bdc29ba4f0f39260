"""The `fedcompass fleet` command, as a user sees it."""

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fedcompass.errors import DataError, SettingsError
from fedcompass.settings.simulation import FleetSettings
from fedcompass.simulation.fleet import Fleet

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from typer.testing import CliRunner

    from fedcompass.cli.app import app

PAPERS_OVERVIEW = """\
5 clients from paces.csv

client  s/step  slower  group  steps
     3   0.100   1.00x      1    100
     0   0.200   2.00x      1     50
     1   0.250   2.50x      1     40
     4   0.400   4.00x      1     25
     2   0.500   5.00x      1     20

fastest 0.1 s/step, slowest 0.5 s/step: mu = 5.00
Q_min 20, Q_max 100 (Q = 5): at most 1 group at equilibrium, ceil(log_Q mu);
here 1 group, of all clients. steps: local steps of each client then.
"""


def fleet(*arguments: str) -> Result:
    return CliRunner(mix_stderr=False).invoke(app, ["fleet", *arguments], catch_exceptions=False)


def records(*arguments: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The clients' records, and the fleet's."""
    *clients, last = map(json.loads, fleet(*arguments, "--json").output.splitlines())
    return clients, last["fleet"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "paces.csv"
    path.write_text("client,seconds_per_step\n0,0.2\n1,0.25\n2,0.5\n3,0.1\n4,0.4\n")
    return path


def test_the_papers_five_clients_share_one_group_at_equilibrium(trace: Path) -> None:
    result = fleet("--trace", str(trace), "--min-steps", "20", "--max-steps", "100")
    assert result.output == PAPERS_OVERVIEW
    assert result.exit_code == 0


def test_without_arguments_it_is_the_papers_fifty_clients() -> None:
    clients, whole = records()
    own = Fleet(FleetSettings(clients=50), seed=0)
    assert [record["seconds_per_step"] for record in clients] == list(own.paces)
    assert whole["mu"] == own.speed_ratio
    assert (whole["min_steps"], whole["max_steps"]) == (40, 200)
    assert len(whole["groups"]) <= whole["group_bound"]
    assert sorted(client for group in whole["groups"] for client in group) == list(range(50))


def test_a_clients_group_and_steps_fit_the_fleets() -> None:
    clients, whole = records("--clients", "30", "--seed", "4")
    for record in clients:
        assert record["client"] in whole["groups"][record["group"] - 1]
        assert 40 <= record["steps"] <= 200


@pytest.mark.parametrize("speed", ["exponential", "normal", "homogeneous"])
def test_every_option_of_a_draw_reaches_the_fleet(speed: str) -> None:
    options = ["--speed", speed, "--mean", "0.5", "--spread", "0.2", "--jitter", "0.1"]
    options += ["--floor", "0.1", "--speed-change", "0.3", "--clients", "7", "--seed", "2"]
    clients, whole = records(*options, "--rounds", "4")
    settings = FleetSettings(
        clients=7,
        speed=speed,  # type: ignore[arg-type]  # a name from the list
        mean_seconds_per_step=0.5,
        spread=0.2,
        jitter=0.1,
        floor=0.1,
        resample_probability=0.3,
    )
    own = Fleet(settings, seed=2)
    for record in clients:
        rounds = [own.seconds_per_step(record["client"], r) for r in range(4)]
        assert record["rounds"] == rounds
    assert whole["clients"] == 7
    if speed == "homogeneous":
        assert (whole["mu"], whole["group_bound"]) == (1, 1)


def test_the_table_shows_the_fastest_first_and_the_paces_of_each_round() -> None:
    output = fleet("--clients", "5", "--rounds", "3").output
    lines = output.splitlines()
    assert lines[0] == "5 clients, exponential, mean 0.15 s per step, seed 0"
    assert lines[2].split() == [
        *("client", "s/step", "slower", "group", "steps"),
        *("round", "0", "round", "1", "round", "2"),
    ]
    paces = [float(line.split()[1]) for line in lines[3:8]]
    assert paces == sorted(paces)
    assert max(map(len, lines)) <= 80


def test_equal_steps_bound_the_groups_by_the_clients_alone() -> None:
    output = fleet("--clients", "4", "--min-steps", "50", "--max-steps", "50").output
    assert "Q_min 50, Q_max 50 (Q = 1): at most 4 groups at equilibrium, one per client;" in output


def test_a_trace_of_rounds_is_shown_round_by_round(tmp_path: Path) -> None:
    path = tmp_path / "rounds.csv"
    path.write_text("client,round,seconds_per_step\n0,0,0.1\n0,2,0.3\n1,0,0.2\n")
    clients, _ = records("--trace", str(path), "--rounds", "3")
    assert [record["rounds"] for record in clients] == [[0.1, 0.1, 0.3], [0.2, 0.2, 0.2]]
    assert [record["changes"] for record in clients] == [1, 0]


def test_the_histogram_is_drawn(tmp_path: Path, trace: Path) -> None:
    pytest.importorskip("matplotlib", reason="drawing needs the plot extra")
    path = tmp_path / "figures" / "fleet.png"
    result = fleet("-o", str(path), "--trace", str(trace))
    assert path.read_bytes().startswith(b"\x89PNG")
    assert result.stderr == f"picture: {path}\n"
    with pytest.raises(SettingsError, match=r"cannot be written: .*; choose another place"):
        fleet("-o", str(trace / "fleet.png"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--speed", "fast"], "speed is 'fast'; allowed: one of 'homogeneous', 'normal', "),
        (["--clients", "0"], "clients is 0; allowed: a whole number at least 1"),
        (["--mean", "-1"], "mean_seconds_per_step is -1.0; allowed: a number above 0"),
        (["--floor", "2"], "floor is 2.0; allowed: a number above 0 and at most 1"),
        (["--seed", "-1"], "seed is -1; allowed: a whole number at least 0"),
        (["--min-steps", "0"], "min_steps is 0; allowed: 1 to max_steps = 200"),
        (["--min-steps", "300"], "min_steps is 300; allowed: 1 to max_steps = 200"),
        (["--trace", "x.csv", "--mean", "1"], "--mean is 1.0, but --trace gives the paces; leave"),
        (["--trace", "x.csv", "--speed-change", "1"], "--speed-change is 1.0, but --trace gives"),
        (["--speed", "trace"], "speed is 'trace' but trace is missing; give the path"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        fleet(*arguments)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: "),
        ("client,pace\n0,1\n", "has the columns client,pace; allowed"),
        ("client,seconds_per_step\n0,1\n7,1\n", "client is 7; allowed: 0 to 1"),
        ("client,seconds_per_step\n0,fast\n", "seconds_per_step is 'fast'; allowed"),
    ],
)
def test_a_damaged_trace_is_one_line(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "paces.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError) as caught:
        fleet("--trace", str(path))
    assert message in str(caught.value)


def test_a_fleet_needs_no_torch() -> None:
    program = (
        "import sys\n"
        "from fedcompass.cli import app\n"
        "app(['fleet', '--clients', '3'], standalone_mode=False)\n"
        "print('torch' in sys.modules, file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stderr == "False\n"
