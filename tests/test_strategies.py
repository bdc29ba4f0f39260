import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcompass import strategies
from fedcompass.aggregation import (
    FlatState,
    GuardSettings,
    StalenessSettings,
    TierAverage,
    WeightedSum,
)
from fedcompass.errors import SettingsError
from fedcompass.scheduling import registry
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.immediate import BufferedSettings, Immediate
from fedcompass.scheduling.policy import FixedStepsSettings, SchedulerSettings
from fedcompass.scheduling.synchronous import Synchronous
from fedcompass.scheduling.tiered import Tiered, TieredSettings
from fedcompass.strategies import Recipe, Strategy, strategy

NAMES = [
    "fedavg",
    "fedavgm",
    "fedadam",
    "fedyogi",
    "fedadagrad",
    "fedasync",
    "fedbuff",
    "fedat",
    "fedcompass",
    "fedcompass+m",
    "fedcompass+n",
    "metronome",
    "metronome+n",
]


@pytest.fixture(autouse=True)
def _leave_the_registries_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "_RECIPES", dict(strategies._RECIPES))
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))


def settings_of(chosen: Strategy, kind: type[Any]) -> Any:
    assert type(chosen.scheduling) is kind
    return chosen.scheduling


def test_describe_has_one_line_for_each_of_the_thirteen_strategies_in_order() -> None:
    lines = strategies.describe()
    assert list(lines) == strategies.names() == NAMES
    assert all(line and "\n" not in line and len(line) <= 95 for line in lines.values())
    assert len(set(lines.values())) == 13


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("fedavg", Synchronous),
        ("fedavgm", Synchronous),
        ("fedadam", Synchronous),
        ("fedyogi", Synchronous),
        ("fedadagrad", Synchronous),
        ("fedasync", Immediate),
        ("fedbuff", Immediate),
        ("fedat", Tiered),
        ("fedcompass", Compass),
        ("fedcompass+m", Compass),
        ("fedcompass+n", Compass),
    ],
)
def test_every_strategy_makes_its_scheduler_and_its_aggregator(
    name: str, policy: type[object]
) -> None:
    chosen = strategy(name)
    model = FlatState(torch.zeros(3), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    assert type(chosen.new_scheduler().policy) is policy
    assert chosen.new_scheduler() is not chosen.new_scheduler()
    aggregator = chosen.new_aggregator(model)
    assert type(aggregator) is (TierAverage if name == "fedat" else WeightedSum)
    assert aggregator.model is model


def test_the_bare_name_is_fedcompass() -> None:
    assert strategy() == strategy("fedcompass")


@pytest.mark.parametrize("name", ["fedcompass", "fedcompass+m", "fedcompass+n"])
def test_fedcompass_has_its_papers_defaults(name: str) -> None:
    chosen = strategy(name)
    rule = chosen.aggregation
    assert (rule.staleness.kind, rule.staleness.alpha, rule.staleness.a) == ("polynomial", 0.9, 0.5)
    assert (rule.weighting, rule.scale, rule.payload) == ("staleness-share", "none", "delta")
    assert settings_of(chosen, CompassSettings).latest == 1.2
    assert rule.normalized == (name == "fedcompass+n")
    expected = ("momentum", 0.9) if name == "fedcompass+m" else ("plain", 0.9)
    assert (rule.server.optimizer, rule.server.beta) == expected
    assert rule.server.learning_rate == 1.0


def test_fedbuff_has_its_papers_defaults() -> None:
    chosen = strategy("fedbuff")
    rule = chosen.aggregation
    assert settings_of(chosen, BufferedSettings).buffer_size == 10
    assert (rule.staleness.alpha, rule.staleness.a) == (1.0, 0.5)
    assert (rule.weighting, rule.scale, rule.server.learning_rate) == ("staleness", "mean-count", 1)


def test_fedasync_has_its_papers_defaults() -> None:
    rule = strategy("fedasync").aggregation
    assert (rule.staleness.kind, rule.staleness.alpha, rule.staleness.a) == ("polynomial", 0.6, 0.5)
    assert (rule.weighting, rule.scale, rule.payload) == ("staleness", "none", "model")


@pytest.mark.parametrize("name", ["fedasync", "fedbuff"])
def test_the_share_variant_is_what_the_fedcompass_paper_ran(name: str) -> None:
    chosen = strategy(name, variant="share")
    assert chosen.variant == "share"
    assert chosen.aggregation == strategy("fedcompass").aggregation
    assert chosen.scheduling == strategy(name).scheduling


@pytest.mark.parametrize(
    ("name", "optimizer", "beta1"),
    [("fedadam", "adam", None), ("fedyogi", "yogi", None), ("fedadagrad", "adagrad", 0.0)],
)
def test_adaptive_servers_have_their_papers_defaults(
    name: str, optimizer: str, beta1: float | None
) -> None:
    server = strategy(name).aggregation.server
    assert (server.optimizer, server.learning_rate, server.tau) == (optimizer, 0.01, 1e-3)
    assert (server.beta1, server.beta2) == (beta1, 0.99)


def test_synchronous_rounds_weigh_by_samples_and_renormalize() -> None:
    for name in NAMES[:5]:
        rule = strategy(name).aggregation
        assert (rule.weighting, rule.scale) == ("share", "mean-share")
    server = strategy("fedavgm").aggregation.server
    assert (server.optimizer, server.beta, server.learning_rate) == ("momentum", 0.9, 1.0)


def test_fedat_tiers_span_a_factor_of_two() -> None:
    assert settings_of(strategy("fedat"), TieredSettings).tier_ratio == 2.0


def test_a_nested_table_changes_one_value_and_keeps_the_recipes_others() -> None:
    staleness = strategy("fedbuff", staleness={"alpha": 0.5}).aggregation.staleness
    assert (staleness.alpha, staleness.a) == (0.5, 0.5)
    staleness = strategy("fedasync", staleness={"a": 2.0}).aggregation.staleness
    assert (staleness.alpha, staleness.a) == (0.6, 2.0)
    server = strategy("fedadam", server={"beta2": 0.5}).aggregation.server
    assert (server.optimizer, server.learning_rate, server.beta2) == ("adam", 0.01, 0.5)
    pace = strategy("fedcompass", pace={"overhead_aware": True}).scheduling.pace
    assert (pace.overhead_aware, pace.newest_weight) == (True, 1.0)


def test_changing_one_strategy_leaves_the_recipe_as_it_was() -> None:
    before = strategy("fedbuff").to_json()
    strategy("fedbuff", staleness={"alpha": 0.5}, buffer_size=3)
    assert strategy("fedbuff").to_json() == before


def test_pieces_combine_with_any_scheduler() -> None:
    chosen = strategy(
        "fedbuff", server={"optimizer": "yogi"}, normalized=True, staleness={"kind": "hinge"}
    )
    assert chosen.aggregation.server.optimizer == "yogi"
    assert chosen.aggregation.normalized
    assert strategy("fedavg", weights="equal").scheduling.weights == "equal"


def test_settings_may_be_given_as_checked_objects() -> None:
    chosen = strategy(
        "fedcompass",
        guard=GuardSettings(max_norm=3.0),
        staleness=StalenessSettings(kind="constant", alpha=0.4),
    )
    assert chosen.guard.max_norm == 3.0
    assert chosen.aggregation.staleness.alpha == 0.4


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("fedavgg", {}, "strategy is 'fedavgg' (did you mean 'fedavg'?); allowed: fedavg, fedavgm"),
        ("fedcompass", {"min_step": 5}, "strategy 'fedcompass' has no setting 'min_step' (did you"),
        ("fedcompass", {"variant": "share"}, "strategy 'fedcompass' has no setting 'variant'; it"),
        ("fedavg", {"buffer_size": 3}, "strategy 'fedavg' has no setting 'buffer_size'"),
        ("fedat", {"staleness": {"a": 1}}, "strategy 'fedat' has no setting 'staleness'"),
        ("fedasync", {"variant": "paper"}, "variant of 'fedasync' is 'paper'; allowed: own, share"),
        ("fedasync", {"variant": ["x"]}, "variant of 'fedasync' is ['x']; allowed: own, share"),
        ("fedavg", {"steps": 0}, "steps is 0; allowed: a whole number at least 1"),
        ("fedcompass", {"latest": -1}, "latest is -1; allowed: a number at least 1"),
        (
            "fedcompass",
            {"min_steps": 9, "max_steps": 8},
            "min_steps is 9; allowed: at least 1 and at most max_steps, which is 8",
        ),
        (
            "fedcompass",
            {"staleness": {"alpha": 25}},
            "staleness: alpha is 25; allowed: a number above 0 and at most 1",
        ),
        ("fedcompass", {"staleness": {"a": -1}}, "staleness: a is -1; allowed: a number at least"),
        ("fedcompass", {"staleness": {"al": 1}}, "staleness has no setting 'al'"),
        ("fedcompass", {"staleness": 0.5}, "staleness is 0.5; allowed: a table with kind, alpha"),
        ("fedbuff", {"buffer_size": 0}, "buffer_size is 0; allowed: a whole number at least 1"),
        ("fedat", {"tier_ratio": 0.9}, "tier_ratio is 0.9; allowed: a number at least 1"),
        ("fedavg", {"server": {"optimizer": "sgd"}}, "server: optimizer is 'sgd'; allowed: one of"),
        ("fedavg", {"guard": 5}, "guard is 5; allowed: a table with max_norm"),
        ("fedavg", {"guard": {"max_norm": 0}}, "max_norm is 0; allowed: above 0"),
        ("fedavg", {"guard": {"norm": 1}}, "guard has no setting 'norm' (did you mean 'max_norm'"),
        ("fedavg", {"weights": "some"}, "weights is 'some'; allowed: one of 'samples', 'equal'"),
        ("fedasync", {"normalized": True}, "normalized is true with payload 'model'; allowed"),
    ],
)
def test_a_wrong_name_key_value_or_variant_is_one_clear_line(
    name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        strategy(name, **settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_the_json_of_a_strategy_builds_the_same_strategy_again(name: str) -> None:
    chosen = strategy(name, min_clients=3, guard={"max_norm": 2.5})
    saved = json.loads(json.dumps(chosen.to_json()))
    assert saved == chosen.to_json()
    scheduling = registry.policy_kind(saved["scheduler"]).settings(**saved["scheduling"])
    assert scheduling == chosen.scheduling
    known = strategies.known_keys(name)
    tables = {**saved["scheduling"], **saved["aggregation"], "guard": saved["guard"]}
    assert strategy(name, **{key: tables[key] for key in tables if key in known}) == chosen


def test_known_keys_are_those_that_strategy_takes() -> None:
    tiered = ["tier_ratio", "profiling", "tier_weights", "server", "guard"]
    assert strategies.known_keys("fedat")[-5:] == tiered
    assert "variant" in strategies.known_keys("fedbuff")
    assert "variant" not in strategies.known_keys("fedavg")
    with pytest.raises(SettingsError, match="strategy is 'x'"):
        strategies.known_keys("x")


def test_a_recipe_of_ones_own_can_be_registered_and_run() -> None:
    recipe = Recipe(
        "mine", "buffered", scheduling={"buffer_size": 2}, aggregation={"scale": "none"}
    )
    strategies.register("mine", recipe)
    strategies.register("mine", recipe)  # the same once more does no harm
    chosen = strategy("mine", steps=3)
    assert settings_of(chosen, BufferedSettings).buffer_size == 2
    assert strategies.describe()["mine"] == "mine"
    with pytest.raises(SettingsError, match="a strategy named 'mine' exists already"):
        strategies.register("mine", Recipe("another", "compass"))
    with pytest.raises(SettingsError, match="a strategy named 'fedavg' exists already"):
        strategies.register("fedavg", recipe)


def test_a_scheduler_of_ones_own_merges_means_unless_its_recipe_says_otherwise() -> None:
    kind = registry.PolicyKind(FixedStepsSettings, Immediate)
    strategies.register("means", Recipe("of its own", kind, aggregator=WeightedSum))
    strategies.register("sums", Recipe("of its own", kind, aggregation={}))
    assert strategy("means").aggregation.scale == "mean-share"
    assert not strategy("means").weighs_staleness
    assert strategy("sums").aggregation.scale == "none"


def test_updates_that_only_measure_a_pace_are_not_for_secure_sums() -> None:
    strategies.register("tiers, summed", Recipe("of its own", "tiered", aggregation={}))
    assert strategies.secured("tiers, summed").scheduling.merge_at_least == 3
    with pytest.raises(SettingsError, match="has profiling 'tasks', whose updates no sum asks for"):
        strategies.secured("tiers, summed", profiling="tasks")


class PatientSettings(FixedStepsSettings):
    patience: int = 2


def patient(settings: PatientSettings) -> Immediate:
    return Immediate(settings, merge_after=settings.patience)


def test_a_scheduler_of_ones_own_can_be_registered_and_named_in_a_recipe() -> None:
    registry.register_policy("patient", PatientSettings, patient)
    registry.register_policy("patient", PatientSettings, patient)
    strategies.register("patient", Recipe("waits a little", "patient", {"patience": 5}))
    chosen = strategy("patient", steps=1)
    assert settings_of(chosen, PatientSettings).patience == 5
    assert type(chosen.new_scheduler().policy) is Immediate
    with pytest.raises(SettingsError, match="a scheduler named 'compass' exists already"):
        registry.register_policy("compass", SchedulerSettings, patient)
    with pytest.raises(SettingsError, match="strategy 'patient' has no setting 'patienc'"):
        strategy("patient", patienc=1)


def test_a_recipe_with_an_unknown_scheduler_says_which_there_are() -> None:
    strategies.register("lost", Recipe("nowhere", "oracle"))
    with pytest.raises(SettingsError, match="scheduler is 'oracle'; allowed: compass, synchronous"):
        strategy("lost")


def test_an_installed_package_makes_its_strategies_known_by_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = "from fedcompass.strategies import Recipe\nslow = Recipe('theirs', 'synchronous')\n"
    (tmp_path / "their_package.py").write_text(recipe)
    facts = tmp_path / "their_package-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    points = "[fedcompass.strategies]\ntheirs = their_package:slow\nbroken = their_package:none\n"
    (facts / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    strategies._entry_points.cache_clear()
    try:
        assert strategies.summary("theirs") == "theirs"
        assert {"theirs", "broken"} <= set(strategies.names())
        assert "theirs" not in strategies.names(installed=False)
        assert "does not load" in strategies.describe()["broken"]
        assert strategy("theirs", steps=3).to_json()["name"] == "theirs"
        with pytest.raises(
            SettingsError, match=r"'broken' \(entry point .*none\) does not load: A"
        ):
            strategy("broken")
    finally:
        strategies._entry_points.cache_clear()
        strategies._of_entry_point.cache_clear()
        sys.modules.pop("their_package", None)
