"""A fleet's settings: what is taken, and the one line that refuses anything else."""

from typing import Any

import pytest

from fedcompass.errors import SettingsError
from fedcompass.settings.simulation import (
    PAPER_SECONDS_PER_STEP,
    Dropout,
    FleetSettings,
    SpeedChange,
)

ENTRY = "[client, from_round, seconds_per_step]"
LATENCY = "a number at least 0, or a list with one per client"
BANDWIDTH = "a number above 0, or a list with one per client; leave it out for no limit"
PACES = "a list with one number above 0 per client"


def fleet_settings(**values: Any) -> FleetSettings:
    """Settings as a TOML file has them: lists, not tuples."""
    return FleetSettings(**values)


def test_the_defaults_are_the_papers_mnist_fleet_of_five() -> None:
    settings = FleetSettings()
    assert (settings.clients, settings.speed, settings.mean_seconds_per_step) == (
        5,
        "exponential",
        PAPER_SECONDS_PER_STEP["mnist"],
    )
    assert (settings.spread, settings.jitter, settings.floor) == (0.3, 0.05, 0.02)


def test_the_papers_means() -> None:
    assert PAPER_SECONDS_PER_STEP == {
        "mnist": 0.15,
        "cifar10": 0.5,
        "fed-ixi": 0.8,
        "fed-isic2019": 1.5,
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"clients": 0}, "clients is 0; allowed: a whole number at least 1"),
        (
            {"speed": "fast"},
            "speed is 'fast'; allowed: one of 'homogeneous', 'normal', 'exponential', 'trace'",
        ),
        ({"mean_seconds_per_step": 0}, "mean_seconds_per_step is 0; allowed: a number above 0"),
        ({"floor": 0}, "floor is 0; allowed: a number above 0 and at most 1"),
        ({"jitter": float("nan")}, "jitter is nan; allowed: a number at least 0"),
        (
            {"resample_probability": 1.5},
            "resample_probability is 1.5; allowed: a number at least 0 and at most 1",
        ),
        ({"paces": [0.1, 0.2]}, "paces has 2 values for 5 clients; give one each"),
        ({"paces": [1, 2, 3, 4, 0]}, f"paces has 0; allowed: {PACES}"),
        ({"paces": 0.1}, f"paces is 0.1; allowed: {PACES}"),
        ({"paces": [1, 2, 3, 4, "5"]}, f"paces has '5'; allowed: {PACES}"),
        ({"latency_seconds": -1}, f"latency_seconds has -1; allowed: {LATENCY}"),
        ({"latency_seconds": "slow"}, f"latency_seconds has 'slow'; allowed: {LATENCY}"),
        ({"latency_seconds": [1, 2]}, "latency_seconds has 2 values for 5 clients; give one each"),
        (
            {"bandwidth_bytes_per_second": 0},
            f"bandwidth_bytes_per_second has 0; allowed: {BANDWIDTH}",
        ),
        (
            {"bandwidth_bytes_per_second": [1e6]},
            "bandwidth_bytes_per_second has 1 values for 5 clients; give one each",
        ),
        ({"changes": [[9, 1, 0.3]]}, "changes names client 9; allowed: 0 to 4"),
        (
            {"changes": [[1, 1]]},
            "changes.0: seconds_per_step is missing; allowed: a number above 0",
        ),
        ({"changes": [[1, 1, 2, 3]]}, f"changes has [1, 1, 2, 3]; allowed: {ENTRY}"),
        ({"changes": 3}, f"changes is 3; allowed: a list of {ENTRY}"),
        ({"changes": [3]}, f"changes has 3; allowed: {ENTRY}"),
        (
            {"changes": [[1, 2, 0.1], [1, 2, 0.2]]},
            "changes has two for client 1 from round 2; keep one",
        ),
        ({"dropouts": [[7, 5]]}, "dropouts names client 7; allowed: 0 to 4"),
        ({"dropouts": [[0, -5]]}, "dropouts.0: at is -5; allowed: a number at least 0"),
        (
            {"dropouts": [[0, 5, 4]]},
            "dropouts: client 0 leaves at 5 and returns at 4; allowed: a return after 5",
        ),
        (
            {"dropouts": [[0, 7, 9], [0, 5, 8]]},
            "dropouts: client 0 leaves at 7 but is gone already",
        ),
        ({"dropouts": [[0, 5], [0, 7]]}, "dropouts: client 0 leaves at 7 but is gone already"),
        (
            {"dropout_probability": 0.1},
            "dropout_probability is 0.1 but dropout_seconds is 0; give the mean absence in seconds",
        ),
        (
            {"trace": "a.csv"},
            "trace is 'a.csv' but speed is 'exponential'; set speed='trace'",
        ),
        (
            {"speed": "trace"},
            "speed is 'trace' but trace is missing; give the path of a CSV file",
        ),
        (
            {"speed": "trace", "trace": "a.csv", "changes": [[0, 1, 0.3]]},
            "changes cannot be used with speed='trace'; write the paces into the trace",
        ),
    ],
)
def test_a_bad_value_gets_one_clear_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        fleet_settings(**values)
    assert str(refusal.value) == message


def test_a_misspelt_setting_is_pointed_out() -> None:
    with pytest.raises(SettingsError, match=r"fleet has no setting 'jiter'.*did you mean 'jitter'"):
        fleet_settings(jiter=0.1)


def test_scripts_may_be_written_as_bare_values() -> None:
    settings = fleet_settings(changes=[[1, 2, 0.3]], dropouts=[[0, 5], (1, 2, 3)])
    assert settings.changes == (SpeedChange(client=1, from_round=2, seconds_per_step=0.3),)
    assert settings.dropouts == (
        Dropout(client=0, at=5),
        Dropout(client=1, at=2, returns_at=3),
    )
    named = fleet_settings(changes=[{"client": 1, "from_round": 2, "seconds_per_step": 0.3}])
    assert named.changes == settings.changes
    assert fleet_settings(changes=settings.changes).changes == settings.changes


def test_a_client_may_leave_at_the_moment_it_returned() -> None:
    assert len(fleet_settings(dropouts=[[0, 5, 8], [0, 8, 9], [1, 6, 7]]).dropouts) == 3


def test_settings_survive_json() -> None:
    settings = fleet_settings(
        changes=[[1, 2, 0.3]], latency_seconds=[1, 2, 3, 4, 5], bandwidth_bytes_per_second=1e6
    )
    assert FleetSettings.model_validate_json(settings.model_dump_json()) == settings
