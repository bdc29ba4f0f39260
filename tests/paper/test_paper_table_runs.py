"""Running a table's cells into a store, stopping, and going on; with very short horizons."""

from pathlib import Path

import pytest

from fedcompass.paper import horizons
from fedcompass.paper.cells import Cell
from fedcompass.paper.comparing import compared
from fedcompass.paper.cost import expected_steps, tasks_in_a_row
from fedcompass.paper.entries import entry_named
from fedcompass.paper.entry import TableRun
from fedcompass.paper.stored_runs import StoredRuns
from fedcompass.paper.table_runs import longest_first, missing, run_entry

MINI = Cell("mini-class", 5, "homo")
SHORT = horizons.Rounds(horizons.Horizons(0.5, 1), horizons.Horizons(0.5, 1))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(horizons.ROUNDS, "mnist-mini", SHORT)
    monkeypatch.chdir(tmp_path)  # stopped runs wait in runs/


def plan(folder: Path, rows: str = "fedavg,fedcompass", seeds: int = 1) -> list[TableRun]:
    return missing(
        entry_named("table-1-mini").only(rows), [MINI], range(seeds), StoredRuns.read(folder)
    )


def test_what_is_planned_is_run_stored_and_not_run_again(tmp_path: Path) -> None:
    runs = plan(tmp_path)
    assert [(run.row, run.seed) for run in runs] == [("fedavg", 0), ("fedcompass", 0)]
    ended = list(run_entry(runs, tmp_path, executor="serial"))
    assert [(run.row, record.is_done) for run, record in ended] == [
        ("fedavg", True),
        ("fedcompass", True),
    ]
    assert plan(tmp_path) == []
    assert [run.row for run in plan(tmp_path, seeds=2)] == ["fedavg", "fedcompass"]
    results = StoredRuns.read(tmp_path)
    (stored,) = results.runs(MINI, "fedcompass", to_target=True)
    assert 0 < stored.local_steps <= 5 * 40
    assert results.runs(MINI, "fedcompass") == []  # it may have ended too early for an accuracy
    shown = compared(results.of(entry_named("table-1-mini")))
    assert shown.at(MINI, "fedavg").seeds == 1


def test_without_budget_left_nothing_is_run(tmp_path: Path) -> None:
    assert list(run_entry(plan(tmp_path), tmp_path, executor="serial", budget=0.0)) == []
    assert not (tmp_path / "mnist-mini.jsonl").exists()


def test_what_a_run_will_cost_is_told_from_its_fleet(tmp_path: Path) -> None:
    runs = plan(tmp_path)
    for run in runs:
        assert expected_steps(run) == pytest.approx((0.0, 200.0))  # it may end at its target


def test_a_runs_tasks_in_a_row_are_those_of_its_fastest_client_or_of_rounds() -> None:
    fast = Cell("mnist-class", 10, "exp")  # seed 0 has a client 50 times as fast as the mean
    of_row = {
        run.row: tasks_in_a_row(run)
        for run in entry_named("table-1").only("fedavg,fedasync,fedcompass").plan([fast], [0])
    }
    assert of_row["fedasync"] == of_row["fedcompass"] == pytest.approx(15 * 50)
    assert of_row["fedavg"] < 30


def test_side_by_side_the_run_with_most_tasks_in_a_row_begins_first(tmp_path: Path) -> None:
    cells = [Cell("mini-class", 5, speed) for speed in ("homo", "exp")]
    runs = entry_named("table-1-mini").only("fedcompass").plan(cells, [0])
    assert [run.cell.speed for run in longest_first(runs)] == ["exp", "homo"]
    ended = list(run_entry(runs, tmp_path, executor="stacked"))
    assert {run.cell for run, _ in ended} == set(cells)
