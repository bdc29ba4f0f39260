"""What the schedulers can be told, and the one line that refuses anything else."""

import math
from typing import Any

import pytest

from fedcompass.errors import SettingsError
from fedcompass.scheduling.compass import CompassSettings
from fedcompass.scheduling.immediate import BufferedSettings, Immediate
from fedcompass.scheduling.pace import PaceSettings
from fedcompass.scheduling.policy import FixedStepsSettings, SchedulerSettings
from fedcompass.scheduling.registry import new_scheduler, policy_kind, register_policy
from fedcompass.scheduling.tiered import TieredSettings

WHOLE = "allowed: a whole number at least 1"


def test_the_defaults() -> None:
    assert CompassSettings().model_dump() == {
        "min_steps": 40,
        "max_steps": 200,
        "latest": 1.2,
        "join_up_to": 1.0,
        "aim": "expected",
        "create_group": "clamp",
        "warm_up": "min",
        "min_clients": 1,
        "weights": "samples",
        "merge_at_least": 1,
        "quarantine_after": 3,
        "pace": {"newest_weight": 1.0, "overhead_aware": False},
    }
    assert (BufferedSettings().buffer_size, TieredSettings().tier_ratio) == (10, 2.0)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (CompassSettings, {"min_steps": 0}, f"min_steps is 0; {WHOLE}"),
        (CompassSettings, {"min_steps": 2.5}, f"min_steps is 2.5; {WHOLE}"),
        (CompassSettings, {"max_steps": -1}, f"max_steps is -1; {WHOLE}"),
        (
            CompassSettings,
            {"min_steps": 50, "max_steps": 20},
            "min_steps is 50; allowed: at least 1 and at most max_steps, which is 20",
        ),
        (CompassSettings, {"latest": 0.9}, "latest is 0.9; allowed: a number at least 1"),
        (CompassSettings, {"latest": -1}, "latest is -1; allowed: a number at least 1"),
        (CompassSettings, {"latest": math.nan}, "latest is nan; allowed: a number at least 1"),
        (CompassSettings, {"latest": math.inf}, "latest is inf; allowed: a number at least 1"),
        (CompassSettings, {"join_up_to": 0.9}, "join_up_to is 0.9; allowed: a number at least 1"),
        (
            CompassSettings,
            {"aim": "noon"},
            "aim is 'noon'; allowed: one of 'expected', 'latest'",
        ),
        (
            CompassSettings,
            {"create_group": "skip"},
            "create_group is 'skip'; allowed: one of 'clamp', 'pass-over'",
        ),
        (CompassSettings, {"min_clients": 0}, f"min_clients is 0; {WHOLE}"),
        (CompassSettings, {"quarantine_after": 0}, f"quarantine_after is 0; {WHOLE}"),
        (
            CompassSettings,
            {"weights": "loud"},
            "weights is 'loud'; allowed: one of 'samples', 'equal'",
        ),
        (
            CompassSettings,
            {"pace": {"newest_weight": 0}},
            "pace: newest_weight is 0; allowed: a number above 0 and at most 1",
        ),
        (
            PaceSettings,
            {"newest_weight": 1.5},
            "newest_weight is 1.5; allowed: a number above 0 and at most 1",
        ),
        (FixedStepsSettings, {"steps": 0}, f"steps is 0; {WHOLE}"),
        (FixedStepsSettings, {"steps": "many"}, f"steps is 'many'; {WHOLE}"),
        (BufferedSettings, {"buffer_size": 0}, f"buffer_size is 0; {WHOLE}"),
        (TieredSettings, {"tier_ratio": 0.5}, "tier_ratio is 0.5; allowed: a number at least 1"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_field_and_what_is_allowed(
    kind: type[SchedulerSettings], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError) as refusal:
        kind(**values)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("kind", "key", "message"),
    [
        (
            CompassSettings,
            "max_step",
            "compass has no setting 'max_step' (did you mean 'max_steps'?); it has: min_clients, "
            "weights, merge_at_least, quarantine_after, pace, min_steps, max_steps, latest, "
            "join_up_to, aim, create_group, warm_up",
        ),
        (
            BufferedSettings,
            "K",
            "buffered has no setting 'K'; it has: min_clients, weights, merge_at_least, "
            "quarantine_after, pace, steps, buffer_size",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_known_ones_and_a_hint(
    kind: type[SchedulerSettings], key: str, message: str
) -> None:
    values: dict[str, Any] = {key: 3}
    with pytest.raises(SettingsError) as refusal:
        kind(**values)
    assert str(refusal.value) == message


def test_several_mistakes_are_told_at_once() -> None:
    with pytest.raises(SettingsError, match=r"min_steps is 0; .*; latest is 0.0; "):
        CompassSettings(min_steps=0, latest=0.0)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("compass", CompassSettings()),
        ("synchronous", FixedStepsSettings()),
        ("immediate", FixedStepsSettings()),
        ("buffered", BufferedSettings()),
        ("tiered", TieredSettings()),
    ],
)
def test_every_scheduler_is_known_by_name(name: str, settings: SchedulerSettings) -> None:
    assert policy_kind(name).settings is type(settings)
    assert new_scheduler(name, settings).settings == settings


def test_an_unknown_scheduler_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="scheduler is 'fedprox'; allowed: compass, synchr"):
        policy_kind("fedprox")


def test_a_name_that_is_taken_cannot_mean_something_else() -> None:
    register_policy("immediate", FixedStepsSettings, Immediate)  # the same again is no harm
    with pytest.raises(SettingsError, match="a scheduler named 'compass' exists already; choose"):
        register_policy("compass", FixedStepsSettings, Immediate)
