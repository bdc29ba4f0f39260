"""The axes of a sweep's grid: under which label which settings are changed."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedcompass.own_code import is_own, short
from fedcompass.setting_tables import flat, merged, nested, unknown_key
from fedcompass.strategies import known_keys

__all__ = ["Axis", "Choice", "label_of", "read_axes", "strategy_name"]


@dataclass(frozen=True)
class Choice:
    """One value of an axis: what it is called, and the settings it changes as nested tables."""

    label: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """One line of a grid."""

    name: str
    choices: tuple[Choice, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """What its choices set, laid over each other."""
        return merged(*(choice.settings for choice in self.choices))

    @property
    def keys(self) -> list[str]:
        """The dotted keys its choices set."""
        return list(flat(self.settings))

    def check_own_strategies(self) -> None:
        """Refuse settings that the strategy named beside them does not have.

        Raises:
            ValueError: naming the first.
        """
        for choice in self.choices:
            name = strategy_name(choice.settings)
            if name is None:
                continue
            known = known_keys(name)
            for key in choice.settings["strategy"]:
                if key not in known and key != "name":
                    text = unknown_key(key, known, f"strategy {name!r}")
                    raise ValueError(f"grid.{self.name}, {choice.label!r}: {text}")


def read_axes(grid: Mapping[str, Any]) -> list[Axis]:
    """A grid's axes, in the file's order.

    Raises:
        ValueError: one line about the first thing that is wrong.
    """
    axes = [_axis(name, values) for name, values in _lines(grid)]
    setters: dict[str, str] = {}
    for axis in axes:
        for key in axis.keys:
            if key in setters:
                raise ValueError(f"grid.{setters[key]} and grid.{axis.name} both set {key}")
            setters[key] = axis.name
    return axes


def strategy_name(settings: Mapping[str, Any]) -> str | None:
    """The strategy that settings name; None if they name none."""
    strategy = settings.get("strategy")
    name = strategy.get("name") if isinstance(strategy, Mapping) else None
    return name if isinstance(name, str) else None


def label_of(value: Any) -> str:
    """A value in words: text as it is, other values as in JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _lines(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and value of each line; `strategy.name = […]` without quotes is a table, too."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _lines(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _axis(name: str, values: Any) -> Axis:
    if not isinstance(values, (list, tuple)) or not values:
        raise ValueError(f"grid.{name} is {values!r}; allowed: a list with at least one value")
    choices = tuple(_choice(name, value) for value in values)
    labels = [choice.label for choice in choices]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise ValueError(f"grid.{name} has {twice!r} twice; allowed: each value (label) once")
    return Axis(name, choices)


def _choice(axis: str, value: Any) -> Choice:
    if not isinstance(value, Mapping):
        return Choice(short(value) if is_own(value) else label_of(value), nested(axis, value))
    label = value.get("label")
    if not isinstance(label, str) or not label:
        raise ValueError(
            f"grid.{axis} has {dict(value)!r}; a table needs a label (text) beside the keys it sets"
        )
    given = [nested(key, item) for key, item in value.items() if key != "label"]
    return Choice(label, merged(*given))
