"""The named recipes (fedavg … fedcompass+n): a scheduler and an aggregation rule, with defaults.

A bare name follows its own paper's formula with that paper's defaults. The FedCompass paper's
experiments scale FedAsync and FedBuff by p_i: `variant="share"`. Torch is loaded when a model is
merged, not when a strategy is described.

A strategy of one's own is a `Recipe`, or a scheduler's `PolicyKind`. Wherever a strategy's name
stands, `FILE.py:name`, `package.module:name` or the name of an entry point of the group
`fedcompass.strategies` may stand, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TypeAlias

from fedcompass import own_code
from fedcompass.error_text import told
from fedcompass.errors import SettingsError
from fedcompass.scheduling.metronome import MetronomeSettings
from fedcompass.scheduling.policy import Policy, SchedulerSettings
from fedcompass.scheduling.registry import PolicyKind, policy_kind
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.scheduling.tiered import TieredSettings
from fedcompass.setting_tables import merged, nearest, unknown_key
from fedcompass.settings import Settings
from fedcompass.settings.aggregation import AggregationSettings, GuardSettings, TierSettings
from fedcompass.strategy_summaries import SUMMARIES
from fedcompass.vocabulary import FEWEST_IN_A_SUM

if TYPE_CHECKING:
    from fedcompass.aggregation import Aggregator, ClientMemory, FlatState

__all__ = [
    "ENTRY_POINTS",
    "NewAggregator",
    "PolicyKind",
    "Recipe",
    "Strategy",
    "describe",
    "known_keys",
    "names",
    "register",
    "secured",
    "strategy",
    "summary",
    "variants",
]

_AGGREGATION_KEYS = tuple(AggregationSettings.model_fields)

ENTRY_POINTS = "fedcompass.strategies"
"""The group of entry points by which an installed package makes its strategies known."""

NewAggregator: TypeAlias = Callable[["FlatState", Any], "Aggregator"]
"""Makes the aggregator that will change this model in place, from the recipe's settings."""


def _weighted_sum(model: "FlatState", settings: AggregationSettings) -> "Aggregator":
    from fedcompass.aggregation import WeightedSum

    return WeightedSum(model, settings)


def _tier_average(model: "FlatState", settings: AggregationSettings) -> "Aggregator":
    from fedcompass.aggregation import TierAverage

    assert isinstance(settings, TierSettings)
    return TierAverage(model, settings)


@dataclass(frozen=True)
class Recipe:
    """How a named strategy is put together: which scheduler, and what differs from the defaults.

    summary: one line for `fedcompass strategies`.
    scheduler: the name of a policy, built in or from `register_policy`; or the `PolicyKind` of
        one of your own, whose settings become the strategy's.
    scheduling: what differs from the defaults of that policy's settings.
    aggregation: what differs from the defaults of `AggregationSettings`, which are FedCompass's: an
        update weighs st(u) p_i, and a merge is their sum. None: nothing; but with a `PolicyKind`
        a merge is the mean by samples, `{"weighting": "share", "scale": "mean-share"}`.
    variants: other defaults for the aggregation, by the name that `variant` gives.
    aggregator: makes the aggregation rule, from the model and the settings.
    settings: of the rule. A rule with settings of its own has a subclass of `AggregationSettings`
        with these added: they become the strategy's, checked like all others.
    aggregation_keys: the settings among `AggregationSettings` that the aggregator looks at. Others
        are refused in an experiment, rather than ignored.
    """

    summary: str
    scheduler: str | PolicyKind
    scheduling: Mapping[str, Any] = field(default_factory=dict)
    aggregation: Mapping[str, Any] | None = None
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    aggregator: NewAggregator = _weighted_sum
    settings: type[AggregationSettings] = AggregationSettings
    aggregation_keys: tuple[str, ...] = _AGGREGATION_KEYS

    @property
    def rule(self) -> Mapping[str, Any]:
        """What differs from the defaults of `AggregationSettings`, given or not."""
        if self.aggregation is not None:
            return self.aggregation
        return {} if isinstance(self.scheduler, str) else _BY_SHARE


@dataclass(frozen=True)
class Strategy:
    """A recipe with all its settings filled in and checked.

    scheduler: the name of the scheduler; one of the user's own has the strategy's short name.
    kind: what makes it.
    """

    name: str
    variant: str
    scheduler: str
    kind: PolicyKind
    scheduling: SchedulerSettings
    aggregation: AggregationSettings
    guard: GuardSettings
    aggregator: NewAggregator

    def new_policy(self) -> Policy:
        """A fresh policy, which decides in a scheduler."""
        return self.kind.build(self.scheduling)

    def new_scheduler(self) -> Scheduler:
        """A fresh scheduler."""
        return Scheduler(self.new_policy())

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

    @property
    def weighs_staleness(self) -> bool:
        """Whether an update weighs by how stale it is."""
        return not self.by_tiers and "staleness" in self.aggregation.weighting

    @property
    def own_rule(self) -> str | None:
        """The name of an aggregation rule of the user's own; None for one of ours."""
        if self.aggregator in (_weighted_sum, _tier_average):
            return None
        return str(getattr(self.aggregator, "__name__", type(self.aggregator).__name__))

    def to_json(self) -> dict[str, Any]:
        """All settings as JSON values, for the record of a run."""
        return {
            "name": own_code.short(self.name),
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
    "fedavg": Recipe(SUMMARIES["fedavg"], "synchronous", aggregation=_BY_SHARE),
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
        settings=TierSettings,
        aggregation_keys=("server",),
    ),
    "fedcompass": Recipe(SUMMARIES["fedcompass"], "compass"),
    "fedcompass+m": Recipe(
        SUMMARIES["fedcompass+m"],
        "compass",
        aggregation={"server": {"optimizer": "momentum", "beta": 0.9}},
    ),
    "fedcompass+n": Recipe(SUMMARIES["fedcompass+n"], "compass", aggregation={"normalized": True}),
    "metronome": Recipe(SUMMARIES["metronome"], "metronome", aggregation={"weighting": "share"}),
    "metronome+n": Recipe(
        SUMMARIES["metronome+n"],
        "metronome",
        aggregation={"weighting": "share", "normalized": True},
    ),
}


def names(*, installed: bool = True) -> list[str]:
    """The strategies there are: ours, registered ones and, if `installed`, other packages'."""
    return list(dict.fromkeys([*_RECIPES, *(_entry_points() if installed else ())]))


def register(name: str, recipe: Recipe) -> None:
    """Make a strategy of your own known by name; the name must be free (or mean the same).

    It is known by that name in this process only. Commands and worker processes find a recipe by
    its place instead: name it `FILE.py:name` or `package.module:name`, without registering it.
    """
    if _RECIPES.setdefault(name, recipe) != recipe:
        raise SettingsError(f"a strategy named {name!r} exists already; choose another name")


def describe() -> dict[str, str]:
    """One line for each strategy."""
    return {name: _summary_or_error(name) for name in names()}


def _summary_or_error(name: str) -> str:
    """One line, though another package's strategy may not load."""
    try:
        return summary(name)
    except SettingsError as error:
        return str(error)


def summary(name: str) -> str:
    """One line for a strategy."""
    return _recipe(name).summary


def strategy(name: str = "fedcompass", **settings: Any) -> Strategy:
    """A strategy with some of its settings changed.

    Keys are the scheduler's (`steps`, `min_steps`, `buffer_size`, `weights`, …), `staleness`,
    `server`, `normalized` and `guard`, and `variant` where there are several.

    Raises:
        SettingsError: no such strategy, a key it does not have, or a value out of range.
    """
    recipe = _recipe(name)
    kind = _kind(recipe)
    for key in settings:
        if key not in known_keys(name):
            where = f"strategy {own_code.shown(name)!r}"
            raise SettingsError(unknown_key(key, known_keys(name), where))
    variant = settings.get("variant", "own")
    scheduling = {key: settings[key] for key in kind.settings.model_fields if key in settings}
    aggregation = {key: settings[key] for key in recipe.settings.model_fields if key in settings}
    rule = merged(recipe.rule, _variant(recipe, name, variant), aggregation)
    made = Strategy(
        name=name,
        variant=variant,
        scheduler=recipe.scheduler if isinstance(recipe.scheduler, str) else own_code.short(name),
        kind=kind,
        scheduling=kind.settings(**merged(recipe.scheduling, scheduling)),
        aggregation=recipe.settings(**rule),
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
    counted = {
        "calibrated true": rule.calibrated,
        "since_last true": rule.since_last,
        f"staleness_window {rule.staleness_window}": rule.staleness_window is not None,
    }
    for piece in [piece for piece, is_set in counted.items() if is_set and absent != "skip"]:
        raise SettingsError(
            f"absent of {made.name!r} is {absent!r} with {piece}, which makes up for an absent "
            "client, too; allowed: 'skip', or the other without it"
        )
    if scheduling.merge_at_least > 1 and (made.by_tiers or scheduling.repeats_updates):
        why = "tiers are merged one by one" if made.by_tiers else "absent clients are remembered"
        raise SettingsError(
            f"merge_at_least of {made.name!r} is {scheduling.merge_at_least}; allowed: 1, since "
            f"{why}"
        )
    if made.by_tiers and rule.server.delay_limit is not None:
        raise SettingsError(
            f"server.delay_limit of {made.name!r} is {rule.server.delay_limit}; allowed: "
            "unset, since its model is a mean of tier models and not a sum of updates"
        )


def secured(name: str, **settings: Any) -> Strategy:
    """A strategy whose merges are sums of the updates of three clients or more.

    Raises:
        SettingsError: it needs single updates; with what to use instead.
    """
    made = strategy(name, **settings)
    _check_secure(made)
    fewest = max(FEWEST_IN_A_SUM, made.scheduling.merge_at_least)
    return strategy(name, **settings | {"merge_at_least": fewest})


def _check_secure(made: Strategy) -> None:
    rule = made.aggregation
    told = {
        "merges every update by itself; use fedbuff": made.scheduler == "immediate",
        "merges tier by tier, and a tier may be one client; use fedcompass or metronome": (
            made.by_tiers
        ),
        "has a rule of your own, which gets single updates; use one of ours": (
            made.own_rule is not None
        ),
        "has payload 'model'; use its variant 'share'": rule.payload == "model",
        "has calibrated true, which keeps each client's last update; set it to false": (
            rule.calibrated
        ),
        "has since_last true, which keeps each client's last model; set it to false": (
            rule.since_last
        ),
        "has profiling 'tasks', whose updates no sum asks for; use 'round'": (
            isinstance(made.scheduling, TieredSettings) and made.scheduling.profiling == "tasks"
        ),
        "has absent 'remember', which keeps each client's last update; use 'skip' or 'catch-up'": (
            made.scheduling.repeats_updates
        ),
        "has model_buffers 'replace', which counts every client in full, while secure.clip bounds "
        "weighted values; use 'corrected' or 'moving'": rule.model_buffers == "replace",
    }
    for why, holds in told.items():
        if holds:
            raise SettingsError(f"secure.enabled is true, but {made.name!r} {why}")


def variants(name: str) -> list[str]:
    """The variants of a strategy's rule beside its own."""
    return list(_recipe(name).variants)


def known_keys(name: str) -> list[str]:
    """Every setting a strategy has."""
    recipe = _recipe(name)
    return [*_kind(recipe).settings.model_fields, *_own_keys(recipe)]


def _own_keys(recipe: Recipe) -> tuple[str, ...]:
    variant = ("variant",) if recipe.variants else ()
    added = [key for key in recipe.settings.model_fields if key not in _AGGREGATION_KEYS]
    return (*added, *recipe.aggregation_keys, *variant, "guard")


def _kind(recipe: Recipe) -> PolicyKind:
    scheduler = recipe.scheduler
    return policy_kind(scheduler) if isinstance(scheduler, str) else scheduler


def _recipe(name: str) -> Recipe:
    if name in _RECIPES:
        return _RECIPES[name]
    if own_code.is_own(name):
        return _named(own_code.absolute(name))
    if name in _entry_points():
        return _of_entry_point(name)
    raise SettingsError(
        f"strategy is {name!r}{nearest(name, names())}; allowed: {', '.join(names())}; or your "
        f"own: a Recipe named "
        f"{own_code.FORMS}, or made known in Python by fedcompass.strategies.register"
    )


@cache
def _named(name: str) -> Recipe:
    return _as_recipe(name, own_code.find("strategy", name))


@cache
def _of_entry_point(name: str) -> Recipe:
    point = _entry_points()[name]
    try:
        found = point.load()
    except Exception as error:  # the package's code can raise anything; the cause stays attached
        raise SettingsError(
            f"strategy {name!r} (entry point {point.value}) does not load: {told(error)}"
        ) from error
    return _as_recipe(name, found)


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _as_recipe(name: str, found: object) -> Recipe:
    if isinstance(found, Recipe):
        return found
    if isinstance(found, PolicyKind):
        lines = (found.build.__doc__ or "a scheduler of your own").strip().splitlines()
        return Recipe(lines[0], found)
    raise SettingsError(own_code.wrong("strategy", name, found, _RECIPE))


_RECIPE = (
    "a fedcompass.strategies.Recipe, or a scheduler's PolicyKind(its settings, what builds it)"
)


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
