"""A sweep described in a file: one experiment, a grid of changes to it, and seeds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import AfterValidator, Field, model_validator

from fedcompass.errors import SettingsError
from fedcompass.experiment import Experiment, read_toml
from fedcompass.setting_tables import merged, unknown_key
from fedcompass.settings import Settings
from fedcompass.strategies import known_keys
from fedcompass.strategies import names as strategy_names
from fedcompass.sweeps.grid import Axis, Choice, read_axes, strategy_name

__all__ = ["Planned", "Sweep"]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One run of a sweep, and where it stands in the grid: each axis's label."""

    experiment: Experiment
    labels: Mapping[str, str]


def _plain_name(name: str) -> str:
    if name in ("", ".", "..") or Path(name).name != name:
        raise ValueError(f"name is {name!r}; allowed: a plain name, without folders")
    return name


def _read(path: Path) -> dict[str, Any]:
    values = read_toml(path)
    others = [key for key in values if key in Experiment.model_fields]
    if others and not any(key in values for key in ("base", "grid", "seeds")):
        raise SettingsError(
            f"{path} is an experiment's file (it has {', '.join(others)}); run: fedcompass run "
            f"{path}; a sweep's has base, grid and seeds"
        )
    return values


class Sweep(Settings):
    """A grid of experiments, each with every seed.

    name: of the folder under runs/ with the results.
    base: an experiment's settings, as in its own file.
    grid: dotted key -> the values it takes; or any name -> tables, each with a `label` and the
        dotted keys it sets.
    seeds: how many, from 0, or a list.
    """

    name: Annotated[str, AfterValidator(_plain_name)]
    base: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, Any] = Field(default_factory=dict)
    seeds: Any = 1

    @model_validator(mode="after")
    def _is_right(self) -> "Sweep":
        self._seeds()
        if "seed" in self.base:
            raise ValueError("base.seed is set; a sweep has seeds, such as seeds = 3")
        for axis in self._axes:
            if "seed" in axis.keys:
                raise ValueError(f"grid.{axis.name} sets seed; a sweep has seeds = [0, 1, …]")
        self._check_strategy_keys()
        return self

    @classmethod
    def from_toml(cls, path: Path) -> "Sweep":
        """Read a sweep from a file; every experiment of it is checked.

        Raises:
            SettingsError: one line about the first thing that is wrong.
        """
        sweep = cls(**{"name": path.stem, **_read(path)})
        sweep.plan()
        return sweep

    def to_toml(self) -> str:
        """The text of a file that `from_toml` reads back."""
        return tomli_w.dumps(self.model_dump())

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """Each axis's labels, in the file's order."""
        return {axis.name: tuple(choice.label for choice in axis.choices) for axis in self._axes}

    def plan(self) -> list[Planned]:
        """Every point of the grid with every seed: all points with the first seed come first.

        Raises:
            SettingsError: naming the point whose settings are wrong.
        """
        return list(self._planned())

    def experiments(self) -> list[Experiment]:
        """What there is to run, in the plan's order.

        Points that differ only in settings their strategies do not have are one experiment.
        """
        return list(
            {planned.experiment.key(): planned.experiment for planned in self._planned()}.values()
        )

    @cached_property
    def _axes(self) -> list[Axis]:
        return read_axes(self.grid)

    def _seeds(self) -> list[int]:
        match self.seeds:
            case bool():
                pass
            case int() if self.seeds >= 1:
                return list(range(self.seeds))
            case list() | tuple():
                seeds = list(self.seeds)
                whole = all(type(seed) is int and seed >= 0 for seed in seeds)
                if seeds and whole and len(set(seeds)) == len(seeds):
                    return seeds
            case _:
                pass
        raise ValueError(
            f"seeds is {self.seeds!r}; allowed: how many, at least 1, or a list of different "
            "whole numbers from 0 up"
        )

    def _planned(self) -> Iterator[Planned]:
        points = list(product(*(axis.choices for axis in self._axes)))
        for seed in self._seeds():
            for point in points:
                labels = {a.name: c.label for a, c in zip(self._axes, point, strict=True)}
                yield Planned(experiment=self._experiment(point, labels, seed), labels=labels)

    def _experiment(
        self, point: tuple[Choice, ...], labels: Mapping[str, str], seed: int
    ) -> Experiment:
        values = merged(self.base, *(choice.settings for choice in point), {"seed": seed})
        try:
            if isinstance(strategy := values.get("strategy"), Mapping):
                values["strategy"] = _own_settings(strategy)
            return Experiment(**values)
        except SettingsError as error:
            where = ", ".join(f"{axis}={label}" for axis, label in labels.items())
            raise SettingsError(f"{where}: {error}" if where else f"base: {error}") from None

    def _check_strategy_keys(self) -> None:
        """Refuse a strategy's setting that none of the sweep's strategies has."""
        names = self._strategy_names()
        known = ["name", *dict.fromkeys(key for name in names for key in known_keys(name))]
        unknown = [(where, key) for where, key in self._strategy_keys() if key not in known]
        if unknown:
            ours = {key for name in strategy_names(installed=False) for key in known_keys(name)}
            misspelt = [found for found in unknown if found[1] not in ours]
            where, key = (misspelt or unknown)[0]  # a misspelt name makes the others unknown
            text = unknown_key(key, known, f"strategy ({', '.join(names)})")
            raise ValueError(f"{where}: {text}")
        for axis in self._axes:
            axis.check_own_strategies()

    def _strategy_keys(self) -> Iterator[tuple[str, str]]:
        """Every setting of a strategy, and where it is given."""
        given = [("base", self.base), *((f"grid.{a.name}", a.settings) for a in self._axes)]
        for where, settings in given:
            strategy = settings.get("strategy", {})
            if isinstance(strategy, Mapping):
                yield from ((where, key) for key in strategy)

    def _strategy_names(self) -> list[str]:
        """The strategies in the sweep."""
        named = [[strategy_name(c.settings) for c in axis.choices] for axis in self._axes]
        names = [name for axis in named for name in axis if name is not None]
        if not any(axis and None not in axis for axis in named):  # else base's is always replaced
            names.insert(0, strategy_name(self.base) or "fedcompass")
        return list(dict.fromkeys(names))


def _own_settings(strategy: Mapping[str, Any]) -> dict[str, Any]:
    """A strategy's table without what that strategy does not have, as `compare` takes it."""
    name = strategy.get("name", "fedcompass")
    if not isinstance(name, str):
        return dict(strategy)  # the experiment refuses it
    known = known_keys(name)
    return {key: value for key, value in strategy.items() if key == "name" or key in known}
