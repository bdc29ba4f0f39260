"""Our numbers beside the paper's, from made-up stores."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.paper.stored_runs import line, write_store

from fedcompass.errors import SettingsError, StoreError
from fedcompass.paper import figures
from fedcompass.paper.by_groups import by_groups_grids
from fedcompass.paper.cells import Cell
from fedcompass.paper.comparing import (
    ComparedTable,
    Share,
    agreeing,
    agreeing_by_shorter,
    ahead,
    compared,
    orders_told,
    rank_correlation,
)
from fedcompass.paper.entries import entry_named
from fedcompass.paper.hyperparameters import settings_of
from fedcompass.paper.pages import write_report
from fedcompass.paper.rendering import (
    curve_grids,
    grids,
    mean_rounds_told,
    seed_grids,
    summary_lines,
    wins_grids,
)
from fedcompass.paper.stored_runs import StoredRuns, value_at

EXP = Cell("mnist-class", 5, "exp")
TABLE = entry_named("table-1")


@pytest.fixture
def results(tmp_path: Path) -> StoredRuns:
    """FedCompass at 100 s, FedAvg at 400, FedAsync once at 200 of three, FedBuff at 90."""
    times: dict[str, list[float | None]] = {
        "fedcompass": [90, 100, 110],
        "fedavg": [400, 400, 400],
        "fedbuff": [90, 90, 90],
        "fedasync": [None, None, 200],
    }
    records = [
        line(EXP, row, seed, time, 0.9 if time else 0.8)
        for row, by_seed in times.items()
        for seed, time in enumerate(by_seed)
    ]
    write_store(tmp_path / "mnist.jsonl", records)
    return StoredRuns.read(tmp_path)


@pytest.fixture
def comparison(results: StoredRuns) -> ComparedTable:
    return compared(results.of(TABLE))


def test_a_time_is_the_mean_of_those_that_reached_it_relative_to_the_reference(
    comparison: ComparedTable,
) -> None:
    fedavg = comparison.at(EXP, "fedavg")
    assert (fedavg.value, fedavg.reached, fedavg.seeds) == (4.0, 3, 3)
    assert fedavg.printed is not None
    assert fedavg.printed.mean == 4.32
    assert comparison.at(EXP, "fedcompass").value == 1.0


def test_fewer_than_half_is_a_dash_and_its_rank_counts_misses_at_the_longest_horizon(
    comparison: ComparedTable,
) -> None:
    fedasync = comparison.at(EXP, "fedasync")
    assert (fedasync.value, fedasync.reached) == (None, 1)
    longest = settings_of(EXP, "fedavg", 0)["horizon"]
    assert fedasync.score == pytest.approx((longest + longest + 200) / 3)


def test_an_order_agrees_differs_or_is_unknown(comparison: ComparedTable) -> None:
    assert comparison.at(EXP, "fedavg").agree == "yes"
    assert comparison.at(EXP, "fedasync").agree == "yes"
    assert comparison.at(EXP, "fedbuff").agree == "no"  # ours is ahead of FedCompass
    assert comparison.at(EXP, "fedat").agree == ""  # no runs
    assert comparison.at(EXP, "fedcompass").agree == ""  # the reference itself
    assert [item.row for item in comparison.disagreements()] == ["fedbuff"]


def test_nearly_equal_times_are_no_order(tmp_path: Path) -> None:
    records = [line(EXP, "fedcompass", 0, 100, 0.9), line(EXP, "fedavg", 0, 100.5, 0.9)]
    write_store(tmp_path / "a.jsonl", records)
    assert compared(StoredRuns.read(tmp_path).of(TABLE)).at(EXP, "fedavg").agree == "tie"


def test_where_nobody_reached_the_target_there_is_no_order(tmp_path: Path) -> None:
    records = [line(EXP, row, 0, None, 0.8) for row in ("fedcompass", "fedavg")]
    write_store(tmp_path / "a.jsonl", records)
    item = compared(StoredRuns.read(tmp_path).of(TABLE)).at(EXP, "fedavg")
    assert (item.our_order, item.agree) == (None, "")


def test_orders_are_made_of_the_seeds_both_have(tmp_path: Path) -> None:
    records = [
        line(EXP, "fedcompass", 0, 100, 0.9),
        line(EXP, "fedcompass", 1, 900, 0.9),
        line(EXP, "fedavg", 0, 200, 0.9),
    ]
    write_store(tmp_path / "a.jsonl", records)
    found = compared(StoredRuns.read(tmp_path).of(TABLE)).at(EXP, "fedavg")
    assert found.our_order == 1
    assert found.value == 2.0  # and so are relative times, while a table grows


def test_a_reference_that_missed_is_behind_a_slow_one_that_did_not(tmp_path: Path) -> None:
    """Asynchronous horizons are shorter: a miss must not look faster than a late success."""
    late = 0.9 * settings_of(EXP, "fedavg", 0)["horizon"]
    records = [line(EXP, "fedcompass", 0, None, 0.8), line(EXP, "fedavg", 0, late, 0.9)]
    write_store(tmp_path / "a.jsonl", records)
    assert compared(StoredRuns.read(tmp_path).of(TABLE)).at(EXP, "fedavg").our_order == -1


def test_by_the_shorter_horizon_a_late_success_counts_for_nothing(tmp_path: Path) -> None:
    shorter = settings_of(EXP, "fedcompass", 0)["horizon"]
    records = [
        line(EXP, "fedcompass", 0, None, 0.8),
        line(EXP, "fedcompass", 1, 100, 0.9),
        line(EXP, "fedavg", 0, 2 * shorter, 0.9),
        line(EXP, "fedavg", 1, 200, 0.9),
    ]
    write_store(tmp_path / "a.jsonl", records)
    found = compared(StoredRuns.read(tmp_path).of(TABLE)).at(EXP, "fedavg")
    assert (found.our_order, found.common_order) == (-1, 1)
    write_store(tmp_path / "a.jsonl", records[::2])
    undecided = compared(StoredRuns.read(tmp_path).of(TABLE)).at(EXP, "fedavg")
    assert (undecided.our_order, undecided.common_order) == (-1, None)


def test_wins_are_counted_by_speed_too(comparison: ComparedTable) -> None:
    fedavg = comparison.some(["fedavg"], "exp")
    assert ahead(item.paper_order for item in fedavg).of == 12
    assert ahead(item.our_order for item in fedavg).count == 1
    assert ahead(item.our_order for item in comparison.some(TABLE.rows, "homo")).of == 0


def test_wins_are_counted_beside_the_papers(comparison: ComparedTable) -> None:
    items = {row: comparison.some([row]) for row in TABLE.rows}
    wins = {row: ahead(item.our_order for item in found) for row, found in items.items()}
    assert (wins["fedavg"], wins["fedbuff"].count) == (Share(1, 1), 0)
    assert agreeing(items["fedbuff"]).count == 0
    assert ahead(item.paper_order for item in items["fedasync"]) == Share(36, 36)
    assert wins["fedat"].of == wins["fedcompass"].of == 0
    assert "fedcompass" not in {row[0] for row in next(wins_grids(comparison)).rows}


def test_accuracies_have_a_deviation_and_higher_is_ahead(tmp_path: Path) -> None:
    records = [line(EXP, "fedcompass", seed, 100, 0.95 + 0.01 * seed) for seed in range(2)]
    records += [line(EXP, "fedavg", seed, 100, 0.92) for seed in range(2)]
    write_store(tmp_path / "a.jsonl", records)
    found = compared(StoredRuns.read(tmp_path).of(entry_named("table-14")))
    compass = found.at(EXP, "fedcompass")
    assert compass.value == pytest.approx(95.5)
    assert compass.deviation == pytest.approx(0.7071, abs=1e-3)
    assert found.at(EXP, "fedavg").agree == "yes"
    assert found.at(EXP, "fedavg").our_order == 1


def test_top_accuracies_are_told_up_to_the_accuracy_horizon(tmp_path: Path) -> None:
    """A run that goes on longer, because it missed the target, has no advantage by that."""
    record = line(EXP, "fedcompass", 0, None, 0.89)
    least, most = record["experiment"]["run_at_least"], record["experiment"]["horizon"]
    record["curve"] = [[0.0, 0, 0.1], [least, 9, 0.85], [least + 3, 10, 0.87], [most, 20, 0.89]]
    write_store(tmp_path / "a.jsonl", [record])
    (run,) = StoredRuns.read(tmp_path).runs(EXP, "fedcompass")
    assert (run.top, run.run_at_least, run.horizon) == (0.85, least, most)


def test_a_miss_counts_at_the_cells_longest_horizon_wherever_runs_stopped(tmp_path: Path) -> None:
    missed = line(EXP, "fedcompass", 0, None, 0.8)
    stopped = line(EXP, "fedbuff", 0, 100, 0.95)
    stopped["outcome"]["virtual_seconds"] = stopped["experiment"]["run_at_least"]
    write_store(tmp_path / "a.jsonl", [missed, stopped])
    found = compared(StoredRuns.read(tmp_path).of(TABLE))
    assert found.at(EXP, "fedcompass").score == settings_of(EXP, "fedavg", 0)["horizon"]


def test_rank_correlation_is_spearmans_with_mean_ranks() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert rank_correlation([1, 2, 2, 4], [1, 2, 3, 4]) == pytest.approx(0.9487, abs=1e-4)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_a_column_is_correlated_from_three_rows_on(
    results: StoredRuns, comparison: ComparedTable
) -> None:
    assert comparison.correlation(EXP) == pytest.approx(0.6)
    two = compared(results.of(TABLE.only("fedavg,fedcompass")))
    assert two.correlation(EXP) is None


def test_a_table_says_how_partial_it_is_and_where_it_disagrees(comparison: ComparedTable) -> None:
    first, second = summary_lines(comparison)
    assert first == "partial: 0 of 36 cells have every row; seeds per row: 3 (paper: 10)"
    assert second == "order differs from the paper's in 1: mnist-class/m=5/exp fedbuff"
    (none,) = summary_lines(compared(StoredRuns({}).of(TABLE)))
    assert none == "no results yet (0 of 36 cells); run: fedcompass paper run table-1"


def test_only_blocks_with_results_are_shown_unless_there_is_none(comparison: ComparedTable) -> None:
    (grid,) = grids(comparison)
    assert grid.title == (
        "mnist-class, m=5: time to 90%, fedcompass = 1; within 25 mean rounds (exp: 15, 58 for "
        "fedavg)"
    )
    fedavg = next(row for row in grid.rows if row[0] == "fedavg")
    assert fedavg == ["fedavg", "1.35", "·  ", "2.82", "·  ", "4.32", "4.00 3/3 ="]
    assert len(list(grids(compared(StoredRuns({}).of(TABLE))))) == 12
    wins, reached = wins_grids(comparison)
    assert wins.title.startswith("mnist: cells in which fedcompass is ahead, ")
    assert wins.header[-4:] == ["all: paper", "as written", "shorter", "same order"]
    by_speed = ["5/6", "·", "·", "6/6", "·", "·", "6/6", "1/1", "1/1"]
    assert wins.rows[0] == ["fedavg", *by_speed, "17/18", "1/1", "1/1", "1/1"]
    assert reached.header == ["method", "homo", "normal", "exp", "all"]
    assert reached.rows[2] == ["fedasync", "·", "·", "1/3", "1/3"]


def test_a_heading_says_which_rows_were_run_for_longer(tmp_path: Path) -> None:
    rows = ("fedcompass", "fedavg", "fedavg@fleet", "fedbuff@fleet", "fedbuff@sign+fleet")
    habits = replace(entry_named("habits"), rows=rows)
    records = [line(EXP, row, 0, 60, 0.9) for row in rows]
    write_store(tmp_path / "mnist.jsonl", records)
    comparison = compared(StoredRuns.read(tmp_path).of(habits, [EXP]))
    others = "58 for fedavg, 80 for fedavg@fleet, fedbuff@fleet, fedbuff@sign+fleet"
    assert mean_rounds_told(comparison, [EXP]) == f"15 mean rounds ({others})"
    more = replace(habits, rows=(*rows, "fedasync@fleet"))
    write_store(tmp_path / "mnist.jsonl", [line(EXP, row, 0, 60, 0.9) for row in more.rows])
    comparison = compared(StoredRuns.read(tmp_path).of(more, [EXP]))
    others = "58 for fedavg, 80 for rows @fleet, @sign+fleet"
    assert mean_rounds_told(comparison, [EXP]) == f"15 mean rounds ({others})"


def test_an_order_of_a_row_that_misses_in_most_runs_is_one_by_misses(
    comparison: ComparedTable,
) -> None:
    rows = ["fedavg", "fedasync", "fedbuff"]
    assert [comparison.at(EXP, row).by_misses for row in rows] == [False, True, False]
    assert orders_told(comparison.some(rows, "exp")) == "2/3 (1)"
    assert orders_told(comparison.some(["fedavg"], "exp")) == "1/1"


def test_an_order_by_the_shorter_horizon_can_agree_where_the_other_does_not(tmp_path: Path) -> None:
    """FedAvg reaches the target in all runs, but long after FedCompass's runs were ended."""
    written = [
        ("fedcompass", 0, 100),
        ("fedcompass", 1, None),
        ("fedavg", 0, 700),
        ("fedavg", 1, 700),
    ]
    records = [line(EXP, row, seed, time, 0.9) for row, seed, time in written]
    write_store(tmp_path / "mnist.jsonl", records)
    fedavg = compared(StoredRuns.read(tmp_path).of(TABLE)).at(EXP, "fedavg")
    assert (fedavg.agree, fedavg.common_agree) == ("no", "yes")
    assert (agreeing([fedavg]), agreeing_by_shorter([fedavg])) == (Share(0, 1), Share(1, 1))


def test_a_figures_curves_are_told_in_numbers(results: StoredRuns) -> None:
    (grid,) = curve_grids(results.of(entry_named("figure-6"), [EXP]))
    assert grid.rows[0][:2] == ["fedavg", "3"]
    assert grid.rows[0][-1] == "90.00±0.00"
    assert grid.rows[-1][1:] == ["0", "·", "·", "·", "·"]
    assert value_at([(0.0, 0.1), (5.0, 0.5)], 4.9) == 0.1


def test_only_a_single_run_is_drawn_beyond_the_accuracy_horizon(
    results: StoredRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, *_: drawn.append(figure))
    for seeds in (1, None):
        figures.draw_curves(results.of(entry_named("figure-6"), seeds=seeds), tmp_path / "a.png")
    ends = [
        {line.get_label(): line.get_xdata()[-1] for line in axes.lines}
        for figure in drawn
        for axes in figure.axes
        if axes.get_visible()
    ]
    least, horizon = (settings_of(EXP, "fedasync", 0)[k] for k in ("run_at_least", "horizon"))
    assert [end["fedasync"] for end in ends] == [horizon, least]  # alone it missed, so to the end


def test_each_run_is_told_in_mean_rounds_or_by_its_best_accuracy(results: StoredRuns) -> None:
    (grid,) = seed_grids(results.of(TABLE))
    assert grid.header == ["method", "seed 0", "seed 1", "seed 2"]
    by_row = {row[0]: row[1:] for row in grid.rows}
    assert by_row["fedcompass"] == ["3.0", "3.3", "3.7"]  # 30 s are a mean round
    assert by_row["fedasync"] == ["(80.0)", "(80.0)", "6.7"]
    assert by_row["fedat"] == ["·", "·", "·"]
    (tops,) = seed_grids(results.of(entry_named("table-14"), [EXP], seeds=1))
    assert tops.header == ["method", "seed 0"]
    assert tops.rows[0] == ["fedavg", "90.00"]


def test_a_table_without_printed_numbers_has_no_column_for_them(tmp_path: Path) -> None:
    wider = entry_named("wider")
    cell = wider.cells[0]
    records = [line(cell, "1/Q=0.05", 0, 60, 0.9), line(cell, "fedavg", 0, 240, 0.9)]
    write_store(tmp_path / "mnist.jsonl", records)
    comparison = compared(StoredRuns.read(tmp_path).of(wider))
    (grid,) = grids(comparison)
    assert grid.header == ["method", "exp"]
    assert grid.rows[0] == ["fedavg", "4.00 1/1"]
    wins, _ = wins_grids(comparison)
    assert wins.header == ["of", "all", "shorter"]
    assert wins.rows[0] == ["fedavg", "1/1", "1/1"]


def test_runs_are_counted_by_the_arrival_groups_of_their_fleet(tmp_path: Path) -> None:
    entry = entry_named("table-19")
    exp, homo = Cell("mnist-class", 10, "exp", ablation=True), entry.cells[0]
    records = [
        line(exp, "1/Q=0.20", 1, None, 0.8),  # 18 times as slow as the fastest: two groups
        line(exp, "1/Q=0.05", 1, 60, 0.9),  # one
        line(exp, "1/Q=1.00", 1, None, 0.8),  # ten
        line(homo, "1/Q=0.20", 0, 60, 0.9),
        line(homo, "fedbuff", 0, 60, 0.9),  # has no groups
    ]
    write_store(tmp_path / "mnist.jsonl", records)
    results = StoredRuns.read(tmp_path)
    (grid,) = by_groups_grids(results.of(entry, [exp, homo]))
    assert grid.header == ["groups", "exp", "homo"]
    assert grid.rows == [
        ["1", "1/1", "1/1"],
        ["2", "0/1", ""],
        ["3", "", ""],
        ["4 or more", "0/1", ""],
        ["fastest alone", "0/2", ""],
        ["with others", "1/1", "1/1"],
    ]
    assert not list(by_groups_grids(results.of(TABLE)))
    assert not list(by_groups_grids(results.of(entry_named("table-20"), [exp])))


def test_seeds_beyond_a_limit_are_left_out(results: StoredRuns) -> None:
    assert compared(results.of(TABLE, seeds=2)).at(EXP, "fedasync").seeds == 2


def test_runs_with_other_settings_are_not_taken_for_the_papers(tmp_path: Path) -> None:
    other = line(EXP, "fedavg", 0, 100, 0.9)
    other["experiment"]["local"]["learning_rate"] = 0.01
    shorter = line(EXP, "fedavg", 2, 100, 0.9)
    shorter["experiment"]["run_at_least"] = 10.0
    known = line(EXP, "fedavg", 1, 100, 0.9)
    known["experiment"]["a_setting_of_tomorrow"] = 1
    write_store(tmp_path / "a.jsonl", [other, shorter, known])
    assert [run.seed for run in StoredRuns.read(tmp_path).runs(EXP, "fedavg")] == [1]


def test_a_longer_run_serves_a_table_with_shorter_horizons(tmp_path: Path) -> None:
    """As if it had been stopped there: what came later is not seen."""
    short, row = Cell("mnist-class", 5, "exp", ablation=True), "1/Q=0.20"
    settings = settings_of(short, row, 0)
    late = line(EXP, "fedcompass", 0, settings["horizon"] + 1, 0.95)
    soon = line(EXP, "fedcompass", 1, settings["horizon"] - 1, 0.95)
    write_store(tmp_path / "a.jsonl", [late, soon])
    first, second = StoredRuns.read(tmp_path).runs(short, row)
    assert (first.time, second.time) == (None, settings["horizon"] - 1)
    for run in (first, second):
        assert (run.run_at_least, run.horizon) == (settings["run_at_least"], settings["horizon"])
        assert run.top == 0.1
        assert max(at for at, _ in run.curve) <= run.horizon


def test_a_shorter_run_serves_a_longer_table_if_it_reached_the_target(tmp_path: Path) -> None:
    reached, missed = (line(EXP, "fedbuff", seed, t, 0.9) for seed, t in ((0, 60.0), (1, None)))
    for record in (reached, missed):
        record["experiment"]["horizon"] = 200.0
    write_store(tmp_path / "a.jsonl", [reached, missed])
    results = StoredRuns.read(tmp_path)
    assert [run.seed for run in results.runs(EXP, "fedbuff")] == [0]
    assert results.has(EXP, "fedbuff", 0)
    assert not results.has(EXP, "fedbuff", 1)
    again = line(EXP, "fedbuff", 1, 300.0, 0.9)
    write_store(tmp_path / "b.jsonl", [again])
    assert [run.time for run in StoredRuns.read(tmp_path).runs(EXP, "fedbuff")] == [60.0, 300.0]


def test_seeds_that_reached_the_target_do_not_stand_for_those_that_are_undecided(
    tmp_path: Path,
) -> None:
    """At a longer horizon a success is as good as before, a miss has to be run again."""
    records = [line(EXP, "fedbuff", seed, t, 0.9) for seed, t in ((0, None), (1, 60.0), (2, 70.0))]
    for record in records:
        record["experiment"]["horizon"] = 200.0
    write_store(tmp_path / "a.jsonl", records)
    results = StoredRuns.read(tmp_path)
    assert results.runs(EXP, "fedbuff") == []
    assert [results.has(EXP, "fedbuff", seed) for seed in range(3)] == [False, True, True]


def test_a_run_that_stopped_at_its_target_tells_no_later_accuracies(tmp_path: Path) -> None:
    record = line(EXP, "fedbuff", 0, 60.0, 0.9)
    record["experiment"] |= {"stop_at_target": True, "run_at_least": 0.0}
    write_store(tmp_path / "a.jsonl", [record])
    assert StoredRuns.read(tmp_path).runs(EXP, "fedbuff") == []


def test_horizons_are_those_of_all_rows_whether_they_were_run_or_not(tmp_path: Path) -> None:
    late = settings_of(EXP, "fedcompass", 0)["horizon"] + 1
    write_store(tmp_path / "a.jsonl", [line(EXP, "fedavg", 0, late, 0.9)])
    found = compared(StoredRuns.read(tmp_path).of(TABLE)).at(EXP, "fedavg")
    assert (found.reached, found.reached_soon) == (1, 0)


def test_a_lower_target_is_read_off_the_same_runs(tmp_path: Path) -> None:
    missed, reached = (
        line(EXP, row, 0, time, 0.95) for row, time in (("fedcompass", None), ("fedavg", 900.0))
    )
    missed["curve"] = [[0.0, 0, 0.1], [30.0, 4, 0.81], [60.0, 8, 0.78]]
    reached["curve"] = [[0.0, 0, 0.1], [600.0, 4, 0.8], [900.0, 8, 0.9]]
    write_store(tmp_path / "a.jsonl", [missed, reached])
    found = compared(StoredRuns.read(tmp_path).of(entry_named("table-1-at-80"))).at(EXP, "fedavg")
    assert (found.value, found.our_order) == (20.0, 1)
    (grid, *_) = grids(compared(StoredRuns.read(tmp_path).of(entry_named("table-1-at-80"))))
    assert "time to 80%" in grid.title


def test_failures_other_files_and_an_unfinished_line_are_passed_over(tmp_path: Path) -> None:
    failed = line(EXP, "fedavg", 0, 100, 0.9, outcome=None, error="out of memory")
    write_store(tmp_path / "a.jsonl", [failed, line(EXP, "fedavg", 1, 100, 0.9)])
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"key": "half a li')
    (tmp_path / "groups.jsonl").write_text('{"something": "else"}\n{"x": 1}\n')
    (tmp_path / "empty.jsonl").touch()
    results = StoredRuns.read(tmp_path)
    assert len(results) == 1
    assert results.has(EXP, "fedavg", 1)
    assert not results.has(EXP, "fedavg", 0)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"fedcompass_store": 1}) + "\nnot json\n")
    with pytest.raises(StoreError, match=r"a\.jsonl, line 2 is not a run's record"):
        StoredRuns.read(tmp_path)


def test_a_report_is_written_between_the_markers_and_nowhere_else(
    tmp_path: Path, results: StoredRuns
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- paper: table-1 -->\nold\n<!-- end -->\nafter\n")
    assert write_report(page, tmp_path) == {page: 1}
    text = page.read_text()
    assert text.startswith("before\n<!-- paper: table-1 -->\n\ntable-1: partial: 0 of 36 cells")
    assert "| fedavg | 1.35 | · | 2.82 | · | 4.32 | 4.00 3/3 = |" in text
    assert text.endswith("<!-- end -->\nafter\n")
    assert "old" not in text
    write_report(page, tmp_path)
    assert page.read_text() == text


def test_a_page_that_is_missing_or_names_nothing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.md cannot be read"):
        write_report(tmp_path / "none.md", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("<!-- paper: table-0 -->\n<!-- end -->\n")
    with pytest.raises(SettingsError, match="no entry 'table-0'"):
        write_report(page, tmp_path)


def test_a_table_finds_the_same_runs_when_records_that_cannot_be_its_own_are_passed_over() -> None:
    folder = Path(__file__).parents[2] / "results"
    everything, hurried = StoredRuns.read(folder), StoredRuns.read(folder, TABLE.cells)
    assert len(hurried) < len(everything) / 2  # the studies on MNIST are not read
    for cell in TABLE.cells:
        for row in TABLE.rows:
            found = hurried.runs(cell, row, to_target=True)
            assert found == everything.runs(cell, row, to_target=True)
