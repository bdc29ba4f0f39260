"""Runs compared seed by seed: misses at the horizon, geometric means, and an interval."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.sweeps.small_sweeps import made_record

from fedcompass.cli.paired_table import paired_shapes
from fedcompass.errors import SettingsError
from fedcompass.sweeps.paired import paired
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.results import Results
from fedcompass.sweeps.store import Store


def results(folder: Path, *records: Record) -> Results:
    store = Store(folder / "results.jsonl")
    for record in records:
        store.append(record)
    return Results.of_store(store)


def run(name: str, seed: int, time: float | None, uploads: int | None = None) -> Record:
    record = made_record(name, seed, time=time, horizon=100.0)
    return replace(record, outcome=replace(record.numbers, uploads_to_target=uploads))


def test_a_pair_has_one_seed_and_a_miss_counts_at_the_horizon(tmp_path: Path) -> None:
    found = results(
        tmp_path,
        run("fedavg", 0, 40.0),
        run("fedcompass", 0, 10.0),
        run("fedavg", 1, None),
        run("fedcompass", 1, 100.0),
        run("fedcompass", 2, 5.0),  # alone: no pair
    )
    (row,) = paired(found, "fedcompass")
    assert (row.label, row.cells, row.pairs) == ("fedavg", 1, 2)
    assert (row.reached, row.reference_reached) == (1, 2)
    assert (row.ahead, row.behind) == (0, 1)  # and a tie
    assert row.time.mean == pytest.approx(2.0)  # of 4 and 1
    assert row.time.low == pytest.approx(1.0)
    assert row.time.high == pytest.approx(4.0)
    assert row.uploads is None


def test_cells_count_alike_however_many_seeds_they_have(tmp_path: Path) -> None:
    many = [run(name, seed, 10.0) for name in ("fedavg", "fedcompass") for seed in range(9)]
    other: dict[str, Any] = {"fleet": {"clients": 10}, "horizon": 100.0}
    found = results(
        tmp_path,
        *many,
        made_record("fedavg", 0, time=40.0, **other),
        made_record("fedcompass", 0, time=10.0, **other),
    )
    (row,) = paired(found, "fedcompass")
    assert (row.cells, row.pairs) == (2, 10)
    assert row.time.mean == pytest.approx(2.0)


def test_the_interval_narrows_with_agreement_and_is_the_same_every_time(tmp_path: Path) -> None:
    times = [(20.0, 10.0), (21.0, 10.0), (19.0, 10.0), (20.0, 10.0)]
    records = [
        run(name, seed, time, uploads)
        for seed, pair in enumerate(times)
        for name, time, uploads in zip(("fedavg", "fedcompass"), pair, (30, 60), strict=True)
    ]
    found = results(tmp_path, *records)
    (row,) = paired(found, "fedcompass")
    assert 1.89 < row.time.low < row.time.mean < row.time.high < 2.11
    assert paired(found, "fedcompass") == [row]
    assert row.uploads is not None
    assert row.uploads.mean == pytest.approx(0.5)


def test_cells_that_share_seeds_do_not_narrow_the_interval_like_new_seeds(tmp_path: Path) -> None:
    ratios = {0: 1.0, 1: 4.0, 2: 2.0}  # the same in both cells: a seed's clients decide

    def of(clients: int) -> list[Record]:
        other: dict[str, Any] = {"fleet": {"clients": clients}, "horizon": 100.0}
        pairs = [("fedavg", seed, 10 * ratio) for seed, ratio in ratios.items()]
        pairs += [("fedcompass", seed, 10.0) for seed in ratios]
        return [made_record(name, seed, time=time, **other) for name, seed, time in pairs]

    (one,) = paired(results(tmp_path / "one", *of(5)), "fedcompass")
    (both,) = paired(results(tmp_path / "both", *of(5), *of(10)), "fedcompass")
    assert (one.cells, both.cells) == (1, 2)
    assert (both.time.low, both.time.high) == pytest.approx((one.time.low, one.time.high))


def test_a_seed_that_a_cell_lacks_is_drawn_for_the_others(tmp_path: Path) -> None:
    other: dict[str, Any] = {"fleet": {"clients": 10}, "horizon": 100.0}
    found = results(
        tmp_path,
        *(run("fedavg", seed, 20.0) for seed in range(4)),
        *(run("fedcompass", seed, 10.0) for seed in range(4)),
        made_record("fedavg", 0, time=20.0, **other),
        made_record("fedcompass", 0, time=10.0, **other),
    )
    (row,) = paired(found, "fedcompass")
    assert (row.time.low, row.time.mean, row.time.high) == pytest.approx((2.0, 2.0, 2.0))


def test_runs_of_different_horizons_are_not_paired(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.jsonl")
    store.append(made_record("fedavg", 0, horizon=50.0, target=0.5))
    store.append(made_record("fedcompass", 0, horizon=50.0, target=0.5))
    found = Results.of_store(store)
    longer = made_record("fedcompass", 0, horizon=80.0, target=0.5)
    mixed = Results(
        found.axes,
        [
            replace(r, record=longer) if r.labels["strategy.name"] == "fedcompass" else r
            for r in found.runs
        ],
    )
    with pytest.raises(SettingsError, match="one run's horizon is 50 s, its reference's 80 s"):
        paired(mixed, "fedcompass")


def test_an_unknown_reference_is_refused(tmp_path: Path) -> None:
    found = results(tmp_path, run("fedavg", 0, 1.0), run("fedbuff", 0, 1.0))
    with pytest.raises(
        SettingsError, match=r"--reference is 'x'; there are strategy\.name: 'fedavg', 'fedb"
    ):
        paired(found, "x")


def with_curve(record: Record, *points: tuple[float, float]) -> Record:
    return replace(
        record, curve=[(at, version, value) for version, (at, value) in enumerate(points)]
    )


def test_the_lead_is_in_the_best_values_when_the_sooner_of_both_is_at_the_target(
    tmp_path: Path,
) -> None:
    found = results(
        tmp_path,
        with_curve(run("fedavg", 0, 40.0), (10.0, 0.5), (20.0, 0.4), (40.0, 0.8)),
        with_curve(run("fedcompass", 0, 20.0), (10.0, 0.6), (20.0, 0.8), (30.0, 0.9)),
    )
    (row,) = paired(found, "fedcompass")
    assert row.lead == pytest.approx(0.5 - 0.8)  # by 20 s
    (shape,) = paired_shapes(found, "fedcompass", [])
    assert shape.rows[0][shape.header.index("lead")] == "-0.300"


def test_the_lead_at_a_given_time_counts_what_is_beyond_the_target_as_the_target(
    tmp_path: Path,
) -> None:
    found = results(  # with a target of 0.8
        tmp_path,
        with_curve(run("fedavg", 0, 40.0), (10.0, 0.5), (20.0, 0.4), (40.0, 0.8)),
        with_curve(run("fedcompass", 0, 20.0), (10.0, 0.6), (20.0, 0.9)),
    )
    leads = {}
    for at in (15.0, 30.0, 60.0):
        (row,) = paired(found, "fedcompass", at=at)
        leads[at] = row.lead
    assert leads == {15.0: pytest.approx(-0.1), 30.0: pytest.approx(-0.3), 60.0: 0.0}
    (shape,) = paired_shapes(found, "fedcompass", [], 15.0)
    assert "was by 15 s, at most the target" in " ".join(shape.meaning.split())


def test_there_is_no_lead_without_a_value(tmp_path: Path) -> None:
    found = results(
        tmp_path,
        with_curve(run("fedavg", 0, None), (200.0, 0.5)),  # after the horizon
        with_curve(run("fedcompass", 0, None), (10.0, 0.6)),
    )
    (row,) = paired(found, "fedcompass")
    assert row.lead is None


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    seeds = range(2)
    both = [run(*one) for seed in seeds for one in (("fedavg", seed, 4.0), ("fedcompass", seed, 2))]
    (one,) = paired(results(tmp_path, *both[:2]), "fedcompass")
    assert not one.time.is_known
    (two,) = paired(results(tmp_path, *both[2:]), "fedcompass")
    assert two.time.is_known


def test_results_are_narrowed_to_the_labels_that_fit(tmp_path: Path) -> None:
    found = results(tmp_path, *(run(name, 0, 1.0) for name in ("fedavg", "fedavgm", "fedcompass")))
    assert found.where("strategy.name", "fedavg*").axes["strategy.name"] == ["fedavg", "fedavgm"]
    with pytest.raises(
        SettingsError, match=r"strategy\.name is 'fed'; these results have: fedavg; "
    ):
        found.where("strategy.name", "fed")
    with pytest.raises(SettingsError, match="axis 'speed' is not in these results; they have: "):
        found.where("speed", "fast")


def test_the_table_says_what_its_columns_mean_and_can_be_split_by_an_axis(tmp_path: Path) -> None:
    records = [
        made_record(name, 0, time=time, horizon=100.0, fleet={"clients": clients})
        for clients, (avg, compass) in {5: (40.0, 10.0), 10: (10.0, 20.0)}.items()
        for name, time in (("fedavg", avg), ("fedcompass", compass))
    ]
    found = results(tmp_path, *records)
    (whole,) = paired_shapes(found, "fedcompass", [])
    assert whole.rows[0][:5] == ["fedavg", "2", "2", "2 : 2", "1.41x"]
    assert "fedcompass's" in whole.meaning
    itself = ["fedcompass", "2", "2", "2", "1", "-", "-", "-"]
    assert whole.rows[1][:8] == itself  # its waiting stands beside the others'
    by_clients = paired_shapes(found, "fedcompass", ["fleet.clients"])
    assert [(s.title, s.rows[0][4]) for s in by_clients] == [
        ("fleet.clients=5", "4.00x"),
        ("fleet.clients=10", "0.50x"),
    ]


def test_only_seeds_that_all_runs_have_are_compared_on_request(tmp_path: Path) -> None:
    found = results(
        tmp_path,
        *(run(name, seed, 10.0) for name in ("fedavg", "fedcompass") for seed in (0, 2)),
        run("fedcompass", 1, 5.0),  # the others were stopped before their end
    )
    whole = found.whole_seeds()
    assert {each.seed for each in whole.runs} == {0, 2}
    assert whole.axes == found.axes
    assert [row.pairs for row in paired(whole, "fedcompass")] == [2]


def test_where_no_seed_is_whole_one_line_says_so(tmp_path: Path) -> None:
    found = results(tmp_path, run("fedavg", 0, 10.0), run("fedcompass", 1, 5.0))
    with pytest.raises(SettingsError, match=r"no seed is whole: each lacks some of 4 runs; go on"):
        found.whole_seeds()
