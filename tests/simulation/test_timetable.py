"""The schedule alone: dispatches and merges in virtual time."""

import pytest

from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.immediate import Immediate
from fedcompass.scheduling.policy import FixedStepsSettings
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.scheduling.synchronous import Synchronous
from fedcompass.simulation.timetable import ScheduledMerge, ScheduledTask, row, timetable


def dispatch(
    time: float, client: str, steps: int, version: int, group: int | None = None
) -> ScheduledTask:
    return ScheduledTask(time=time, client=client, steps=steps, group=group, version=version)


def merge(
    time: float, version: int, *contributions: tuple[str, int], group: int | None = None
) -> ScheduledMerge:
    return ScheduledMerge(time=time, group=group, version=version, contributions=contributions)


def test_a_synchronous_schedule_up_to_and_including_its_end() -> None:
    settings = FixedStepsSettings(steps=10, min_clients=2)
    entries = timetable(
        Scheduler(Synchronous(settings)),
        {"0": 5, "1": 5},
        lambda client, _: {"0": 0.1, "1": 0.3}[client],
        until=3.0,
    )
    assert list(entries) == [
        dispatch(0.0, "0", 10, 0),
        dispatch(0.0, "1", 10, 0),
        merge(3.0, 1, ("0", 0), ("1", 0)),
        dispatch(3.0, "0", 10, 1),
        dispatch(3.0, "1", 10, 1),
    ]


def test_the_pace_may_change_from_one_local_round_to_the_next() -> None:
    entries = timetable(
        Scheduler(Immediate(FixedStepsSettings(steps=10))),
        {"0": 1},
        lambda _, local_round: [0.1, 0.2, 0.4][local_round],
        until=6.0,
    )
    assert [entry.time for entry in entries if isinstance(entry, ScheduledTask)] == [0.0, 1.0, 3.0]


def test_deadlines_are_delivered() -> None:
    settings = CompassSettings(min_steps=20, max_steps=100, latest=1.2, min_clients=2)
    entries = timetable(
        Scheduler(Compass(settings)),
        {"0": 1, "1": 1},
        lambda client, local_round: 1.0 if client == "1" and local_round else 0.1,
        until=14.0,
    )
    assert list(entries)[-2:] == [
        merge(14.0, 3, ("0", 1), group=1),
        dispatch(14.0, "0", 100, 3, group=2),
    ]


def test_what_happens_at_the_very_end_is_told_although_sums_of_times_are_rounded() -> None:
    third = 1.1  # 1.1 + 1.1 + 1.1 is a little more than 3.3
    entries = timetable(
        Scheduler(Immediate(FixedStepsSettings(steps=1))), {"0": 1}, lambda *_: third, until=3.3
    )
    merges = [entry.version for entry in entries if isinstance(entry, ScheduledMerge)]
    assert third + third + third > 3.3
    assert merges == [1, 2, 3]


@pytest.mark.parametrize(
    ("entry", "record"),
    [
        (
            dispatch(2.0, "0", 100, 1, group=1),
            {
                "time": 2.0,
                "event": "dispatch",
                "client": 0,
                "steps": 100,
                "group": 1,
                "version": 1,
                "staleness": None,
            },
        ),
        (
            merge(12.0, 6, ("0", 4), ("1", 3), group=1),
            {
                "time": 12.0,
                "event": "merge",
                "client": None,
                "steps": None,
                "group": 1,
                "version": 6,
                "staleness": 4,
                "contributions": [[0, 4], [1, 3]],
            },
        ),
    ],
)
def test_an_entry_is_a_flat_record(
    entry: ScheduledTask | ScheduledMerge, record: dict[str, object]
) -> None:
    assert row(entry) == record
