"""The appendix's settings of every row of every cell, written out in full.

A row is a strategy (`fedbuff`) or an ablation (`1/Q=0.05`, `lambda=1.50`), perhaps under other
choices (`fedcompass@equal`, `fedasync@sign+fleet`, `fedavg@as-run`). Nothing is left to be filled
in, so what a stored run was run with can be compared without building an experiment, and without
torch.
"""

import json
from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any

from fedcompass.as_run import AS_RUN, FIRST_HABITS, HABITS, LATER_RELEASE, Setup, habits
from fedcompass.errors import SettingsError
from fedcompass.paper.cells import SPEEDS, Cell, pinned
from fedcompass.paper.horizons import SYNCHRONOUS, Horizons, mean_rounds
from fedcompass.paper.medical_runs import MEDICAL, medical_settings
from fedcompass.paper_settings import STRATEGY_KEYS, paper_settings, strategy_settings
from fedcompass.setting_tables import merged
from fedcompass.vocabulary import Seconds

__all__ = [
    "ALGORITHMS",
    "CHOICES",
    "as_run",
    "longest_run",
    "row_horizons",
    "settings_of",
    "signature",
    "strategy_of",
    "text_in_records",
]

ALGORITHMS = tuple(STRATEGY_KEYS)
"""The rows of the paper's main tables, in its order."""

_STALENESS = {"alpha": 0.9, "a": 0.5}
_OWN_ALPHA = {"fedasync": 0.6, "fedbuff": 1.0}  # their own papers' defaults
_SERVER = {"beta": 0.9}
_PRECISION = {"cifar10": {"precision": "bfloat16"}}
_MEDICAL = ("fed-ixi", "fed-isic2019")
_MEASURED_PER_ROUND = 10  # mean round, where the model is measured by time
_STOP_LATE_BY = 4  # evaluations; so that training does not wait for each of them

CHOICES: dict[str, dict[str, Any]] = {
    "authors": {"profile": "authors", **LATER_RELEASE},
    "decay": {"local": LATER_RELEASE["local"]},
    "equal": {"strategy": {"weights": "equal"}},
    "own": {"strategy": {"variant": "own"}},
    "floor": {"fleet": {"floor": 0.1}},
    "nofloor": {"fleet": {"floor": 0.001}},
    "spread": {"fleet": {"spread": 0.5}},  # their synchronous MNIST script's default
    "long": {},  # as long as FedAvg, if it misses the target: see `row_horizons`
}
"""What the appendix leaves open, decided the other way: settings laid over ours.

Beside these a row can name habits of the authors' code: `as_run.HABITS`, `as-run` for all, or
`first-habits` for those that the oldest stored runs were made with.
"""

_FIRST = "first-habits"

_COMPARED = {
    "evaluation": ("every_seconds",),
    "data": ("name",),
    "partition": ("kind",),
    "fleet": (
        "clients",
        "speed",
        "mean_seconds_per_step",
        "jitter",
        "floor",
        "resample_probability",
        "paces",
        "least_task_seconds",
        "nap_seconds",
        "spread",
    ),
    "local": (
        "optimizer",
        "learning_rate",
        "momentum",
        "batch_size",
        "rate_decay",
        "precision",
        "sampling",
    ),
}
"""What tells experiments apart beside the target and the strategy's settings."""

_BEFORE = {"precision": "float32", "sampling": "replacement", "spread": 0.3}
"""What a run without such a setting was run with, where that is not 0 or false."""


def settings_of(cell: Cell, row: str, seed: int, *, to_target: bool = False) -> dict[str, Any]:
    """Everything `Experiment` needs for one run.

    With `to_target` it ends when it reaches the target: enough for a table of times, not for one of
    accuracies.

    Raises:
        SettingsError: there is no such row.
    """
    if cell.block in MEDICAL:
        return medical_settings(cell, row, seed)
    block = cell.settings
    strategy, choices = _row(cell, row)
    settings: dict[str, Any] = {
        "seed": seed,
        "profile": "paper",
        "data": {"name": block.dataset},
        "partition": {"kind": block.partition},
        "fleet": _fleet(cell),
        "local": _local(cell),
        "strategy": strategy,
        "evaluation": {
            **_cadence(cell, _mean_round(cell)),
            "metrics": ["loss", block.metric],
            "target_metric": block.metric,
        },
        "target": block.target,
        **_end(cell, row, to_target=to_target),
    }
    settings = merged(settings, *(_checked_choice(cell, row, choice) for choice in choices))
    if settings["local"]["rate_decay"] < 1:
        settings["local"]["rate_decay_steps"] = _known(cell)["max_steps"]
    return settings


def _fleet(cell: Cell) -> dict[str, Any]:
    return {
        "clients": cell.clients,
        "speed": SPEEDS[cell.speed],
        "mean_seconds_per_step": _mean_seconds(cell),
        "jitter": 0.05,
        "floor": 0.02,
        "resample_probability": 0.1 if cell.changing else 0.0,
    }


def _local(cell: Cell) -> dict[str, Any]:
    dataset = cell.settings.dataset
    own = paper_settings(dataset, cell.clients)["local"] | _PRECISION.get(dataset, {})
    return {**own, "momentum": 0.0, "rate_decay": 1.0}


def _end(cell: Cell, row: str, *, to_target: bool) -> dict[str, Any]:
    """When a run ends."""
    horizons = row_horizons(cell, row).in_seconds(_mean_round(cell))
    stops = to_target or horizons.differ
    return {
        "horizon": horizons.target,
        "stop_at_target": stops,
        "run_at_least": horizons.accuracy if stops and not to_target else 0.0,
        "stop_late_by": _STOP_LATE_BY if to_target else 0,
    }


def _checked_choice(cell: Cell, row: str, choice: str) -> dict[str, Any]:
    """What one choice lays over the settings of a row, unless that is nothing."""
    strategy = strategy_of(row)
    layer = _choice(cell, strategy, choice)
    if choice == "own" and strategy not in _OWN_ALPHA:
        layer = {}
    if not layer and (choice != "long" or strategy in SYNCHRONOUS):
        raise SettingsError(
            f"row is {row!r}; in {cell} {choice!r} changes nothing of {strategy}; leave it out"
        )
    return layer


def _choice(cell: Cell, strategy: str, choice: str) -> dict[str, Any]:
    """What one choice lays over the settings of a row."""
    if choice in CHOICES:
        return CHOICES[choice]
    setup = Setup(
        dataset=cell.settings.dataset,
        strategy=strategy,
        clients=cell.clients,
        speed=SPEEDS[cell.speed],
        mean_seconds_per_step=_mean_seconds(cell),
        max_steps=_known(cell)["max_steps"],
    )
    if choice == "as-run":  # on MNIST as the stored runs, so that a table's are of one kind
        all_of_them = cell.settings.dataset == "cifar10"
        return habits(setup, AS_RUN if all_of_them else FIRST_HABITS)
    return habits(setup, FIRST_HABITS if choice == _FIRST else (choice,))


def as_run(row: str) -> str:
    """The row under the profile `as-run`."""
    return f"{row}@as-run"


def strategy_of(row: str) -> str:
    """The strategy of a row: `fedcompass` of 1/Q=0.05, lambda=1.50 and fedcompass@authors."""
    return "fedcompass" if row.startswith(("1/Q=", "lambda=")) else row.partition("@")[0]


def signature(settings: Mapping[str, Any]) -> Hashable:
    """What tells the paper's experiments apart, from given or recorded settings.

    But for the seed, and for how long they were run: a longer run has a shorter one's numbers.
    A setting that fedcompass gains later does not change it: 0 and false are as good as absent.
    """
    values = [settings.get("target"), _frozen(settings.get("strategy"))]
    for section, keys in _COMPARED.items():
        table = settings.get(section) or {}
        values += [table.get(key) or _BEFORE.get(key) for key in keys]
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def text_in_records(cell: Cell) -> str:
    """What the record of any run of a cell has in it, and few others have: its cadence."""
    if cell.settings.dataset in _MEDICAL or cell.block in MEDICAL:
        return f'"{cell.settings.dataset}"'
    cadence = _cadence(cell, _mean_round(cell))
    return json.dumps({"every_seconds": cadence["every_seconds"]}).strip("{}")


def row_horizons(cell: Cell, row: str) -> Horizons:
    """How long a row of a cell is run, in mean rounds.

    Rows on the authors' one fleet, whose slowest client is known, all have FedAvg's horizons.
    """
    choices = _choices(row)
    if {"as-run", _FIRST, "fleet"} & set(choices):
        return mean_rounds(cell, SYNCHRONOUS[0], slowest=_slowest_as_run(cell))
    horizons = mean_rounds(cell, strategy_of(row))
    if "long" in choices:
        return horizons._replace(target=mean_rounds(cell, SYNCHRONOUS[0]).target)
    return horizons


def longest_run(cell: Cell, row: str) -> Seconds:
    """Virtual seconds after which a run that has not reached its target ends."""
    if cell.block in MEDICAL:
        return float(medical_settings(cell, row, 0)["horizon"])
    return row_horizons(cell, row).in_seconds(_mean_round(cell)).target


@cache
def _slowest_as_run(cell: Cell) -> float:
    """The pace of the slowest client of the fixed fleet, in means."""
    own = _choice(cell, "fedavg", "fleet")
    mean = _mean_seconds(cell)
    return float(max(own["fleet"]["paces"] if own else [mean]) / mean)


def _choices(row: str) -> list[str]:
    _, _, choices = row.partition("@")
    return choices.split("+") if choices else []


def _row(cell: Cell, row: str) -> tuple[dict[str, Any], list[str]]:
    """The row's strategy settings, and its choices."""
    name, choices = strategy_of(row), _choices(row)
    known = (*CHOICES, *HABITS, "as-run", _FIRST)
    if name not in ALGORITHMS or not set(choices) <= set(known):
        raise SettingsError(
            f"row is {row!r}; allowed: {', '.join(ALGORITHMS)}, 1/Q=…, lambda=…, or one of them "
            f"with @ and, + between them, {', '.join(known)}"
        )
    bare = row.partition("@")[0]
    strategy = {"name": name, **_own_settings(name, cell)}
    if bare.startswith("1/Q="):
        strategy["min_steps"] = round(float(bare.removeprefix("1/Q=")) * _known(cell)["max_steps"])
    if bare.startswith("lambda="):
        strategy["latest"] = float(bare.removeprefix("lambda="))
    if "own" in choices and name in _OWN_ALPHA:
        strategy["staleness"]["alpha"] = _OWN_ALPHA[name]
    return strategy, choices


def _own_settings(name: str, cell: Cell) -> dict[str, Any]:
    """The lines of the appendix's table that have a value for this strategy."""
    known = {"server": _SERVER, **_known(cell, name)}
    settings = {key: known[key] for key in STRATEGY_KEYS[name]}
    if name.startswith("fedcompass") or name in _OWN_ALPHA:
        settings["staleness"] = dict(_STALENESS)
    return settings | pinned(cell.settings.dataset, name)


def _known(cell: Cell, strategy: str = "") -> dict[str, Any]:
    """The appendix's table of this cell."""
    return strategy_settings(cell.settings.dataset, cell.clients, strategy)


def _mean_seconds(cell: Cell) -> Seconds:
    """Of a local step."""
    paper = paper_settings(cell.settings.dataset, cell.clients)
    return float(paper["fleet"]["mean_seconds_per_step"])


def _mean_round(cell: Cell) -> Seconds:
    """How long the mean client takes for Q steps."""
    return float(_known(cell)["steps"] * _mean_seconds(cell))


def _cadence(cell: Cell, mean_round: Seconds) -> dict[str, Any]:
    """When the model is measured: the medical tasks, with few updates, after each of them."""
    if cell.settings.dataset in _MEDICAL:
        return {"every_updates": 1}
    return {"every_updates": "none", "every_seconds": round(mean_round / _MEASURED_PER_ROUND, 6)}


def _frozen(value: Any) -> Hashable:
    """A value that can be compared and looked up; 600 and 600.0 are equal in Python."""
    match value:
        case dict():
            return frozenset((key, _frozen(item)) for key, item in value.items())
        case list() | tuple():
            return tuple(map(_frozen, value))
        case _:
            known: Hashable = value
            return known
