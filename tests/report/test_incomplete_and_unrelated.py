"""Reports of runs that are cut short, never began, are repeated or have nothing in common."""

import json
import shutil
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.report.conftest import report_of, scheduled
from tests.simulation.tiny_runs import experiment, problem

from fedcompass.errors import JournalError
from fedcompass.simulation.run import simulate

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from fedcompass.cli import app

Open = Callable[..., Page]


def reported(*folders: Path, to: Path) -> tuple[str, str]:
    """What the command prints, and what it says besides."""
    out, notes = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(notes):
        app(["report", *map(str, folders), "-o", str(to)], standalone_mode=False)
    return out.getvalue(), notes.getvalue()


def facts_of(page: Path) -> Any:
    text = page.read_text().split('id="facts">')[1].split("</script>")[0]
    return json.loads(text)


@pytest.fixture
def run(eventful_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(eventful_run, tmp_path / "run"))


def cut_after(folder: Path, lines: int, *, torn: bool = False) -> None:
    path = folder / "journal.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)[:lines]
    path.write_bytes(b"".join(kept)[: -9 if torn else None])


def without_size(folder: Path) -> None:
    """A summary as earlier versions wrote it."""
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    del summary["journal_bytes"]
    path.write_text(json.dumps(summary))


def test_a_journal_cut_at_any_line_is_said_to_be_and_the_run_is_not_called_finished(
    run: Path, tmp_path: Path
) -> None:
    lines = len((run / "journal.jsonl").read_bytes().splitlines())
    for kept in (lines - 1, lines // 2):
        cut_after(run, kept)
        out, notes = reported(run, to=tmp_path / "report.html")
        assert out == f"report: {tmp_path / 'report.html'}\n"
        assert notes.startswith(f"note: {run}: its journal is cut short: it has ")
        (facts,) = facts_of(tmp_path / "report.html")["runs"]
        assert facts["finished"] is False


def test_a_journal_cut_in_a_folder_of_an_earlier_version_is_found_by_what_it_lacks(
    run: Path, tmp_path: Path
) -> None:
    merges = json.loads((run / "summary.json").read_text())["global_updates"]
    without_size(run)
    assert reported(run, to=tmp_path / "report.html")[1] == ""
    cut_after(run, 60)
    notes = reported(run, to=tmp_path / "report.html")[1]
    assert f"of {merges} global updates; the page shows the run up to there" in notes


def test_a_line_cut_off_is_said_of_a_run_without_a_summary_too(tmp_path: Path) -> None:
    folder = scheduled(tmp_path / "run", clients=2, until=3.0)
    cut_after(folder, 10, torn=True)
    assert "it ends in the middle of a line" in reported(folder, to=tmp_path / "r.html")[1]
    assert facts_of(tmp_path / "r.html")["runs"][0]["finished"] is False


def test_the_page_says_that_a_journal_is_cut_and_counts_no_time_after_it(
    run: Path, tmp_path: Path, open_page: Open
) -> None:
    cut_after(run, 60)
    page = open_page(report_of(run, to=tmp_path / "report.html"))
    expect(page.locator("#status")).to_have_text("not finished")
    expect(page.locator("#notice")).to_contain_text("run: its journal is cut short: it has ")
    assert page.evaluate("fedcompass.state.runs[0].end === fedcompass.state.runs[0].now")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two strategies with two seeds each on one fleet, and another fleet's run."""
    root = tmp_path_factory.mktemp("many") / "runs"
    for name in ("fedavg", "fedcompass"):
        for seed in (0, 1):
            folder = root / f"{name}-{seed}"
            simulate(experiment(name, seed=seed), problem=problem(), folder=folder)
    other = experiment("fedavg", fleet={"paces": [0.1, 0.2]})
    simulate(other, problem=problem(2), folder=root / "two-clients")
    return root


def never_began(runs: Path, name: str, journal: bytes | None) -> Path:
    folder = runs / name
    folder.mkdir()
    shutil.copy(runs / "fedavg-0" / "experiment.toml", folder)
    if journal is not None:
        (folder / "journal.jsonl").write_bytes(journal)
    return folder


@pytest.mark.parametrize(
    "journal",
    [None, b"", b'{"journal":1', b'{"journal":1}\n'],
    ids=["no", "empty", "cut", "header"],
)
def test_a_run_killed_before_its_first_event_is_left_out_by_name(
    runs: Path, tmp_path: Path, journal: bytes | None
) -> None:
    root = Path(shutil.copytree(runs, tmp_path / "runs"))
    never_began(root, "killed", journal)
    out, notes = reported(root, to=tmp_path / "report.html")
    assert out
    assert "note: killed is left out: nothing has happened in it\n" in notes
    assert facts_of(tmp_path / "report.html")["left_out"] == [
        ["killed", "nothing has happened in it"]
    ]


def test_a_damaged_run_among_others_is_left_out_by_name_and_alone_it_is_refused(
    runs: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(runs, tmp_path / "runs"))
    path = root / "fedavg-1" / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:5], *lines[6:]]))
    notes = reported(root, to=tmp_path / "report.html")[1]
    assert "note: fedavg-1 is left out: " in notes
    assert "line 6 is damaged" in notes
    with pytest.raises(JournalError, match="line 6 is damaged"):
        report_of(root / "fedavg-1", to=tmp_path / "report.html")


def test_a_repeated_run_counts_once(runs: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(runs, tmp_path / "runs"))
    shutil.copytree(root / "fedavg-0", root / "again")
    (root / "again" / "summary.json").unlink()  # the finished one is kept, whatever their order
    notes = reported(root, to=tmp_path / "report.html")[1]
    assert "note: again is left out: it is the same run as fedavg-0\n" in notes
    names = [facts["name"] for facts in facts_of(tmp_path / "report.html")["runs"]]
    assert names == ["fedavg-0", "fedavg-1", "fedcompass-0", "fedcompass-1", "two-clients"]


def test_only_what_is_comparable_is_compared(runs: Path, tmp_path: Path, open_page: Open) -> None:
    notes = reported(runs, to=tmp_path / "report.html")[1]
    assert notes.startswith("note: 5 runs in 2 groups that are not compared with each other: ")
    assert "4 clients of given paces (4); " in notes
    page = open_page(tmp_path / "report.html", width=390)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(page.locator("#title")).to_have_text("2 strategies on own problem")
    expect(page.locator("#notice")).to_contain_text("1 run of other data, fleets or targets cannot")
    labels = "fedcompass.state.groups.map((group) => [group.label, group.runs.length])"
    assert page.evaluate(labels) == [["fedavg", 2], ["fedcompass", 2]]
    page.get_by_label("Runs on").select_option("1")
    page.wait_for_function("fedcompass.settled()")
    assert page.evaluate(labels) == [["fedavg", 1]]
    expect(page.locator("#title")).to_have_text("fedavg on own problem")
    expect(page.locator("#summary")).to_contain_text("2 clients train one model")
    assert page.evaluate("fedcompass.state.view.timelines.length") == 1


def test_runs_that_differ_in_strategy_training_and_seed_only_are_one_comparison(
    runs: Path, tmp_path: Path
) -> None:
    fitted = experiment("fedavg", local={"learning_rate": 0.02})
    simulate(fitted, problem=problem(), folder=tmp_path / "slower")
    folders = [runs / "fedavg-0", runs / "fedcompass-1", tmp_path / "slower"]
    assert reported(*folders, to=tmp_path / "report.html")[1] == ""
