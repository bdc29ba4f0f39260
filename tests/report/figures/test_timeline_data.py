"""A journal's rounds, waits, merges and deadlines, as the paper's figures show them."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.report.figures.run_folders import paper_run

from fedcompass.errors import JournalError
from fedcompass.report.figures.style import GREY, SKY_BLUE
from fedcompass.report.figures.timeline_data import (
    Deadline,
    MergeMark,
    Timeline,
    read_timeline,
    timeline_of,
)
from fedcompass.report.figures.timeline_legend import group_colours
from fedcompass.runs.tally import LocalRound, Span


def of_client(timeline: Timeline, client: str) -> list[tuple[float, float, int, int | None, str]]:
    return [
        (r.start / 60, r.end / 60, r.steps, r.group, r.outcome)
        for r in timeline.rounds
        if r.client == client
    ]


def joined(*clients: str) -> list[dict[str, Any]]:
    return [{"event": "ClientJoined", "at": 0.0, "client": c, "samples": 1} for c in clients]


def start(at: float, client: str, task: int, group: int | None = None) -> dict[str, Any]:
    order = {"command": "StartTraining", "at": at, "client": client, "task": task}
    return {**order, "steps": 10, "version": 0, "group": group}


def answer(at: float, client: str, task: int, kind: str = "UpdateArrived") -> dict[str, Any]:
    facts = {"event": kind, "at": at, "client": client, "task": task}
    return {**facts, "steps_done": 10, "reason": "wrong-steps"}


def test_the_overview_figure_is_read_from_a_runs_journal(tmp_path: Path) -> None:
    timeline = read_timeline(paper_run(tmp_path / "run") / "journal.jsonl")
    assert timeline.clients == ["0", "1", "2", "3", "4"]
    assert of_client(timeline, "0") == [
        (0, 2, 20, None, "arrived"),
        (2, 12, 100, 1, "arrived"),
        (12, 22, 100, 2, "arrived"),
        (22, 32, 100, 3, "arrived"),
        (32, 34, 100, 4, "under way"),
    ]
    assert timeline.waits == []
    assert timeline.deadlines[:2] == [Deadline(840.0, 1), Deadline(1488.0, 2)]
    last = timeline.merges[6]
    assert (last.at, last.version) == (1320.0, 7)
    assert last.contributions == (("3", 2), ("4", 1), ("0", 0), ("1", 0), ("2", 0))


def test_a_client_that_speeds_up_is_seen_waiting(tmp_path: Path) -> None:
    timeline = read_timeline(paper_run(tmp_path / "run", 900.0, change=12.0) / "journal.jsonl")
    assert timeline.waits == [Span("2", "waiting", 636.0, 720.0, ahead_until=720.0)]


def test_an_arrival_after_its_group_has_merged_is_late(tmp_path: Path) -> None:
    journal = paper_run(tmp_path / "run", 1000.0, change=306 / 14) / "journal.jsonl"
    timeline = read_timeline(journal)
    (late,) = (r for r in timeline.rounds if r.outcome == "late")
    assert late.client == "2"
    assert late.end == pytest.approx(912.0)
    assert [wait.client for wait in timeline.waits] == ["0", "1"]


def test_refused_lost_and_left_rounds_end_there_and_stray_answers_change_nothing() -> None:
    timeline = timeline_of(
        [
            *joined("a", "b", "c"),
            *(start(0.0, client, task) for task, client in enumerate("abc")),
            answer(1.0, "a", 0, "UpdateRefused"),
            answer(1.5, "b", 7),
            answer(2.0, "b", 1, "TaskLost"),
            {"event": "ClientLost", "at": 3.0, "client": "c"},
            start(4.0, "b", 3),
        ]
    )
    assert [(r.client, r.end, r.outcome) for r in timeline.rounds] == [
        ("a", 1.0, "refused"),
        ("b", 2.0, "lost"),
        ("c", 3.0, "lost"),
        ("b", 3.0, "under way"),
    ]
    assert timeline.waits == [Span("b", "waiting", 2.0, 4.0), Span("a", "waiting", 1.0, 3.0)]


def test_a_run_that_went_the_whole_way_is_drawn_to_its_horizon() -> None:
    lines = [*joined("a"), start(0.0, "a", 1), answer(2.0, "a", 1), start(2.0, "a", 2)]
    assert timeline_of(lines).end == 2.0
    timeline = timeline_of(lines, until=5.0)
    assert timeline.rounds[-1] == LocalRound("a", 2, 2.0, 5.0, 10, None)


def test_lines_of_a_merge_name_its_contributors() -> None:
    commit = {"command": "Commit", "at": 2.0, "version": 1, "contributions": [["a", 1, 0]]}
    commit["buffers"] = [0]
    assert timeline_of([*joined("a"), commit]).merges == [MergeMark(2.0, 1, (("a", 0),))]


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"nothing\.jsonl: No such file"):
        read_timeline(tmp_path / "nothing.jsonl")


def test_groups_that_follow_each_other_in_a_lane_differ_in_colour() -> None:
    lines = joined("fast", "slow")
    task = 0
    for number in range(40):  # the slow client's group stays open over several of the fast one's
        lines.append(start(float(number), "fast", task, group=number + 1))
        lines.append(answer(number + 1.0, "fast", task))
        task += 1
        if number % 5 == 0:
            lines.append(start(float(number), "slow", task, group=number + 1))
            lines.append(answer(number + 5.0, "slow", task))
            task += 1
    timeline = timeline_of(sorted(lines, key=lambda line: line["at"]))
    colours = group_colours(timeline)
    for client in timeline.clients:
        own = [colours[r.group] for r in timeline.rounds if r.client == client]
        assert all(one != other for one, other in pairwise(own))
    assert colours[None] == GREY
    assert group_colours(Timeline()) == {None: SKY_BLUE}
