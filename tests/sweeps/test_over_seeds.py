"""Numbers over seeds: the paper's rule for a time, ranks that count misses, and wins."""

from tests.sweeps.small_sweeps import made_record

from fedcompass.sweeps.over_seeds import OverSeeds, over_seeds
from fedcompass.sweeps.record import Record


def outcome(strategy: str, seed: int, time: float | None, top: float = 0.9) -> Record:
    return made_record(strategy, seed, time=time, top=top, horizon=100.0)


def rows(*records: Record) -> dict[str, OverSeeds]:
    runs: dict[str, list[Record]] = {}
    for record in records:
        runs.setdefault(record.experiment["strategy"]["name"], []).append(record)
    return over_seeds(runs, "fedcompass")


def test_a_time_is_the_mean_over_the_seeds_that_reached_the_target() -> None:
    table = rows(
        *(outcome("fedcompass", seed, time) for seed, time in enumerate((10.0, 20.0, None, 30.0)))
    )
    row = table["fedcompass"]
    assert (row.time, row.time_spread, row.reached, row.seeds) == (20.0, 10.0, 3, 4)


def test_times_are_relative_to_fedcompass() -> None:
    table = rows(outcome("fedavg", 0, 60.0), outcome("fedcompass", 0, 20.0))
    assert table["fedavg"].relative == 3.0
    assert table["fedcompass"].relative == 1.0


def test_a_strategy_that_fewer_than_half_of_the_seeds_reach_has_no_time_but_a_rank() -> None:
    table = rows(
        outcome("fedasync", 0, 10.0),
        outcome("fedasync", 1, None),
        outcome("fedasync", 2, None),
        outcome("fedcompass", 0, 50.0),
        outcome("fedcompass", 1, 50.0),
        outcome("fedcompass", 2, 50.0),
    )
    assert table["fedasync"].time is None
    assert table["fedasync"].relative is None
    assert table["fedasync"].reached == 1
    assert table["fedasync"].rank_time == 70.0  # two misses counted at the horizon
    assert table["fedcompass"].rank_time == 50.0


def test_exactly_half_of_the_seeds_is_enough() -> None:
    table = rows(outcome("fedcompass", 0, 10.0), outcome("fedcompass", 1, None))
    assert table["fedcompass"].time == 10.0
    assert table["fedcompass"].time_spread is None  # of one value


def test_the_fastest_of_a_seed_wins_it_and_nobody_wins_a_seed_nobody_reached() -> None:
    table = rows(
        outcome("fedavg", 0, 30.0),
        outcome("fedavg", 1, None),
        outcome("fedcompass", 0, 20.0),
        outcome("fedcompass", 1, None),
    )
    assert (table["fedavg"].wins, table["fedcompass"].wins) == (0, 1)


def test_a_tie_counts_for_each() -> None:
    table = rows(outcome("fedavg", 0, 20.0), outcome("fedcompass", 0, 20.0))
    assert (table["fedavg"].wins, table["fedcompass"].wins) == (1, 1)


def test_rows_keep_the_order_of_the_strategies_and_average_the_rest() -> None:
    records = [
        outcome("fedbuff", 0, None, 0.5),
        outcome("fedavg", 0, None, 0.1),
        outcome("fedbuff", 1, None, 0.7),
    ]
    table = rows(*records)
    assert list(table) == ["fedbuff", "fedavg"]
    row = table["fedbuff"]
    assert abs(row.top - 0.6) < 1e-12
    assert row.idle_share == 0.25
    assert row.mean_staleness == 1.5
