from typing import Any, Literal

import pytest
from pydantic import Field, ValidationError, field_validator

from fedcompass.errors import FedcompassError, SettingsError
from fedcompass.setting_tables import merged, unknown_key
from fedcompass.settings import Settings


class InnerSettings(Settings):
    rate: float = Field(default=0.5, gt=0, le=1)


class SampleSettings(Settings):
    count: int = Field(ge=1)
    factor: float = Field(default=1.0, ge=0, lt=2)
    bound: float | None = Field(default=None, gt=0)
    mode: Literal["fast", "slow"] = "fast"
    loud: bool = False
    name: str = "x"
    inner: InnerSettings = InnerSettings()
    even: int = 0
    sizes: tuple[int, ...] = ()

    @field_validator("even")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd numbers will not do")
        return value


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "count is 0; allowed: a whole number at least 1"),
        ({"count": 1.5}, "count is 1.5; allowed: a whole number at least 1"),
        ({"count": "many"}, "count is 'many'; allowed: a whole number at least 1"),
        ({}, "count is missing; allowed: a whole number at least 1"),
        ({"count": 1, "factor": 2}, "factor is 2; allowed: a number at least 0 and below 2"),
        (
            {"count": 1, "factor": float("nan")},
            "factor is nan; allowed: a number at least 0 and below 2",
        ),
        ({"count": 1, "bound": -1}, "bound is -1; allowed: above 0"),
        ({"count": 1, "mode": "quick"}, "mode is 'quick'; allowed: one of 'fast', 'slow'"),
        ({"count": 1, "loud": "very"}, "loud is 'very'; allowed: true or false"),
        ({"count": 1, "name": 7}, "name is 7; allowed: text"),
        (
            {"count": 1, "inner": {"rate": 5}},
            "inner: rate is 5; allowed: a number above 0 and at most 1",
        ),
        (
            {"count": 1, "inner": {"rat": 0.5}},
            "inner has no setting 'rat' (did you mean 'rate'?); it has: rate",
        ),
        ({"count": 1, "inner": 0.5}, "inner is 0.5; allowed: a table with rate"),
        ({"count": 1, "even": 3}, "even: odd numbers will not do"),
        (
            {"count": 1, "zzz": "red"},
            "sample has no setting 'zzz'; it has: "
            "count, factor, bound, mode, loud, name, inner, even, sizes",
        ),
        (
            {"count": 0, "mode": "quick"},
            "count is 0; allowed: a whole number at least 1; "
            "mode is 'quick'; allowed: one of 'fast', 'slow'",
        ),
    ],
)
def test_an_error_names_the_field_the_value_and_what_is_allowed(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        SampleSettings(**values)
    assert str(caught.value) == message


def test_a_field_of_an_unusual_type_is_named_with_what_the_checker_says() -> None:
    values: dict[str, Any] = {"sizes": ("a",)}
    with pytest.raises(SettingsError, match=r"sizes\.0 is 'a'; allowed: Input should be a valid"):
        SampleSettings(count=1, **values)


def test_a_settings_error_is_one_of_ours_and_a_value_error() -> None:
    with pytest.raises(FedcompassError):
        SampleSettings(count=0)
    with pytest.raises(ValueError, match="count"):
        SampleSettings(count=0)


def test_settings_are_frozen() -> None:
    settings = SampleSettings(count=1)
    with pytest.raises(ValidationError, match="frozen"):
        settings.count = 2
    assert settings == SampleSettings(count=1)


def test_later_tables_win_and_nested_ones_are_merged_key_by_key() -> None:
    first = {"a": 1, "table": {"x": 1, "y": 2}, "other": {"z": 3}}
    second = {"table": {"y": 20}, "other": 5}
    assert merged(first, second, {"a": 9}) == {"a": 9, "table": {"x": 1, "y": 20}, "other": 5}
    assert first["table"] == {"x": 1, "y": 2}
    assert merged() == {}


def test_an_unknown_key_comes_with_the_nearest_known_one_if_any_is_near() -> None:
    assert unknown_key("step", ["steps", "seed"], "fedavg") == (
        "fedavg has no setting 'step' (did you mean 'steps'?); it has: steps, seed"
    )
    assert unknown_key("zzz", ["steps"], "fedavg") == "fedavg has no setting 'zzz'; it has: steps"
