"""A sweep's file: what it gives, in which order, and what is wrong with it, in one line."""

from pathlib import Path
from typing import Any

import pytest
from tests.sweeps.small_sweeps import small_sweep

from fedcompass.errors import SettingsError
from fedcompass.sweeps.sweep_file import Sweep

EXAMPLE = Path(__file__).parents[2] / "examples" / "sweep.toml"


def test_every_point_comes_with_the_first_seed_before_any_comes_with_the_next() -> None:
    sweep = Sweep(
        name="x",
        grid={"strategy.name": ["fedavg", "fedasync"], "fleet.clients": [3, 5]},
        seeds=[4, 2],
    )
    points = [
        (p.experiment.seed, p.experiment.strategy["name"], p.experiment.fleet.clients)
        for p in sweep.plan()
    ]
    assert points == [
        (4, "fedavg", 3),
        (4, "fedavg", 5),
        (4, "fedasync", 3),
        (4, "fedasync", 5),
        (2, "fedavg", 3),
        (2, "fedavg", 5),
        (2, "fedasync", 3),
        (2, "fedasync", 5),
    ]
    assert sweep.axes == {"strategy.name": ("fedavg", "fedasync"), "fleet.clients": ("3", "5")}
    assert sweep.plan()[1].labels == {"strategy.name": "fedavg", "fleet.clients": "5"}


def test_what_is_filled_in_follows_the_grid() -> None:
    sweep = Sweep(name="x", base={"data": {"name": "mnist"}}, grid={"fleet.clients": [5, 20]})
    five, twenty = sweep.experiments()
    assert (five.strategy["max_steps"], twenty.strategy["max_steps"]) == (200, 100)


def test_dotted_keys_may_be_written_without_quotes() -> None:
    quoted = Sweep(name="x", grid={"fleet.speed": ["normal"], "strategy.name": ["fedavg"]})
    tables = Sweep(
        name="x", grid={"fleet": {"speed": ["normal"]}, "strategy": {"name": ["fedavg"]}}
    )
    assert tables.axes == quoted.axes
    assert tables.experiments() == quoted.experiments()


def test_a_table_sets_several_keys_under_a_label() -> None:
    choices = [
        {"label": "calm", "fleet.speed": "homogeneous", "fleet.jitter": 0.0},
        {"label": "as usual"},
    ]
    sweep = Sweep(name="x", grid={"weather": choices})
    assert sweep.axes == {"weather": ("calm", "as usual")}
    calm, usual = sweep.experiments()
    assert (calm.fleet.speed, calm.fleet.jitter) == ("homogeneous", 0.0)
    assert usual.fleet.speed == "exponential"


def test_a_strategy_gets_those_settings_that_it_has() -> None:
    for experiment in small_sweep().experiments():
        fixed = experiment.strategy["name"] == "fedavg"
        assert ("steps" in experiment.strategy) == fixed
        assert ("min_steps" in experiment.strategy) != fixed


def test_points_that_differ_in_nothing_a_strategy_has_are_one_run() -> None:
    sweep = Sweep(
        name="x",
        grid={"strategy.name": ["fedavg", "fedcompass"], "strategy.latest": [1.1, 1.2, 1.3]},
    )
    assert len(sweep.plan()) == 6
    assert [e.strategy.get("latest") for e in sweep.experiments()] == [None, 1.1, 1.2, 1.3]


def test_the_example_is_right() -> None:
    sweep = Sweep.from_toml(EXAMPLE)
    assert sweep.name == "speeds"
    assert len(sweep.plan()) == 4 * 2 * 2 * 3
    assert len(sweep.experiments()) == (3 * 2 + 2 * 2) * 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grit": {}}, "sweep has no setting 'grit' (did you mean 'grid'?); it has: name, base"),
        ({"name": "a/b"}, "name is 'a/b'; allowed: a plain name, without folders"),
        ({"seeds": 0}, "seeds is 0; allowed: how many, at least 1, or a list of different"),
        ({"seeds": [1, 1]}, "seeds is [1, 1]; allowed"),
        ({"seeds": True}, "seeds is True; allowed"),
        ({"seeds": []}, "seeds is []; allowed"),
        ({"base": {"seed": 1}}, "base.seed is set; a sweep has seeds"),
        ({"grid": {"seed": [1]}}, "grid.seed sets seed; a sweep has seeds"),
        ({"grid": {"fleet.clients": 5}}, "grid.fleet.clients is 5; allowed: a list with at least"),
        (
            {"grid": {"fleet.clients": []}},
            "grid.fleet.clients is []; allowed: a list with at least",
        ),
        ({"grid": {"fleet.clients": [5, 5]}}, "grid.fleet.clients has '5' twice"),
        ({"grid": {"x": [{"fleet.clients": 5}]}}, "a table needs a label (text) beside the keys"),
        (
            {"grid": {"horizon": [1.0], "x": [{"label": "a", "horizon": 2.0}]}},
            "grid.horizon and grid.x both set horizon",
        ),
        (
            {"grid": {"fleet.clinets": [5]}},
            "fleet.clinets=5: fleet has no setting 'clinets' (did you mean 'clients'?)",
        ),
        (
            {"grid": {"fleet.clients": [5, 0]}},
            "fleet.clients=0: fleet: clients is 0; allowed: a whole number at least 1",
        ),
        (
            {"grid": {"strategy.name": ["fedag"]}},
            "strategy is 'fedag' (did you mean 'fedavg'?); allowed: fedavg, ",
        ),
        (
            {"grid": {"strategy.min_step": [1]}},
            "grid.strategy.min_step: strategy (fedcompass) has no setting 'min_step' (did you mean",
        ),
        (
            {"base": {"strategy": {"steps": 2}}, "grid": {"strategy.nam": ["fedavg"]}},
            "grid.strategy.nam: strategy (fedcompass) has no setting 'nam' (did you mean 'name'?)",
        ),
        (
            {"base": {"strategy": {"buffer_size": 2}}, "grid": {"strategy.name": ["fedavg"]}},
            "base: strategy (fedavg) has no setting 'buffer_size'",
        ),
        (
            {
                "grid": {
                    "x": [
                        {"label": "a", "strategy.name": "fedavg", "strategy.buffer_size": 2},
                        {"label": "b", "strategy.name": "fedbuff"},
                    ]
                }
            },
            "grid.x, 'a': strategy 'fedavg' has no setting 'buffer_size'",
        ),
        ({"base": {"horizont": 2}}, "base: experiment has no setting 'horizont'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Sweep(**{"name": "x", **settings}).plan()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_named_for_a_sweep_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[grid]\n"fleet.clients" = [3]\n')
    assert Sweep.from_toml(path).name == "mine"
    with pytest.raises(SettingsError, match="No such file"):
        Sweep.from_toml(tmp_path / "other.toml")
