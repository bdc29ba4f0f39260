"""The finding of docs/as-run.md, counted from stored runs, and the pages it is written into."""

import re
import shutil
from pathlib import Path

import pytest
from tests.paper.stored_runs import line, write_store

from fedcompass.errors import SettingsError
from fedcompass.paper.cells import Cell
from fedcompass.paper.entries import entry_named
from fedcompass.paper.finding import Finding
from fedcompass.paper.hyperparameters import longest_run
from fedcompass.paper.pages import write_report
from fedcompass.paper.rendering import as_run_line
from fedcompass.paper.stored_runs import StoredRuns

ROOT = Path(__file__).parents[2]
PAGES = [
    page for page in sorted((ROOT / "docs").rglob("*.md")) if "<!-- paper: " in page.read_text()
]
EXP, NORMAL = Cell("mnist-class", 5, "exp"), Cell("mnist-class", 5, "normal")
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As written FedCompass misses under exp once of two, FedAvg never; as run both reach it."""
    written = [
        *(line(EXP, "fedcompass", seed, time, 0.91) for seed, time in enumerate((100, None))),
        *(line(EXP, "fedavg", seed, 700, 0.91) for seed in (0, 1)),
        *(line(NORMAL, row, 0, time, 0.91) for row, time in (("fedcompass", 90), ("fedavg", 180))),
    ]
    as_run = [
        *(line(EXP, "fedcompass@as-run", seed, time, 0.91) for seed, time in ((0, 100), (1, 900))),
        *(line(EXP, "fedavg@as-run", seed, 1500, 0.91) for seed in (0, 1)),
    ]
    write_store(tmp_path / "mnist.jsonl", written)
    write_store(tmp_path / "mnist-as-run.jsonl", as_run)
    return tmp_path


def test_the_finding_counts_the_runs_that_reach_the_target_in_the_same_time_too(
    folder: Path,
) -> None:
    lines = list(Finding(StoredRuns.read(folder)).lines())
    assert lines[0] == (
        "Exponential speeds, FedCompass: as written 1 of 2 runs reach 90%, as run 2 of 2; "
        "within 15 mean rounds 1 of 2 and 1 of 2."
    )


def test_the_finding_says_who_hardly_ever_reaches_the_target_though_the_paper_has_a_time(
    folder: Path,
) -> None:
    records = [
        line(EXP, f"fedat{profile}", seed, None, 0.8)
        for profile in ("", "@as-run")
        for seed in (0, 1)
    ]
    write_store(folder / "fedat.jsonl", records)
    finding = Finding(StoredRuns.read(folder))
    assert (
        "Exponential speeds, FedAT: as written 0 of 2 runs reach 90%, as run 0 of 2; within 15 "
        "mean rounds 0 of 2 and 0 of 2 (the paper: 2.08 to 4.32 times FedCompass's time)."
    ) in list(finding.lines())
    *_, orders, _ = finding.tables()
    by_row = {row[0]: row[1:4] for row in orders.rows}
    assert orders.header[1:4] == ["exp: as written", "shorter", "exp: as run"]
    assert by_row["fedat"] == ["1/1 (1)", "1/1", "1/1 (1)"]


def test_the_finding_says_how_long_runs_were_and_counts_orders_by_the_shorter_time(
    folder: Path,
) -> None:
    text = "\n".join(Finding(StoredRuns.read(folder)).lines())
    assert (
        "how long a run goes on that misses: as written 15 mean rounds, 58 for fedavg; as run 80 "
        "mean rounds." in text
    )
    assert "0 of 1 as written (by the shorter horizon 1 of 1), 1 of 1 as run." in text


def test_the_finding_counts_leads_and_orders_by_speed(folder: Path) -> None:
    text = "\n".join(Finding(StoredRuns.read(folder)).lines())
    assert (
        "Exponential speeds, FedCompass against FedAvg, FedAsync and FedBuff: ahead in 18 of 18 "
        "cases in the paper, 0 of 1 as written, 1 of 1 as run" in text
    )
    assert "18 of 18 cases in the paper, 1 of 1 as written, none yet as run" in text


def test_the_finding_has_the_paper_both_versions_and_no_habits_without_runs(folder: Path) -> None:
    exponential, normal, orders, habits = Finding(StoredRuns.read(folder)).tables()
    assert [row[:3] for row in exponential.rows[:3]] == [
        ["fedavg", "paper", "4.32"],
        ["", "as written", "7.00 2/2"],
        ["", "as run", "3.00 2/2"],
    ]
    assert normal.rows[1][2] == "2.00 1/1"
    assert orders.rows[0][:4] == ["fedavg", "0/1", "1/1", "1/1"]
    assert [row[0] for row in habits.rows] == ["as written", "as-run"]


@pytest.mark.parametrize("kind", ["times", "signs"])
def test_its_figures_are_drawn_and_need_runs(kind: str, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from fedcompass.paper import finding_figures

    draw = getattr(finding_figures, f"draw_{kind}")
    draw(StoredRuns.read(folder), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
    with pytest.raises(SettingsError, match=f"figure-{kind} has no results yet; run: fedcompass"):
        draw(StoredRuns({}), tmp_path / "none.png")


def test_both_signs_are_counted_within_the_horizon_of_the_runs_as_written(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    from fedcompass.paper.finding_figures import reached_within

    horizon = longest_run(EXP, "fedcompass")
    runs = StoredRuns.read(folder).runs(EXP, "fedcompass@as-run", to_target=True)
    assert [run.time for run in runs] == [100, 900]  # of 15 mean rounds of 30 s
    assert str(reached_within(runs, horizon)) == "1/2"


def test_where_nothing_was_run_as_run_one_line_says_so() -> None:
    accuracies, times = entry_named("table-14"), entry_named("table-1")
    assert as_run_line(accuracies, None, accuracies.cells) == (
        "as run: no such runs yet; make them with: fedcompass paper run table-14 --profile as-run"
    )
    assert as_run_line(entry_named("habits"), None, times.cells) == ""


def test_the_pages_say_what_the_results_give(tmp_path: Path) -> None:
    """After new runs: fedcompass paper report."""
    copies = {page: tmp_path / f"{number}.md" for number, page in enumerate(PAGES)}
    for page, copy in copies.items():
        shutil.copy(page, copy)
    assert len(write_report(tmp_path, ROOT / "results")) == len(PAGES)
    old = [page.name for page, copy in copies.items() if copy.read_text() != page.read_text()]
    assert old == []


def test_the_finding_is_one_page_and_the_tables_are_apart() -> None:
    assert len((ROOT / "docs" / "reproduction.md").read_text().split()) < 1200
    assert {page.parent.name for page in PAGES} == {"docs", "reproduction", "tables"}


def test_links_between_the_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    dead = [
        f"{page.name}: {target}"
        for page in pages
        for target, _ in LINK.findall(page.read_text())
        if not (page.parent / target).exists()
    ]
    assert dead == []
