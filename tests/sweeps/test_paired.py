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
    assert 1.9 < row.time.low < row.time.mean < row.time.high < 2.1
    assert paired(found, "fedcompass") == [row]
    assert row.uploads is not None
    assert row.uploads.mean == pytest.approx(0.5)


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
    with pytest.raises(SettingsError, match=r"--reference is 'x'; there are strategy\.name: "):
        paired(found, "x")


def test_the_table_says_what_its_columns_mean_and_can_be_split_by_an_axis(tmp_path: Path) -> None:
    records = [
        made_record(name, 0, time=time, horizon=100.0, fleet={"clients": clients})
        for clients, (avg, compass) in {5: (40.0, 10.0), 10: (10.0, 20.0)}.items()
        for name, time in (("fedavg", avg), ("fedcompass", compass))
    ]
    found = results(tmp_path, *records)
    (whole,) = paired_shapes(found, "fedcompass", [])
    assert whole.rows[0][:5] == ["fedavg", "2", "2", "2 : 2", "1.41x [1.41, 1.41]"]
    assert "fedcompass's" in whole.meaning
    by_clients = paired_shapes(found, "fedcompass", ["fleet.clients"])
    assert [(s.title, s.rows[0][4]) for s in by_clients] == [
        ("fleet.clients=5", "4.00x [4.00, 4.00]"),
        ("fleet.clients=10", "0.50x [0.50, 0.50]"),
    ]
