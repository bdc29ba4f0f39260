"""The report as a file, and the command that writes it."""

import re
import sys
import warnings
from pathlib import Path

import pytest
from tests.report.conftest import report_of, scheduled
from tests.scheduling.test_paper_figures import run as paper_schedule

from fedcompass.errors import RunFolderError
from fedcompass.report import written
from fedcompass.report.page import page
from fedcompass.runs.replay import replay
from fedcompass.simulation.timetable import row

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from typer.testing import CliRunner

    from fedcompass.cli import app, main

PAPER = ["--paces", "0.1,0.2,0.25,0.4,0.5", "--min-steps", "20", "--max-steps", "100"]


def test_the_page_without_data_is_far_below_a_megabyte() -> None:
    assert len(page("{}", {})) < 200_000


def test_the_file_asks_nobody_for_anything(eventful_run: Path, tmp_path: Path) -> None:
    text = report_of(eventful_run, to=tmp_path / "report.html").read_text()
    addresses = set(re.findall(r"https?://[^\s\"'`]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not a place
    assert "default-src 'none'" in text
    assert "connect-src" not in text
    assert "unsafe" not in text


def test_the_same_run_writes_the_same_bytes(eventful_run: Path, tmp_path: Path) -> None:
    first = report_of(eventful_run, to=tmp_path / "a" / "report.html")
    second = report_of(eventful_run, to=tmp_path / "b" / "report.html")
    assert first.read_bytes() == second.read_bytes()


def test_journals_too_long_for_a_page_are_cut_and_the_page_stays_below_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written, "_ROOM", 20_000)
    short = scheduled(tmp_path / "short", clients=2, until=2.0)
    long = scheduled(tmp_path / "long", clients=6, until=400.0)
    path = report_of(long, short, to=tmp_path / "report.html")
    left_out = [int(count) for count in re.findall(r'"left_out":(\d+)', path.read_text())]
    assert left_out[0] > 0
    assert left_out[1] == 0
    assert path.stat().st_size < len(page("{}", {})) + 60_000


def test_a_place_that_cannot_be_written_is_one_line(eventful_run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match="choose another place with -o"):
        report_of(eventful_run, to=tmp_path / "file" / "report.html")


def test_the_command_writes_into_the_runs_folder_and_prints_the_path(tmp_path: Path) -> None:
    folder = scheduled(tmp_path / "run", clients=2, until=3.0)
    result = CliRunner().invoke(app, ["report", str(folder)], catch_exceptions=False)
    assert result.output == f"report: {folder / 'report.html'}\n"
    assert (folder / "report.html").is_file()


def test_several_runs_share_a_report_beside_them_or_where_it_is_wanted(tmp_path: Path) -> None:
    folders = [str(scheduled(tmp_path / name, clients=2, until=3.0)) for name in ("a", "b")]
    beside = CliRunner().invoke(app, ["report", *folders], catch_exceptions=False)
    wanted = tmp_path / "new" / "page.html"
    result = CliRunner().invoke(app, ["report", *folders, "-o", str(wanted)])
    assert beside.output == f"report: {tmp_path / 'report.html'}\n"
    assert result.output == f"report: {wanted}\n"
    assert wanted.read_bytes() == (tmp_path / "report.html").read_bytes()


def test_the_command_says_in_one_line_what_is_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fedcompass", "report", str(tmp_path)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path} holds no run; ")


def test_a_recorded_schedule_prints_the_same_and_its_journal_replays(tmp_path: Path) -> None:
    folder = tmp_path / "overview"
    arguments = ["schedule", *PAPER, "--until", "34"]
    plain = CliRunner().invoke(app, arguments, catch_exceptions=False)
    recorded = CliRunner().invoke(
        app, [*arguments, "--record", str(folder), "--unit", "min"], catch_exceptions=False
    )
    assert recorded.output == plain.output
    replayed = replay(folder / "journal.jsonl")
    assert replayed.scheduler.version == max(
        row(entry)["version"] for entry in paper_schedule("overview", until=34.0)
    )


def test_a_record_never_overwrites(tmp_path: Path) -> None:
    arguments = ["schedule", *PAPER, "--until", "3", "--record", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, RunFolderError)
    assert "choose another folder" in str(result.exception)
