"""The `fedcompass paper` commands, as a user sees them."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from click.testing import Result
from tests.paper.stored_runs import line, write_store

from fedcompass.errors import SettingsError
from fedcompass.paper import horizons
from fedcompass.paper.cells import Cell
from fedcompass.paper.groups import groups_of, write_study

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from typer.testing import CliRunner

    from fedcompass.cli.app import app

EXP = Cell("mnist-class", 5, "exp")
SHOWN = """\
mnist-class, m=5: time to 90%, fedcompass = 1; within 15 mean rounds (58 for fedavg)
method            exp: paper  as written
fedavg                  4.32  4.00 2/2 =
fedavgm                 4.23         ·
fedasync                2.35     - 0/2 =
fedbuff                 1.81         ·
fedat                   3.07         ·
fedcompass              1.00  1.00 2/2
fedcompass+m            0.81         ·
fedcompass+n            0.94         ·
rank correlation                    0.50
"""
SOME_ROWS = """\
method            exp: paper  as written
fedavg                  4.32  4.00 2/2 =
fedasync                2.35     - 0/2 =
rank correlation
"""


RESULTS = Path(__file__).parents[1] / "results"


def paper(*arguments: str) -> Result:
    return CliRunner(mix_stderr=False).invoke(app, ["paper", *arguments], catch_exceptions=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    times = {"fedcompass": 100.0, "fedavg": 400.0, "fedasync": None}
    records = [line(EXP, row, seed, time, 0.91) for row, time in times.items() for seed in (0, 1)]
    write_store(tmp_path / "results" / "mnist.jsonl", records)
    return tmp_path / "results"


def test_medical_seeds_begin_at_1_since_targets_were_chosen_with_0() -> None:
    shown = paper(
        "run", "medical-isic", "--dry-run", "--seeds", "2", "--results", str(RESULTS)
    ).output
    assert "14 of 14 runs are in" in shown


def test_list_names_every_table_and_figure() -> None:
    lines = paper("list").output.splitlines()
    assert lines[0].split() == ["name", "kind", "cells", "rows", "label", "title"]
    names = [text.split()[0] for text in lines[1:]]
    assert {"table-1", "table-22", "figure-1", "figure-22", "figure-groups"} <= set(names)
    assert len(names) == len(set(names)) == 61
    assert "mnist-class/m=5/exp" in paper("list", "--cells").output


def test_show_prints_paper_ours_and_whether_they_agree(folder: Path) -> None:
    output = paper("show", "table-1", "--results", str(folder), "--cells", str(EXP)).output
    assert SHOWN in output
    assert "partial: 0 of 1 cells shown have every row; seeds per row: 2 (paper: 10)" in output


AS_RUN = """\
within 15 mean rounds (58 for fedavg), as run 80 mean rounds
method            exp: paper  as written      as run
fedavg                  4.32  4.00 2/2 =  5.00 1/1 =
fedavgm                 4.23         ·           ·
fedasync                2.35     - 0/2 =  0.50 1/1 ≠
"""


def test_show_puts_the_paper_beside_its_formulas_and_its_authors_code(folder: Path) -> None:
    times = {"fedcompass": 100.0, "fedavg": 500.0, "fedasync": 50.0}
    records = [line(EXP, f"{row}@as-run", 0, time, 0.91) for row, time in times.items()]
    write_store(folder / "mnist-as-run.jsonl", records)
    shown = ("show", "table-1", "--results", str(folder), "--cells", str(EXP))
    output = paper(*shown).output
    assert AS_RUN in output
    assert "as run, partial: 0 of 1 cells shown have every row" in output
    assert "orders relative to fedcompass that are the paper's" in output
    counted = [text.split() for text in output.splitlines() if text.startswith("all  ")]
    own_time, same_time = ["all", "4/6", "3/3"], ["all", "4/6", "2/3"]
    assert counted == [["all", "2/2", "(1)", "1/2"], own_time, same_time]
    assert output.count("runs that reached the target by the shortest horizon") == 1
    alone = paper(*shown, "--profile", "as-run").output
    assert "fedavg@as-run              4.32  5.00 1/1 =" in alone
    assert "exp: paper      as run" in alone
    some = paper(*shown, "--rows", "fedasync", "--profile", "as-run").output
    assert "fedasync@as-run" in some
    assert "fedavg@as-run" not in some.partition("rank correlation")[2]


def test_show_prints_some_rows_with_the_numbers_they_have_among_all(folder: Path) -> None:
    shown = ("--results", str(folder), "--cells", str(EXP), "--rows", "fedasync,fedavg")
    assert SOME_ROWS in paper("show", "table-1", *shown).output
    assert "fedavgm" not in paper("show", "figure-6", "--rows", "fedavg").output
    with pytest.raises(SettingsError, match="table-1 has no row 'fedprox'"):
        paper("show", "table-1", "--rows", "fedprox")
    with pytest.raises(SettingsError, match="--rows is for entries of kind table or curves; find"):
        paper("show", "finding", "--rows", "fedavg")


def test_show_explains_its_signs_and_folds_long_lines(folder: Path) -> None:
    output = paper("show", "table-1", "--results", str(folder)).output
    assert "rank correlation: of the paper's column and ours" in output.replace("\n", " ")
    lines = paper("show", "table-1", "--results", str(RESULTS)).output.splitlines()
    assert max(len(text) for text in lines if "  " not in text) <= 120
    habits = paper("show", "habits", "--results", str(RESULTS), "--cells", str(EXP)).output
    assert "ours: as written, but for what a row names after its @" in habits
    assert "agree?" not in habits


def test_another_profile_is_one_line() -> None:
    with pytest.raises(SettingsError, match="--profile is 'as-told'; allowed: as-written "):
        paper("show", "table-1", "--profile", "as-told")
    with pytest.raises(SettingsError, match="habits has no profile as-run; it is for tables"):
        paper("run", "habits", "--profile", "as-run")


def test_show_by_seed_tells_what_each_run_came_to(folder: Path) -> None:
    arguments = ("--by-seed", "--results", str(folder))
    output = paper("show", "table-1", *arguments).output
    assert f"{EXP}: mean rounds to 90%; (88.7): missed, and its best accuracy" in output
    assert "no results yet; run: fedcompass paper run table-22" in (
        paper("show", "table-22", *arguments).output
    )
    with pytest.raises(
        SettingsError, match="for entries of kind table; figure-6 is of kind curves"
    ):
        paper("show", "figure-6", *arguments)


def test_show_needs_neither_torch_nor_a_gpu(folder: Path) -> None:
    code = (
        "import sys; from fedcompass.cli.app import app; sys.argv = ['fedcompass', 'paper', "
        f"'show', 'table-1', '--results', {str(folder)!r}]\n"
        "try: app()\nfinally: print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr.splitlines()[-1] == "False"
    assert "1.00 2/2" in done.stdout


def test_show_of_other_kinds(folder: Path) -> None:
    assert "12:00  client 3 trains  40 steps (group 2)" in paper("show", "figure-1").output
    assert "15:12  client 3 trains  46 steps (group 3)" in paper("show", "figure-22").output
    assert "(200, 200, 100)" in paper("show", "tab:mnist_hyperparameter").output
    assert "try: fedcompass paper plot figure-3" in paper("show", "figure-3").output
    curves = paper("show", "figure-6", "--results", str(folder)).output
    assert "mnist-class/m=5/exp: accuracy in percent" in curves
    write_study(
        [groups_of(0, 5, noise, rounds=12) for noise in (0.0, 0.05)], folder / "groups.jsonl"
    )
    assert (
        "more groups than the bound"
        in paper("show", "figure-groups", "--results", str(folder)).output
    )


def test_run_dry_says_what_is_missing_and_what_it_costs(folder: Path) -> None:
    arguments = ("run", "table-1", "--cells", str(EXP), "--seeds", "2", "--dry-run")
    output = paper(*arguments, "--results", str(folder)).output
    assert f"table-1: 6 of 16 runs are in {folder}/" in output
    heading, *_, total = output.splitlines()[1:]
    assert heading.split("  ")[-1] == "local steps, at most"  # a run of times ends at its target
    name, runs, most = total.split()
    assert (name, runs) == ("all", "10")
    assert float(most.replace(",", "")) > 0
    tops = paper("run", "table-14", *arguments[2:], "--results", str(folder)).output
    assert "local steps, at least  " in tops


def test_run_show_and_plot_one_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = horizons.Horizons(0.5, 1)
    monkeypatch.setitem(horizons.ROUNDS, "mnist-mini", horizons.Rounds(short, short))
    monkeypatch.chdir(tmp_path)
    arguments = ("run", "table-1-mini", "--cells", "mini-class/m=5/homo", "--seeds", "1",
                 "--rows", "fedbuff,fedcompass", "--executor", "serial")  # fmt: skip
    first = paper(*arguments)
    assert first.exit_code == 0
    assert "[2/2] mini-class/m=5/homo fedcompass seed 0: " in first.output
    assert "80%" in first.output.partition("seed 0: ")[2].partition(", top")[0]
    assert "all runs are there; see: fedcompass paper show table-1-mini" in first.output
    assert first.output.splitlines()[-1] == "stored in results/mnist-mini.jsonl"
    assert "table-1-mini: 2 of 2 runs are in results/" in paper(*arguments).output
    shown = paper("show", "table-1-mini").output
    assert "partial: 0 of 8 cells" in shown


def test_run_ends_with_the_sentences_of_the_finding_that_its_runs_are_counted_in(
    folder: Path,
) -> None:
    records = [line(EXP, "fedcompass@as-run", seed, 100, 0.91) for seed in (0, 1)]
    write_store(folder / "mnist-as-run.jsonl", records)
    arguments = ("--rows", "fedcompass", "--cells", str(EXP), "--seeds", "2")
    output = paper("run", "table-1", *arguments, "--results", str(folder)).output
    assert (
        "- Exponential speeds, FedCompass: as written 2 of 2 runs reach 90%, as run 2 of 2"
        in output
    )
    assert "FedAsync" not in output  # no row of these runs
    assert "stored in" not in output  # there was nothing to run


@pytest.mark.parametrize("figure", ["figure-1", "figure-5", "figure-6", "figure-21"])
def test_plot_draws_a_figure(figure: str, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"{figure}.png"
    result = paper("plot", figure, "--results", str(folder), "-o", str(path))
    assert result.exit_code == 0
    assert path.stat().st_size > 5000


def test_report_writes_a_page(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- paper: table-1 -->\n<!-- end -->\n")
    output = paper("report", str(page), "--results", str(folder)).output
    assert output == f"{page}: 1 sections written\n"
    assert "| fedavg | 1.35 |" in page.read_text()


def test_a_figure_without_runs_needs_none() -> None:
    assert "needs no runs" in paper("run", "figure-5").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "table-99"), "no entry 'table-99'"),
        (("show", "table-1", "--cells", "moon"), "--cells is 'moon'; the cells are: mnist-class"),
        (("plot", "table-1"), "table-1 is a table; try: fedcompass paper show table-1"),
        (("plot", "figure-6"), "figure-6 has no results yet; run: fedcompass paper run figure-6"),
        (
            ("run", "table-1-mini", "--budget", "soon"),
            "--budget is 'soon'; allowed: such as 9m",
        ),
        (("run", "table-1-mini", "--executor", "me"), "executor is 'me'; allowed: serial, proc"),
        (("run", "table-1", "--rows", "fedprox"), "table-1 has no row 'fedprox'"),
    ],
)
def test_a_wrong_argument_is_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError) as caught:
        paper(*arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
