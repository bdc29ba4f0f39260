"""Tables of a sweep's results: the rules of the paper's tables, partial cells named as such."""

from pathlib import Path

import pytest
from tests.sweeps.small_sweeps import made_record, small_sweep

from fedcompass.errors import SettingsError
from fedcompass.sweeps.comparison import Comparison
from fedcompass.sweeps.formats import TextTable, csv_table, latex_table, markdown_table
from fedcompass.sweeps.results import Results
from fedcompass.sweeps.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results.jsonl")


def test_cells_follow_the_rules_of_the_comparison(store: Store) -> None:
    for seed, (avg, compass) in enumerate([(20.0, 10.0), (30.0, 10.0), (None, 12.0)]):
        store.append(made_record("fedavg", seed, time=avg))
        store.append(made_record("fedcompass", seed, time=compass))
    comparison = Comparison(Results.of_store(store))
    assert (comparison.axis, comparison.reference) == ("strategy.name", "fedcompass")
    avg_cell, compass_cell = comparison.points()
    assert avg_cell.row is not None
    assert (avg_cell.row.reached, avg_cell.row.seeds, avg_cell.row.time) == (2, 3, 25.0)
    assert avg_cell.row.relative == pytest.approx(25 / (32 / 3))
    assert (avg_cell.wins, compass_cell.wins) == (0, 3)
    assert not avg_cell.is_partial


def test_wins_are_counted_over_seeds_that_all_have_done(store: Store) -> None:
    store.append(made_record("fedavg", 0, time=10.0))
    store.append(made_record("fedcompass", 0, time=20.0))
    store.append(made_record("fedcompass", 1, time=20.0))  # alone, it would win
    cells = Comparison(Results.of_store(store)).points()
    assert [(cell.done, cell.planned, cell.wins) for cell in cells] == [(1, 2, 1), (2, 2, 0)]
    assert [cell.is_partial for cell in cells] == [True, False]


def test_a_plan_shows_what_is_missing_and_what_failed(store: Store) -> None:
    plan = small_sweep().plan()
    key = plan[0].experiment.key()
    store.append(made_record(error="no data"))
    results = Results.of_plan(plan, store)
    assert [run.is_done for run in results.runs] == [False] * 4
    assert results.axes == {"strategy.name": ["fedavg", "fedcompass"]}
    assert store.finished(key) is None
    cells = Comparison(results).points()
    assert [(cell.row, cell.done, cell.planned) for cell in cells] == [(None, 0, 2)] * 2


def test_a_stores_axes_are_the_settings_that_tell_its_runs_apart(store: Store) -> None:
    for clients in (5, 20):  # which decide the steps of the paper's settings
        for name in ("fedavg", "fedcompass"):
            store.append(made_record(name, fleet={"clients": clients}))
    store.append(
        made_record("fedcompass", fleet={"clients": 5}, strategy={"staleness": {"alpha": 0.5}})
    )
    results = Results.of_store(store)
    assert list(results.axes) == ["fleet.clients", "strategy.name", "strategy.staleness.alpha"]
    assert results.axes["fleet.clients"] == ["5", "20"]


def test_any_axis_can_be_compared_along(store: Store) -> None:
    for latest, time in ((1.1, 30.0), (1.2, 20.0)):
        store.append(made_record("fedcompass", time=time, strategy={"latest": latest}))
    comparison = Comparison(Results.of_store(store), "strategy.latest=1.2")
    relative = [cell.row.relative for cell in comparison.points() if cell.row is not None]
    assert relative == [1.5, 1.0]
    assert Comparison(Results.of_store(store), "1.1").axis == "strategy.latest"
    with pytest.raises(SettingsError, match=r"--reference is 'a=b'; there are strategy\.latest"):
        Comparison(Results.of_store(store), "a=b")


def test_without_its_reference_there_are_no_relative_times(store: Store) -> None:
    store.append(made_record("fedavg"))
    store.append(made_record("fedbuff"))
    rows = [cell.row for cell in Comparison(Results.of_store(store)).points()]
    assert [row.relative for row in rows if row is not None] == [None, None]


def test_an_empty_store_is_an_empty_table(store: Store) -> None:
    assert Comparison(Results.of_store(store)).points() == []


def test_labels_cannot_break_out_of_their_cells() -> None:
    table = TextTable("a*b*", ["a|b", "50%"], [["x_y & {z}\n^~\\", "<b>$1 ± 2"]])
    assert markdown_table(table) == (
        "**a\\*b\\***\n\n"
        "| a\\|b | 50% |\n"
        "| :-- | --: |\n"
        "| x\\_y & \\{z\\} ^\\~\\\\ | \\<b\\>\\$1 ± 2 |"
    )
    assert latex_table(table).splitlines()[3:6] == [
        r"a\textbar{}b & 50\% \\",
        r"\midrule",
        r"x\_y \& \{z\} \textasciicircum{}\textasciitilde{}\textbackslash{} & "
        r"\textless{}b\textgreater{}\$1 $\pm$ 2 \\",
    ]
    assert (
        csv_table(TextTable("", ["a,b", "c"], [['say "x"', "1\n2"]]))
        == '"a,b",c\n"say ""x""","1\n2"'
    )
