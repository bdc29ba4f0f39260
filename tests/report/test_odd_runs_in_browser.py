"""The page of runs that are rare: nobody joined yet, instant answers, tables of other lengths."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.report.conftest import report_of, served
from tests.report.figures.run_folders import accuracies, written_run

from fedcompass.report import RunFiles
from fedcompass.report.recording import new_record
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.events import ClientJoined, UpdateArrived
from fedcompass.scheduling.scheduler import Scheduler

Open = Callable[..., Page]

JOINED = {"event": "ClientJoined", "at": 0.0, "client": "0", "samples": 20}


def started(task: int, at: float, group: int | None = None) -> dict[str, Any]:
    return {
        "command": "StartTraining", "at": at, "client": "0",
        "task": task, "steps": 4, "version": 0, "group": group,
    }  # fmt: skip


def rounds(count: int) -> list[dict[str, Any]]:
    """A journal of one client that answers so many tasks, one per second."""
    lines = [JOINED]
    for task in range(count):
        answer = {"client": "0", "task": task, "steps_done": 4}
        lines.append(started(task, float(task)))
        lines.append({"event": "UpdateArrived", "at": task + 1.0, **answer})
    return lines


def test_a_seed_nobody_joined_yet_leaves_the_page_whole(tmp_path: Path, open_page: Open) -> None:
    written_run(tmp_path / "runs" / "a", [], seed=0)
    written_run(tmp_path / "runs" / "b", [], rounds(2), seed=1)
    page = open_page(report_of(tmp_path / "runs", to=tmp_path / "report.html"))
    expect(page.locator("#timeline .missing")).to_have_text("No client has joined yet.")
    page.get_by_label("Timelines and per-client panels of seed").select_option("1")
    expect(page.locator("#timeline canvas").first).to_be_visible()


def test_the_table_of_a_strategy_nobody_joined_yet_says_so(tmp_path: Path, open_page: Open) -> None:
    written_run(tmp_path / "runs" / "a", [], strategy={"name": "fedcompass"})
    written_run(tmp_path / "runs" / "b", [], rounds(2), strategy={"name": "fedavg"})
    page = open_page(report_of(tmp_path / "runs", to=tmp_path / "report.html"))
    page.locator("#timeline summary").click()
    expect(page.locator("#timeline .table")).to_have_text("No client has joined yet.")


def test_a_table_turned_far_shows_a_shorter_run_from_its_beginning(
    tmp_path: Path, open_page: Open
) -> None:
    written_run(tmp_path / "runs" / "a", [], rounds(60), strategy={"name": "fedcompass"})
    written_run(tmp_path / "runs" / "b", [], rounds(3), strategy={"name": "fedavg"})
    page = open_page(report_of(tmp_path / "runs", to=tmp_path / "report.html"))
    page.locator("#timeline summary").click()
    page.locator("#timeline .table").get_by_role("button", name="later").click()
    expect(page.locator("#timeline .table")).to_contain_text("rounds 51 to 60 of 60")
    page.get_by_label("Per-client panels:").select_option("fedavg")
    expect(page.locator("#timeline .table")).to_contain_text("rounds 1 to 3 of 3")
    assert page.locator("#timeline tbody tr").count() == 3


def test_a_live_timelines_legend_grows_with_its_run(tmp_path: Path, open_page: Open) -> None:
    folder = written_run(tmp_path / "run", [], [JOINED, started(0, 0.0)], finished=False)
    with served([RunFiles(folder)]) as server:
        page = open_page(server.url)
        expect(page.locator("#timeline .legend")).to_contain_text("local training")
        with (folder / "journal.jsonl").open("a") as file:
            file.write(json.dumps({"command": "SetDeadline", "at": 9.0, "group": 1}) + "\n")
        expect(page.locator("#timeline .legend")).to_contain_text("latest time a group")


def test_a_setting_that_one_run_lacks_is_a_dash(tmp_path: Path, open_page: Open) -> None:
    for name, header in {"a": {"strategy": {"name": "mine"}}, "b": {}}.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        lines = [{"journal": 1, **header}, *rounds(1)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / "runs" / name / "journal.jsonl").write_text(text)
    page = open_page(report_of(tmp_path / "runs", to=tmp_path / "report.html"))
    expect(page.locator("#settings tbody")).to_have_text("strategy.namemine–")


def test_an_answer_in_no_time_has_the_schedulers_smallest_pace(
    tmp_path: Path, open_page: Open
) -> None:
    settings = CompassSettings(min_steps=20, max_steps=100, min_clients=1)
    journal = new_record(tmp_path / "run", settings, seed=0, unit="s")
    scheduler = Scheduler(Compass(settings))
    joined = ClientJoined(at=0.0, client="0", samples=20)
    for event in (joined, UpdateArrived(at=0.0, client="0", task=1, steps_done=20)):
        journal.event(event)
        for command in scheduler.handle(event):
            journal.command(command)
    journal.close()
    estimate = scheduler.pace("0")
    assert estimate is not None
    page = open_page(report_of(tmp_path / "run", to=tmp_path / "report.html"))
    seen = page.evaluate("fedcompass.state.runs[0].lanes[0].pace")
    assert seen == {"perStep": pytest.approx(estimate.seconds_per_step), "overhead": 0.0}


def test_the_dot_at_the_target_is_at_the_evaluation_that_reached_it(
    tmp_path: Path, open_page: Open
) -> None:
    rows = accuracies((0.0, 0.1), (1.0, 0.5), (1.0, 0.9), (2.0, 0.95))  # two models in one moment
    written_run(tmp_path / "run", rows, rounds(2), target=0.8)
    page = open_page(report_of(tmp_path / "run", to=tmp_path / "report.html"))
    page.get_by_role("button", name="global updates").click()
    line = page.locator("#curves path.series").get_attribute("d") or ""
    places = [float(part.split()[0]) for part in line[1:].split("L")]
    dot = float(page.locator("#curves circle.dot").get_attribute("cx") or "nan")
    assert dot == pytest.approx(places[3], abs=0.1)  # places: 0, 1, 1, 2, 2, 3, 3


@pytest.mark.parametrize("epsilon", [1e308, 1.7e308])
def test_a_claimed_epsilon_that_cannot_be_true_is_drawn_and_told_in_short(
    epsilon: float, tmp_path: Path, open_page: Open
) -> None:
    fold = {"command": "Fold", "client": "0", "buffer": 0, "staleness": 0, "steps": 4}
    folds = [{**fold, "at": t + 1.0, "task": t, "epsilon": epsilon / (2 - t)} for t in (0, 1)]
    written_run(tmp_path / "run", [], [*rounds(2), *folds])
    page = open_page(report_of(tmp_path / "run", to=tmp_path / "report.html"))
    page.locator("#budget summary").click()
    cells = page.locator("#budget td").all_text_contents()
    assert cells[0] == f"{epsilon:g}"
    ticks = page.locator("#budget .chart text").all_text_contents()
    assert max(map(len, ticks)) < 12
    assert page.locator("#budget path.series").count() == 1
