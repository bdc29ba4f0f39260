"""The schedule alone: dispatches and merges in virtual time."""

from collections.abc import Iterable
from typing import Any

from fedcompass.scheduling.commands import Commit, StartTraining
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.immediate import Immediate
from fedcompass.scheduling.policy import FixedStepsSettings
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.scheduling.synchronous import Synchronous
from fedcompass.simulation.timetable import ScheduleEntry, row, timetable


def told(entries: Iterable[ScheduleEntry]) -> list[dict[str, Any]]:
    return [row(entry) for entry in entries]


def dispatch(
    time: float, client: int, steps: int, version: int, group: int | None = None
) -> dict[str, Any]:
    return {
        "time": time,
        "event": "dispatch",
        "client": client,
        "steps": steps,
        "group": group,
        "version": version,
        "staleness": None,
    }


def merge(
    time: float, version: int, *contributions: list[int], group: int | None = None
) -> dict[str, Any]:
    return {
        "time": time,
        "event": "merge",
        "client": None,
        "steps": None,
        "group": group,
        "version": version,
        "staleness": max(staleness for _, staleness in contributions),
        "contributions": [*contributions],
    }


def test_a_synchronous_schedule_up_to_and_including_its_end() -> None:
    settings = FixedStepsSettings(steps=10, min_clients=2)
    entries = timetable(
        Scheduler(Synchronous(settings)),
        {"0": 5, "1": 5},
        lambda client, _: {"0": 0.1, "1": 0.3}[client],
        until=3.0,
    )
    assert told(entries) == [
        dispatch(0.0, 0, 10, 0),
        dispatch(0.0, 1, 10, 0),
        merge(3.0, 1, [0, 0], [1, 0]),
        dispatch(3.0, 0, 10, 1),
        dispatch(3.0, 1, 10, 1),
    ]


def test_the_pace_may_change_from_one_local_round_to_the_next() -> None:
    entries = timetable(
        Scheduler(Immediate(FixedStepsSettings(steps=10))),
        {"0": 1},
        lambda _, local_round: [0.1, 0.2, 0.4][local_round],
        until=6.0,
    )
    assert [entry.at for entry in entries if isinstance(entry, StartTraining)] == [0.0, 1.0, 3.0]


def test_deadlines_are_delivered() -> None:
    settings = CompassSettings(min_steps=20, max_steps=100, latest=1.2, min_clients=2)
    entries = timetable(
        Scheduler(Compass(settings)),
        {"0": 1, "1": 1},
        lambda client, local_round: 1.0 if client == "1" and local_round else 0.1,
        until=14.0,
    )
    assert told(entries)[-2:] == [
        merge(14.0, 3, [0, 1], group=1),
        dispatch(14.0, 0, 100, 3, group=2),
    ]


def test_what_happens_at_the_very_end_is_told_although_sums_of_times_are_rounded() -> None:
    third = 1.1  # 1.1 + 1.1 + 1.1 is a little more than 3.3
    entries = timetable(
        Scheduler(Immediate(FixedStepsSettings(steps=1))), {"0": 1}, lambda *_: third, until=3.3
    )
    merges = [entry.version for entry in entries if isinstance(entry, Commit)]
    assert third + third + third > 3.3
    assert merges == [1, 2, 3]
