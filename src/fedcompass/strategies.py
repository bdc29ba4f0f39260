"""The named recipes (fedavg … fedcompass+n): a scheduler and an aggregation rule, with defaults.

A bare name follows its own paper's formula with that paper's defaults. The FedCompass paper's
experiments scale FedAsync and FedBuff by p_i: `variant="share"`. Torch is loaded when a model is
merged, not when a strategy is described.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from fedcompass.errors import SettingsError
from fedcompass.scheduling.metronome import MetronomeSettings
from fedcompass.scheduling.policy import SchedulerSettings
from fedcompass.scheduling.registry import new_scheduler, policy_kind
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.settings import Settings, merged, unknown_key
from fedcompass.settings.aggregation import AggregationSettings, GuardSettings
from fedcompass.strategy_summaries import SUMMARIES

if TYPE_CHECKING:
    from fedcompass.aggregation import Aggregator, ClientMemory, FlatState

__all__ = [
    "NewAggregator",
    "Recipe",
    "Strategy",
    "describe",
    "known_keys",
    "names",
    "register",
    "strategy",
    "variants",
]

_AGGREGATION_KEYS = tuple(AggregationSettings.model_fields)

NewAggregator: TypeAlias = Callable[["FlatState", AggregationSettings], "Aggregator"]
"""Makes the aggregator that will change this model in place."""


def _weighted_sum(model: "FlatState", settings: AggregationSettings) -> "Aggregator":
    from fedcompass.aggregation import WeightedSum

    return WeightedSum(model, settings)


def _tier_average(model: "FlatState", settings: AggregationSettings) -> "Aggregator":
    from fedcompass.aggregation import TierAverage

    return TierAverage(model, settings.server)


@dataclass(frozen=True)
class Recipe:
    """How a named strategy is put together: which scheduler, and what differs from the defaults.

    summary: one line for `fedcompass strategies`.
    scheduler: the name of a policy, built in or from `register_policy`.
    scheduling: what differs from the defaults of that policy's settings.
    aggregation: what differs from the defaults of `AggregationSettings`, which are FedCompass's: an
        update weighs st(u) p_i, and a merge is their sum. A merge of any number of updates that
        is to be their mean has `{"weighting": "share", "scale": "mean-share"}`.
    variants: other defaults for the aggregation, by the name that `variant` gives.
    aggregator: makes the aggregation rule; what it needs besides `AggregationSettings` is its own
        affair, and not a setting of an experiment.
    aggregation_keys: the settings among `AggregationSettings` that the aggregator looks at. Others
        are refused in an experiment, rather than ignored.
    """

    summary: str
    scheduler: str
    scheduling: Mapping[str, Any] = field(default_factory=dict)
    aggregation: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    aggregator: NewAggregator = _weighted_sum
    aggregation_keys: tuple[str, ...] = _AGGREGATION_KEYS


@dataclass(frozen=True)
class Strategy:
    """A recipe with all its settings filled in and checked."""

    name: str
    variant: str
    scheduler: str
    scheduling: SchedulerSettings
    aggregation: AggregationSettings
    guard: GuardSettings
    aggregator: NewAggregator

    def new_scheduler(self) -> Scheduler:
        """A fresh scheduler."""
        return new_scheduler(self.scheduler, self.scheduling)

    def new_aggregator(self, model: "FlatState") -> "Aggregator":
        """An aggregator that changes `model` in place."""
        return self.aggregator(model, self.aggregation)

    def new_memory(self, model: "FlatState") -> "ClientMemory":
        """What the server keeps of each client, for models like this one."""
        from fedcompass.aggregation import ClientMemory

        repeats = self.scheduling.repeats_updates
        return ClientMemory(self.aggregation, model, keeps_updates=repeats)

    @property
    def by_tiers(self) -> bool:
        """Whether the global model is FedAT's mean of tier models."""
        return self.aggregator is _tier_average

    def to_json(self) -> dict[str, Any]:
        """All settings as JSON values, for the record of a run."""
        return {
            "name": self.name,
            "variant": self.variant,
            "scheduler": self.scheduler,
            "scheduling": self.scheduling.model_dump(mode="json"),
            "aggregation": self.aggregation.model_dump(mode="json"),
            "guard": self.guard.model_dump(mode="json"),
        }

    def completed(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """What `to_json` of an earlier version gave, with settings that it did not have yet."""
        return {
            **record,
            "scheduling": _with_defaults(type(self.scheduling), record["scheduling"]),
            "aggregation": _with_defaults(type(self.aggregation), record["aggregation"]),
        }


def _with_defaults(kind: type[Settings], values: dict[str, Any]) -> dict[str, Any]:
    try:
        return kind(**values).model_dump(mode="json")
    except SettingsError:
        return values  # of another kind


_BY_SHARE = {"weighting": "share", "scale": "mean-share"}
_SHARE_VARIANT = {
    "payload": "delta",
    "weighting": "staleness-share",
    "scale": "none",
    "staleness": {"alpha": 0.9, "a": 0.5},
}
_ADAPTIVE = {"learning_rate": 0.01, "tau": 1e-3}

_RECIPES: dict[str, Recipe] = {
    "fedavg": Recipe(
        SUMMARIES["fedavg"],
        "synchronous",
        aggregation=_BY_SHARE,
    ),
    "fedavgm": Recipe(
        SUMMARIES["fedavgm"],
        "synchronous",
        aggregation={**_BY_SHARE, "server": {"optimizer": "momentum", "beta": 0.9}},
    ),
    "fedadam": Recipe(
        SUMMARIES["fedadam"],
        "synchronous",
        aggregation={**_BY_SHARE, "server": {"optimizer": "adam", **_ADAPTIVE}},
    ),
    "fedyogi": Recipe(
        SUMMARIES["fedyogi"],
        "synchronous",
        aggregation={**_BY_SHARE, "server": {"optimizer": "yogi", **_ADAPTIVE}},
    ),
    "fedadagrad": Recipe(
        SUMMARIES["fedadagrad"],
        "synchronous",
        aggregation={**_BY_SHARE, "server": {"optimizer": "adagrad", **_ADAPTIVE, "beta1": 0.0}},
    ),
    "fedasync": Recipe(
        SUMMARIES["fedasync"],
        "immediate",
        aggregation={
            "payload": "model",
            "weighting": "staleness",
            "scale": "none",
            "staleness": {"alpha": 0.6, "a": 0.5},
        },
        variants={"share": _SHARE_VARIANT},
    ),
    "fedbuff": Recipe(
        SUMMARIES["fedbuff"],
        "buffered",
        scheduling={"buffer_size": 10},
        aggregation={
            "weighting": "staleness",
            "scale": "mean-count",
            "staleness": {"alpha": 1.0, "a": 0.5},
        },
        variants={"share": _SHARE_VARIANT},
    ),
    "fedat": Recipe(
        SUMMARIES["fedat"],
        "tiered",
        aggregator=_tier_average,
        aggregation_keys=("server",),
    ),
    "fedcompass": Recipe(
        SUMMARIES["fedcompass"],
        "compass",
    ),
    "fedcompass+m": Recipe(
        SUMMARIES["fedcompass+m"],
        "compass",
        aggregation={"server": {"optimizer": "momentum", "beta": 0.9}},
    ),
    "fedcompass+n": Recipe(
        SUMMARIES["fedcompass+n"],
        "compass",
        aggregation={"normalized": True},
    ),
    "metronome": Recipe(
        SUMMARIES["metronome"],
        "metronome",
        aggregation={"weighting": "share"},
    ),
}


def names() -> list[str]:
    """The strategies there are."""
    return list(_RECIPES)


def register(name: str, recipe: Recipe) -> None:
    """Make a strategy of your own known by name; the name must be free (or mean the same).

    It is known in this process only. Commands such as `fedcompass run` and `fedcompass deploy` know
    what is in this file; a run of one's own strategy is resumed in Python, after this call.
    """
    if _RECIPES.setdefault(name, recipe) != recipe:
        raise SettingsError(f"a strategy named {name!r} exists already; choose another name")


def describe() -> dict[str, str]:
    """One line for each strategy."""
    return {name: recipe.summary for name, recipe in _RECIPES.items()}


def strategy(name: str = "fedcompass", **settings: Any) -> Strategy:
    """A strategy with some of its settings changed.

    Keys are the scheduler's (`steps`, `min_steps`, `buffer_size`, `weights`, …), `staleness`,
    `server`, `normalized` and `guard`, and `variant` where there are several.

    Raises:
        SettingsError: no such strategy, a key it does not have, or a value out of range.
    """
    recipe = _recipe(name)
    kind = policy_kind(recipe.scheduler)
    for key in settings:
        if key not in known_keys(name):
            raise SettingsError(unknown_key(key, known_keys(name), f"strategy {name!r}"))
    variant = settings.get("variant", "own")
    scheduling = {key: settings[key] for key in kind.settings.model_fields if key in settings}
    aggregation = {key: settings[key] for key in _AGGREGATION_KEYS if key in settings}
    rule = merged(recipe.aggregation, _variant(recipe, name, variant), aggregation)
    made = Strategy(
        name=name,
        variant=variant,
        scheduler=recipe.scheduler,
        scheduling=kind.settings(**merged(recipe.scheduling, scheduling)),
        aggregation=AggregationSettings(**rule),
        guard=_guard(settings.get("guard", {})),
        aggregator=recipe.aggregator,
    )
    _check_together(made)
    return made


def _check_together(made: Strategy) -> None:
    """Say which settings of scheduler and aggregation make no sense together.

    Raises:
        SettingsError: there are such.
    """
    rule, scheduling = made.aggregation, made.scheduling
    absent = scheduling.absent if isinstance(scheduling, MetronomeSettings) else "skip"
    if rule.calibrated and absent == "remember":
        raise SettingsError(
            f"absent of {made.name!r} is {absent!r} with calibrated true, and both count an absent "
            "client's last update; allowed: one of them"
        )
    if rule.since_last and absent != "skip":
        raise SettingsError(
            f"absent of {made.name!r} is {absent!r} with since_last true, where every client "
            "counts in each model already; allowed: 'skip'"
        )
    if made.by_tiers and rule.server.delay_limit is not None:
        raise SettingsError(
            f"server.delay_limit of {made.name!r} is {rule.server.delay_limit}; allowed: "
            "unset, since its model is a mean of tier models and not a sum of updates"
        )


def variants(name: str) -> list[str]:
    """The variants of a strategy's rule beside its own."""
    return list(_recipe(name).variants)


def known_keys(name: str) -> list[str]:
    """Every setting a strategy has."""
    recipe = _recipe(name)
    return [*policy_kind(recipe.scheduler).settings.model_fields, *_own_keys(recipe)]


def _own_keys(recipe: Recipe) -> tuple[str, ...]:
    variant = ("variant",) if recipe.variants else ()
    return (*recipe.aggregation_keys, *variant, "guard")


def _recipe(name: str) -> Recipe:
    if name not in _RECIPES:
        raise SettingsError(f"strategy is {name!r}; allowed: {', '.join(_RECIPES)}")
    return _RECIPES[name]


def _variant(recipe: Recipe, name: str, variant: str) -> Mapping[str, Any]:
    if variant == "own":
        return {}
    if variant not in list(recipe.variants):  # a list, so that any value can be looked up
        allowed = ", ".join(["own", *recipe.variants])
        raise SettingsError(f"variant of {name!r} is {variant!r}; allowed: {allowed}")
    return recipe.variants[variant]


def _guard(given: object) -> GuardSettings:
    if isinstance(given, GuardSettings):
        return given
    if not isinstance(given, Mapping):
        keys = ", ".join(GuardSettings.model_fields)
        raise SettingsError(f"guard is {given!r}; allowed: a table with {keys}")
    return GuardSettings(**given)
