"""What the paper's authors ran: their one fleet, each habit alone, and the profile of all."""

from typing import Any

import pytest
from numpy.random import RandomState

from fedcompass.as_run import AS_RUN, HABITS, Setup, fixed_fleet, habits
from fedcompass.experiment import Experiment
from fedcompass.paper.cells import Cell
from fedcompass.paper.entries import entry_named
from fedcompass.paper.hyperparameters import ALGORITHMS, row_horizons, settings_of
from fedcompass.settings.simulation import FleetSettings
from fedcompass.simulation.fleet import Fleet

TWENTY = (3.2, 1.6, 1.2, 0.4, 0.4, 0.2, 2.2, 1.2, 1.4, 0.2,
          3.8, 2.0, 0.4, 0.4, 0.4, 0.6, 1.0, 0.8, 0.6, 1.2)  # fmt: skip
EXP = Cell("mnist-class", 5, "exp")


def setup(
    strategy: str = "fedcompass", dataset: str = "mnist", speed: str = "exponential"
) -> Setup:
    return Setup(dataset, strategy, 5, speed, 0.15, 200)


@pytest.mark.parametrize("clients", [5, 10, 20])
def test_the_exponential_fleet_is_the_same_for_every_seed_and_a_larger_one_begins_like_it(
    clients: int,
) -> None:
    assert fixed_fleet("exponential", clients) == TWENTY[:clients]


@pytest.mark.parametrize("clients", [1, 4, 7, 10, 33, 200, 3000])
def test_the_fleets_are_drawn_as_numpy_draws_them(clients: int) -> None:
    drawn = RandomState(42).exponential(0.5, clients + 1)[1:]
    binned = ((drawn + 0.1) / 0.1).round() * 0.1 / 0.5
    assert fixed_fleet("exponential", clients) == tuple(round(float(p), 9) for p in binned)
    random = RandomState(42)
    while not (normal := random.normal(1.0, 0.3, clients + 1)).min() > 0:
        pass
    assert fixed_fleet("normal", clients) == tuple(round(float(p), 9) for p in normal[1:])


def test_cifars_fleet_has_wider_bins_and_no_client_below_two_fifths_of_the_mean() -> None:
    assert fixed_fleet("exponential", 5, 0.2) == (3.6, 1.6, 1.2, 0.4, 0.4)
    assert min(fixed_fleet("exponential", 20, 0.2)) == 0.4


def test_the_normal_fleet_is_drawn_with_a_spread_of_three_tenths() -> None:
    assert fixed_fleet("normal", 5) == pytest.approx((0.959, 1.194, 1.457, 0.930, 0.930), abs=1e-3)
    assert all(pace > 0 for pace in fixed_fleet("normal", 200))


@pytest.mark.parametrize(
    ("habit", "compass", "asynchronous", "synchronous"),
    [
        ("sign", True, True, False),
        ("fleet", True, True, True),
        ("rate", True, False, False),
        ("warm-up", True, False, False),
        ("join", True, False, False),
        ("aim", True, False, False),
        ("smooth", True, False, False),
        ("naps", True, True, True),
        ("momentum", False, False, False),
    ],
)
def test_whom_a_habit_concerns(
    habit: str, compass: bool, asynchronous: bool, synchronous: bool
) -> None:
    assert bool(HABITS[habit](setup("fedcompass+n"))) is compass
    assert bool(HABITS[habit](setup("fedasync"))) is asynchronous
    assert bool(HABITS[habit](setup("fedavg"))) is synchronous


def test_momentum_is_for_synchronous_runs_on_cifar_and_equal_speeds_keep_their_fleet() -> None:
    assert HABITS["momentum"](setup("fedavgm", "cifar10")) == {"local": {"momentum": 0.9}}
    assert HABITS["momentum"](setup("fedbuff", "cifar10")) == {}
    assert HABITS["fleet"](setup(speed="homogeneous")) == {}


@pytest.mark.parametrize("strategy", ALGORITHMS)
@pytest.mark.parametrize(
    "cell", [EXP, Cell("cifar10-class", 10, "normal"), Cell("mini-class", 5, "exp")], ids=str
)
def test_the_profile_is_the_row_of_that_name(cell: Cell, strategy: str) -> None:
    row = settings_of(cell, f"{strategy}@as-run", 3)
    dataset = cell.settings.dataset
    fleet = {"clients": cell.clients, "speed": row["fleet"]["speed"]}
    given: dict[str, Any] = {
        "data": {"name": dataset},
        "fleet": fleet,
        "strategy": {"name": strategy},
    }
    if dataset != "cifar10":  # the stored runs on MNIST are from before these were settings
        given["local"] = {"sampling": "replacement"}
        if strategy != "fedat":
            given["strategy"]["model_buffers"] = "corrected"
        if strategy.startswith("fedcompass"):
            given["strategy"]["create_group"] = "clamp"
    filled, planned = Experiment(profile="as-run", **given), Experiment(**row)
    assert filled.fleet == planned.fleet
    precision = {"precision": planned.local.precision}
    decays = planned.local.rate_decay < 1
    steps = {} if decays else {"rate_decay_steps": planned.local.rate_decay_steps}
    assert filled.local.model_copy(update={**precision, **steps}) == planned.local
    one, other = filled.chosen_strategy(), planned.chosen_strategy()
    assert (one.scheduling, one.aggregation) == (other.scheduling, other.aggregation)


def test_what_is_given_wins_over_the_profile() -> None:
    given = Experiment(
        profile="as-run",
        fleet={"paces": [1, 2, 3, 4, 5]},
        strategy={"staleness": {"kind": "constant"}, "warm_up": "min"},
    )
    assert list(given.fleet.paces or ()) == [1, 2, 3, 4, 5]
    assert given.strategy["staleness"] == {"kind": "constant"}
    assert given.chosen_strategy().scheduling.model_dump()["warm_up"] == "min"


@pytest.mark.parametrize(
    "given",
    [
        {"local": {"sampling": "replacement"}},
        {"local": {"sampling": "epochs"}},
        {"local": {"sampling": "rounds"}},
        {"privacy": {"epsilon": 8}},
        {"secure": {"enabled": True}},
        {"secure": {"enabled": True}, "strategy": {"name": "fedavg"}},
    ],
    ids=str,
)
def test_a_record_of_the_profile_reads_back_as_the_same_experiment(given: dict[str, Any]) -> None:
    chosen = Experiment(profile="as-run", **given)
    again = Experiment(**chosen.to_record())
    assert (again, again.key()) == (chosen, chosen.key())
    assert (
        again.local.sampling
        == chosen.local.sampling
        == given.get("local", {}).get("sampling", "replacement" if "privacy" in given else "rounds")
    )


def test_as_written_is_another_name_of_the_profile_paper() -> None:
    assert Experiment(profile="as-written") == Experiment(profile="paper")
    assert Experiment(profile="as-written").key() == Experiment().key()
    table = entry_named("table-1")
    assert table.under("as-written") == table.under("paper") == table


def test_habits_together_are_each_of_them() -> None:
    both = settings_of(EXP, "fedcompass@sign+fleet", 0)
    assert both["strategy"]["staleness"]["kind"] == "growing"
    assert both["fleet"]["paces"] == [0.48, 0.24, 0.18, 0.06, 0.06]
    assert "warm_up" not in both["strategy"]
    assert habits(setup(), AS_RUN)["strategy"]["warm_up"] == "max"
    ratio = settings_of(EXP, "1/Q=0.05@as-run", 0)["strategy"]
    assert (ratio["min_steps"], ratio["warm_up"]) == (10, "max")


def test_on_their_fleet_every_row_has_the_same_horizon() -> None:
    rounds = {row_horizons(EXP, f"{row}@as-run") for row in ALGORITHMS}
    assert rounds == {(32, 80)}  # 10 and 25 rounds of a client 3.2 times as slow as the mean


def test_a_task_takes_at_least_its_least_time_and_then_whole_naps() -> None:
    fleet = FleetSettings(clients=1, paces=(0.1,), jitter=0, least_task_seconds=1.5, nap_seconds=1)
    seconds = {steps: Fleet(fleet, 0).task_seconds(0, 0, steps).total for steps in (1, 15, 16, 300)}
    assert seconds == {1: 1.5, 15: 1.5, 16: 2.5, 300: 30.5}
    no_naps = FleetSettings(clients=1, paces=(0.1,), jitter=0, least_task_seconds=1.5)
    assert Fleet(no_naps, 0).task_seconds(0, 0, 16).total == pytest.approx(1.6)
