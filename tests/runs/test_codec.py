import json

import pytest

from fedcompass.errors import JournalError
from fedcompass.runs.codec import command_to_json, event_from_json, event_to_json
from fedcompass.runs.tally import Tally
from fedcompass.scheduling.commands import (
    DIRECT,
    Command,
    Commit,
    Fold,
    Quarantine,
    SetDeadline,
    StartTraining,
)
from fedcompass.scheduling.events import (
    ClientJoined,
    ClientLost,
    DeadlinePassed,
    Event,
    QuarantineLifted,
    TaskLost,
    UpdateArrived,
    UpdateRefused,
)

FOLD = Fold(at=1.5, client="α", task=3, buffer=2, staleness=1, share=0.25, steps=20)
FIRST = Fold(at=1.5, client="b", task=4, buffer=DIRECT, staleness=0, share=0.5, steps=20)


@pytest.mark.parametrize(
    "event",
    [
        ClientJoined(at=0.1, client="a", samples=12),
        UpdateArrived(at=1 / 3, client="ü\n", task=3, steps_done=20),
        UpdateArrived(at=2.0, client="a", task=3, steps_done=20, compute_seconds=0.7),
        UpdateRefused(at=2.0, client="a", task=3, reason="not-finite"),
        TaskLost(at=2.0, client="a", task=3),
        ClientLost(at=2.0, client="a"),
        DeadlinePassed(at=1e-9, group=7),
        QuarantineLifted(at=2.0, client="a"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_comes_back_from_its_line_exactly(event: Event) -> None:
    line = json.dumps(event_to_json(event))
    assert "\n" not in line
    assert event_from_json(json.loads(line)) == event


@pytest.mark.parametrize(
    ("command", "record"),
    [
        (
            StartTraining(
                at=1.0, client="a", task=4, steps=20, version=2, group=None, steps_before=60
            ),
            {
                "at": 1.0,
                "client": "a",
                "task": 4,
                "steps": 20,
                "version": 2,
                "group": None,
                "steps_before": 60,
            },
        ),
        (
            Commit(at=2.0, version=3, buffers=(2, 0), contributions=(FOLD,)),
            {
                "at": 2.0,
                "version": 3,
                "buffers": [2, 0],
                "contributions": [["α", 3, 1]],
                "direct": False,
            },
        ),
        (
            Commit(at=2.0, version=3, buffers=(DIRECT,), contributions=(FIRST,)),
            {
                "at": 2.0,
                "version": 3,
                "buffers": [-1],
                "contributions": [["b", 4, 0]],
                "direct": True,
            },
        ),
        (SetDeadline(at=9.0, group=2), {"at": 9.0, "group": 2}),
        (Quarantine(at=9.0, client="a"), {"at": 9.0, "client": "a"}),
        (
            FOLD,
            {
                "at": 1.5,
                "client": "α",
                "task": 3,
                "buffer": 2,
                "staleness": 1,
                "share": 0.25,
                "steps": 20,
                "direct": False,
            },
        ),
        (
            FIRST,
            {
                "at": 1.5,
                "client": "b",
                "task": 4,
                "buffer": -1,
                "staleness": 0,
                "share": 0.5,
                "steps": 20,
                "direct": True,
            },
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_command_is_written_with_its_kind_and_all_its_fields(
    command: Command, record: dict[str, object]
) -> None:
    written = command_to_json(command)
    assert json.loads(json.dumps(written)) == {"command": type(command).__name__, **record}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"event": "Fold"}, "event is 'Fold'; allowed: ClientJoined, UpdateArrived"),
        ({}, "event is None"),
        ({"event": "ClientLost", "at": 1.0}, "ClientLost cannot be read: .*'client'"),
        ({"event": "ClientLost", "at": 1.0, "client": "a", "why": 1}, "ClientLost .*'why'"),
    ],
)
def test_a_record_that_is_no_event_is_refused_with_the_reason(
    record: dict[str, object], message: str
) -> None:
    with pytest.raises(JournalError, match=message):
        event_from_json(record)


def test_of_the_notes_on_an_event_what_was_spent_of_a_privacy_budget_is_kept() -> None:
    lost = ClientLost(at=3.0, client="a")
    note = {"epsilon": 3.9, "delta": 1e-5, "left": "budget spent"}
    record = event_to_json(lost, privacy=note, why="budget spent", bytes=7)
    assert record == {"event": "ClientLost", "at": 3.0, "client": "a", "privacy": note}
    assert event_from_json(record) == lost


def test_the_tally_knows_who_has_left_because_a_budget_is_spent_until_it_returns() -> None:
    tally = Tally()
    tally.event(ClientJoined(at=0.0, client="a", samples=3))
    tally.event(ClientLost(at=3.0, client="a"), privacy={"epsilon": 3.9, "left": "budget spent"})
    assert (tally.clients["a"].budget_spent, tally.clients["a"].epsilon) == (True, 3.9)
    tally.event(ClientJoined(at=4.0, client="a", samples=3))
    assert (tally.clients["a"].budget_spent, tally.clients["a"].epsilon) == (False, 3.9)
