"""An experiment is always complete and right: filled in from the paper, or refused in one line."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedcompass.errors import SettingsError
from fedcompass.experiment import DataSettings, EvaluationSettings, Experiment
from fedcompass.settings.data import PartitionSettings
from fedcompass.settings.simulation import Dropout, FleetSettings
from fedcompass.settings.training import LocalSettings
from fedcompass.strategies import names


def refusal(**settings: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        Experiment(**settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    return path


def test_the_default_is_fedcompass_on_the_bundled_data() -> None:
    default = Experiment()
    assert default.data.name == "mnist-mini"
    assert default.model == "mlp"
    assert default.fleet.clients == 5
    assert default.fleet.speed == "exponential"
    assert default.strategy["name"] == "fedcompass"
    assert default.seed == 0


@pytest.mark.parametrize(
    ("data", "clients", "steps", "buffer_size"),
    [("mnist", 5, 200, 3), ("mnist", 10, 200, 3), ("mnist", 20, 100, 5), ("cifar10", 20, 100, 5)],
)
def test_steps_and_buffers_are_the_papers_for_the_number_of_clients(
    data: str, clients: int, steps: int, buffer_size: int
) -> None:
    def strategy(name: str) -> dict[str, Any]:
        given = Experiment(data={"name": data}, fleet={"clients": clients}, strategy={"name": name})
        return given.strategy

    assert strategy("fedavg") == {"name": "fedavg", "steps": steps}
    assert strategy("fedat") == {"name": "fedat", "steps": steps, "tier_ratio": 2.0}
    assert strategy("fedbuff") == {
        "name": "fedbuff",
        "steps": steps,
        "buffer_size": buffer_size,
        "variant": "share",
    }
    compass = {"min_steps": steps // 5, "max_steps": steps, "latest": 1.2}
    for name in ("fedcompass", "fedcompass+m", "fedcompass+n"):
        assert strategy(name) == {"name": name, **compass}


def test_the_papers_staleness_is_used_by_all_asynchronous_strategies() -> None:
    for name in ("fedasync", "fedbuff", "fedcompass", "fedcompass+m", "fedcompass+n"):
        rule = Experiment(strategy={"name": name}).chosen_strategy().aggregation.staleness
        assert (rule.alpha, rule.a) == (0.9, 0.5), name


@pytest.mark.parametrize(
    ("data", "model", "optimizer", "rate", "batch", "pace", "target"),
    [
        ("mnist", "mnist_cnn", "adam", 0.003, 64, 0.15, 0.9),
        ("cifar10", "resnet18", "sgd", 0.1, 128, 0.5, 0.5),
    ],
)
def test_local_training_and_pace_are_the_papers_for_the_dataset(
    data: str, model: str, optimizer: str, rate: float, batch: int, pace: float, target: float
) -> None:
    filled = Experiment(data={"name": data})
    assert filled.model == model
    local = filled.local
    assert (local.optimizer, local.learning_rate, local.batch_size) == (optimizer, rate, batch)
    assert filled.fleet.mean_seconds_per_step == pace
    assert filled.target == target


def test_what_is_given_wins_over_the_paper() -> None:
    given = Experiment(
        data={"name": "cifar10"},
        model="mlp",
        local={"learning_rate": 0.5},
        fleet={"clients": 10, "mean_seconds_per_step": 2.0},
        strategy={"name": "fedbuff", "buffer_size": 7},
        horizon=5,
        target=0.25,
    )
    assert given.model == "mlp"
    assert (given.local.learning_rate, given.local.optimizer) == (0.5, "sgd")
    assert given.fleet.mean_seconds_per_step == 2.0
    assert (given.strategy["buffer_size"], given.strategy["steps"]) == (7, 200)
    assert (given.horizon, given.target) == (5.0, 0.25)


def test_settings_objects_and_tables_mean_the_same() -> None:
    tables = Experiment(
        data={"name": "mnist"},
        fleet={"clients": 10, "dropouts": [[0, 1.0, 2.0]]},
        local={"learning_rate": 0.1},
        partition={"kind": "iid"},
        evaluation={"every_seconds": 2.0},
    )
    objects = Experiment(
        data=DataSettings(name="mnist"),
        fleet=FleetSettings(clients=10, dropouts=(Dropout(client=0, at=1.0, returns_at=2.0),)),
        local=LocalSettings(learning_rate=0.1),
        partition=PartitionSettings(kind="iid"),
        evaluation=EvaluationSettings(every_seconds=2.0),
    )
    assert tables == objects
    assert hash(tables) == hash(objects)
    assert objects.strategy["max_steps"] == 200
    assert tables != Experiment()


def test_given_paces_say_how_many_clients_there_are() -> None:
    assert Experiment(fleet={"paces": [0.1, 0.2, 0.4]}).fleet.clients == 3


def test_an_empty_model_is_the_datasets_usual_one() -> None:
    assert Experiment(model="", data={"name": "mnist"}).model == "mnist_cnn"


def test_the_own_profile_leaves_a_strategy_its_own_papers_settings() -> None:
    own = Experiment(strategy={"name": "fedbuff"}, profile="own")
    assert own.strategy == {"name": "fedbuff"}
    assert own.chosen_strategy().variant == "own"


def test_the_authors_profile_adds_their_habits_to_compass_and_to_nothing_else() -> None:
    compass = Experiment(data={"name": "mnist"}, profile="authors")
    habits = {"join_up_to": 1.2, "aim": "latest", "pace": {"newest_weight": 0.9}}
    assert compass.strategy == {**Experiment(data={"name": "mnist"}).strategy, **habits}
    assert (compass.local.rate_decay, compass.local.rate_decay_steps) == (0.995, 200)
    given = Experiment(profile="authors", strategy={"join_up_to": 1.1, "max_steps": 90})
    assert (given.strategy["join_up_to"], given.local.rate_decay_steps) == (1.1, 90)
    for name in ("fedavg", "fedat"):
        plain = Experiment(strategy={"name": name})
        assert Experiment(strategy={"name": name}, profile="authors").strategy == plain.strategy
        assert Experiment(strategy={"name": name}, profile="authors").local == plain.local


def test_a_run_starts_when_all_clients_have_joined() -> None:
    chosen = Experiment(fleet={"clients": 7}, strategy={"name": "fedavg"}).chosen_strategy()
    assert chosen.scheduling.min_clients == 7


EXPERIMENTS = [
    Experiment(),
    *(Experiment(strategy={"name": name}) for name in names()),
    Experiment(target=None, evaluation={"every_updates": None, "every_seconds": 2.5}),
    Experiment(data={"name": "my-own"}),
    Experiment(
        seed=3,
        profile="own",
        data={"name": "cifar10", "root": "/somewhere"},
        model="package.module:factory",
        partition={"kind": "dual-dirichlet", "alpha2": 0.3},
        fleet={
            "paces": [0.1, 0.2],
            "changes": [[0, 2, 0.3]],
            "dropouts": [[1, 1.0], [0, 2.0, 3.0]],
            "latency_seconds": [0.1, 0.2],
            "bandwidth_bytes_per_second": 1e6,
        },
        strategy={
            "name": "fedcompass+m",
            "server": {"optimizer": "momentum", "beta": 0.5},
            "guard": {"max_norm": None},
        },
        evaluation={"metrics": ["accuracy", "balanced_accuracy"], "per_client": True},
        max_updates=9,
    ),
]


@pytest.mark.parametrize("number", range(len(EXPERIMENTS)))
def test_an_experiment_written_as_toml_is_read_back_the_same(number: int, tmp_path: Path) -> None:
    chosen = EXPERIMENTS[number]
    text = tomli_w.dumps(chosen.to_record())
    read = Experiment.from_toml(written(tmp_path, text))
    assert read == chosen
    assert read.key() == chosen.key()
    assert tomli_w.dumps(read.to_record()) == text
    assert read.chosen_strategy() == chosen.chosen_strategy()


def test_a_file_can_say_that_a_setting_is_unset(tmp_path: Path) -> None:
    read = Experiment.from_toml(
        written(tmp_path, 'target = "none"\n[evaluation]\nevery_updates = "none"\n')
    )
    assert read.target is None
    assert read.evaluation.every_updates is None


def test_the_key_depends_on_all_that_decides_a_result_and_not_on_where_the_data_lies() -> None:
    key = Experiment().key()
    assert key == Experiment().key()
    assert key == Experiment(seed=0, data={"name": "mnist-mini", "root": "/elsewhere"}).key()
    others = [
        Experiment(seed=1),
        Experiment(local={"learning_rate": 0.1}),
        Experiment(strategy={"name": "fedavg"}),
        Experiment(strategy={"latest": 1.5}),
        Experiment(target=None),
        Experiment(fleet={"jitter": 0.0}),
    ]
    assert len({key, *(other.key() for other in others)}) == len(others) + 1


def test_changing_a_setting_keeps_the_others() -> None:
    changed = Experiment(seed=4, fleet={"clients": 10}).with_settings({"fleet": {"jitter": 0.0}})
    assert changed == Experiment(seed=4, fleet={"clients": 10, "jitter": 0.0})


def test_changing_the_dataset_or_the_clients_fills_in_anew() -> None:
    changed = Experiment(horizon=9.0).with_settings({"data": {"name": "cifar10"}})
    assert changed == Experiment(horizon=9.0, data={"name": "cifar10"})
    assert changed.model == "resnet18"
    more = Experiment(data={"name": "mnist"}).with_settings({"fleet": {"clients": 20}})
    assert more.strategy["max_steps"] == 100


def test_changing_the_strategy_drops_the_settings_of_the_one_before() -> None:
    first = Experiment(strategy={"name": "fedbuff", "buffer_size": 9, "steps": 7})
    assert first.with_settings({"strategy": {"name": "fedavg"}}) == Experiment(
        strategy={"name": "fedavg"}
    )
    again = first.with_settings({"strategy": {"name": "fedbuff", "steps": 5}})
    assert again == Experiment(strategy={"name": "fedbuff", "buffer_size": 9, "steps": 5})
    same = first.with_settings({"strategy": {"steps": 5}})
    assert same == again


def test_changes_add_up() -> None:
    changed = (
        Experiment(target=0.5)
        .with_settings({"target": None})
        .with_settings({"fleet": {"clients": 3}})
        .with_settings({"fleet": {"speed": "normal"}})
    )
    assert changed == Experiment(target=None, fleet={"clients": 3, "speed": "normal"})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"sed": 1}, "experiment has no setting 'sed' (did you mean 'seed'?)"),
    ({"seed": -1}, "seed is -1; allowed: a whole number at least 0"),
    ({"seed": 1.5}, "seed is 1.5"),
    ({"profile": "mine"}, "profile is 'mine'; allowed: one of 'paper', 'as-run', 'authors', 'own'"),
    ({"horizon": 0}, "horizon is 0; allowed: a number above 0"),
    ({"horizon": float("inf")}, "horizon is inf"),
    ({"max_updates": 0}, "max_updates is 0"),
    ({"target": "high"}, "target is 'high'"),
    ({"target": None, "stop_at_target": True}, "stop_at_target is true, but there is no target"),
    ({"run_at_least": 5}, "run_at_least is 5, but stop_at_target is false"),
    (
        {"target": 0.5, "stop_at_target": True, "run_at_least": 90, "horizon": 60},
        "run_at_least is 90; allowed: at most the horizon, 60",
    ),
    ({"model": 3}, "model is 3; allowed: text"),
    ({"data": "mnist"}, "data is 'mnist'; allowed: a table with name, root"),
    ({"data": None}, "data is None; allowed: a table with name, root"),
    ({"data": {"name": ["mnist"]}}, "data: name is ['mnist']; allowed: text"),
    ({"data": {"nam": "mnist"}}, "data has no setting 'nam' (did you mean 'name'?)"),
    ({"fleet": 5}, "fleet is 5; allowed: a table with clients"),
    ({"fleet": {"clients": 0}}, "fleet: clients is 0; allowed: a whole number at least 1"),
    ({"fleet": {"clients": "five"}}, "fleet: clients is 'five'"),
    ({"fleet": {"clients": 2, "paces": [1, 1, 1]}}, "paces has 3 values for 2 clients"),
    ({"fleet": {"paces": 3}}, "fleet: paces is 3; allowed: a list"),
    ({"fleet": {"speed": "warp"}}, "fleet: speed is 'warp'; allowed: one of"),
    ({"local": {"learning_rate": 0}}, "local: learning_rate is 0; allowed: a number above 0"),
    ({"partition": {"kind": "random"}}, "partition: kind is 'random'; allowed: one of"),
    ({"evaluation": {"every_updates": 0}}, "evaluation: every_updates is 0; allowed: at least 1"),
    ({"evaluation": {"every_seconds": -1}}, "evaluation: every_seconds is -1"),
    ({"evaluation": {"metrics": ["acc"], "target_metric": "acc"}}, "'acc'"),
    ({"evaluation": {"metrics": ["loss"]}}, "target_metric is 'accuracy'; allowed: one of the"),
    ({"strategy": "fedbuff"}, "strategy is 'fedbuff'; allowed: a table with a name"),
    (
        {"strategy": {"name": "fedfoo"}},
        "strategy is 'fedfoo' (did you mean 'fedyogi'?); allowed: fedavg, ",
    ),
    ({"strategy": {"name": ["fedavg"]}}, "strategy.name is ['fedavg']; allowed: fedavg, "),
    ({"strategy": {"name": None}}, "strategy.name is None; allowed: fedavg, "),
    ({"strategy": {"step": 3}}, "strategy 'fedcompass' has no setting 'step'"),
    ({"strategy": {"min_steps": 99}}, "min_steps is 99; allowed: at least 1 and at most"),
    ({"strategy": {"latest": 0.5}}, "latest is 0.5; allowed: a number at least 1"),
    ({"strategy": {"guard": 3}}, "guard is 3; allowed: a table with max_norm"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=[text for _, text in WRONG])
def test_a_wrong_setting_is_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    assert message in refusal(**settings)


@pytest.mark.parametrize("change", [{"strategy": "fedbuff"}, {"fleet": 3}, {"sed": 1}])
def test_a_wrong_change_is_refused_in_one_line(change: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as caught:
        Experiment().with_settings(change)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.toml"
    with pytest.raises(
        SettingsError, match=r"nowhere\.toml: No such file.*give the path of a TOML"
    ):
        Experiment.from_toml(missing)
    for bad in ("seed = ", "[fleet", "seed = 1\nseed = 2"):
        with pytest.raises(SettingsError, match="is not valid TOML") as caught:
            Experiment.from_toml(written(tmp_path, bad))
        assert "\n" not in str(caught.value)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="is not valid TOML"):
        Experiment.from_toml(tmp_path / "binary.toml")


def test_an_experiment_is_not_changed_once_made() -> None:
    with pytest.raises(Exception, match="frozen"):
        Experiment().seed = 3
