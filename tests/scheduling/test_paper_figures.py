"""The paper's four example runs, as DESIGN states their numbers, and whole as golden files.

Minutes; five clients at 10, 5, 4, 2.5 and 2 steps a minute; 20 to 100 steps, λ = 1.2.
"""

from collections.abc import Callable, Iterable
from typing import Literal

import pytest
from tests.scheduling.conversations import arrived, compass, deadline, joined, passed, tell

from fedcompass.scheduling.commands import Commit, StartTraining
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.simulation.timetable import ScheduleEntry, timetable

STEPS_PER_MINUTE = {"1": 10.0, "2": 5.0, "3": 4.0, "4": 2.5, "5": 2.0}

CHANGES = {  # minutes per step of client 3 from its second local round on
    "overview": None,
    "speed-up": 1 / 5,
    "first-slow-down": 1 / (10 / 3),
    "second-slow-down": 10.2 / 28,  # answers at 15:12
}


def run(
    figure: str, until: float = 34.0, create_group: Literal["clamp", "pass-over"] = "clamp"
) -> list[ScheduleEntry]:
    changed = CHANGES[figure]

    def minutes_per_step(client: str, local_round: int) -> float:
        if client == "3" and local_round >= 1 and changed is not None:
            return changed
        return 1 / STEPS_PER_MINUTE[client]

    settings = CompassSettings(
        min_steps=20, max_steps=100, latest=1.2, min_clients=5, create_group=create_group
    )
    clients = dict.fromkeys(STEPS_PER_MINUTE, 100)
    return list(timetable(Scheduler(Compass(settings)), clients, minutes_per_step, until))


def clock(minutes: float) -> str:
    seconds = round(minutes * 60)
    return f"{seconds // 60:02}:{seconds % 60:02}"


def told(entry: ScheduleEntry) -> str:
    if isinstance(entry, StartTraining):
        where = f"group {entry.group}" if entry.group else "warm-up"
        return (
            f"{clock(entry.at)}  client {entry.client} trains {entry.steps:>3} steps  "
            f"({where}, version {entry.version})"
        )
    updates = ", ".join(
        f"client {fold.client} (stale {fold.staleness})" for fold in entry.contributions
    )
    source = f"group {entry.group}" if entry.group else "first answer"
    return f"{clock(entry.at)}  version {entry.version} <- {source}: {updates}"


def dispatched(entries: Iterable[ScheduleEntry], at: str) -> list[tuple[str, int, int | None]]:
    """Who was sent to train at a time: client, steps, group."""
    return [
        (entry.client, entry.steps, entry.group)
        for entry in entries
        if isinstance(entry, StartTraining) and clock(entry.at) == at
    ]


def merged(entries: Iterable[ScheduleEntry], at: str) -> list[dict[str, int]]:
    """What was merged at a time: staleness by client."""
    return [
        {fold.client: fold.staleness for fold in entry.contributions}
        for entry in entries
        if isinstance(entry, Commit) and clock(entry.at) == at
    ]


@pytest.mark.parametrize("figure", CHANGES)
def test_the_figures_schedule_is_the_golden_one(
    figure: str, golden: Callable[[str, str], None]
) -> None:
    lines = [told(entry) for entry in run(figure)]
    golden(f"{figure}.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("figure", CHANGES)
def test_the_figures_do_not_tell_which_of_its_two_wordings_of_create_group_the_paper_means(
    figure: str,
) -> None:
    assert run(figure, until=500.0) == run(figure, until=500.0, create_group="pass-over")


def test_overview_the_first_groups() -> None:
    entries = run("overview")
    assert dispatched(entries, "00:00") == [(client, 20, None) for client in "12345"]
    assert dispatched(entries, "02:00") == [("1", 100, 1)]
    assert dispatched(entries, "04:00") == [("2", 40, 1)]
    assert dispatched(entries, "05:00") == [("3", 28, 1)]
    assert dispatched(entries, "08:00") == [("4", 35, 2)]
    assert dispatched(entries, "10:00") == [("5", 24, 2)]


def test_overview_group_one_is_expected_at_12_and_waited_for_until_14() -> None:
    scheduler = compass(min_clients=5)
    tell(scheduler, *(joined(client) for client in "12345"))
    commands = tell(scheduler, arrived(2.0, "1", 1, 20))
    assert deadline(14.0, 1) in commands
    assert isinstance(scheduler.policy, Compass)
    assert [group.expected for group in scheduler.policy.open_groups] == [12.0]
    tell(scheduler, arrived(4.0, "2", 2, 20), arrived(5.0, "3", 3, 20), arrived(8.0, "4", 4, 20))
    expected = [group.expected for group in scheduler.policy.open_groups]
    assert expected == pytest.approx([12.0, 22.0])


def test_overview_group_one_merges_at_12_and_joins_group_two() -> None:
    entries = run("overview")
    assert merged(entries, "12:00") == [{"1": 4, "2": 3, "3": 2}]
    assert dispatched(entries, "12:00") == [("1", 100, 2), ("2", 50, 2), ("3", 40, 2)]


def test_overview_all_five_merge_at_22_and_stay_one_group() -> None:
    entries = run("overview", until=100.0)
    assert merged(entries, "22:00") == [{"1": 0, "2": 0, "3": 0, "4": 2, "5": 1}]
    for minute in (22, 32, 42, 92):
        group = 3 + (minute - 22) // 10
        at = f"{minute}:00"
        assert dispatched(entries, at) == [
            (client, steps, group)
            for client, steps in zip("12345", (100, 50, 40, 25, 20), strict=True)
        ]
    assert merged(entries, "32:00") == [dict.fromkeys("12345", 0)]


def test_speed_up_the_early_client_waits_and_gets_50_steps_at_12() -> None:
    entries = run("speed-up")
    assert dispatched(entries, "10:36") == []
    assert merged(entries, "10:36") == []
    assert dispatched(entries, "12:00") == [("1", 100, 2), ("2", 50, 2), ("3", 50, 2)]


def test_first_slow_down_the_group_waits_past_its_expected_time() -> None:
    entries = run("first-slow-down")
    assert dispatched(entries, "12:00") == []
    assert [sorted(updates) for updates in merged(entries, "13:24")] == [["1", "2", "3"]]
    assert dispatched(entries, "13:24") == [("1", 86, 2), ("2", 43, 2), ("3", 28, 2)]


def test_second_slow_down_the_late_client_opens_a_group_of_its_own() -> None:
    entries = run("second-slow-down")
    assert [sorted(updates) for updates in merged(entries, "14:00")] == [["1", "2"]]
    assert dispatched(entries, "14:00") == [("1", 80, 2), ("2", 40, 2)]
    assert dispatched(entries, "15:12") == [("3", 46, 3)]
    assert merged(entries, "15:12") == []  # its late update waits in the general buffer
    assert [sorted(updates) for updates in merged(entries, "22:00")] == [list("12345")]
    assert dispatched(entries, "22:00") == [("1", 99, 3), ("2", 49, 3), ("4", 24, 3), ("5", 39, 4)]


def test_second_slow_down_group_three_is_expected_at_31_57() -> None:
    scheduler = compass(min_clients=5)
    tell(scheduler, *(joined(client) for client in "12345"))
    warm_up = zip("12345", (2.0, 4.0, 5.0, 8.0, 10.0), range(1, 6), strict=True)
    tell(scheduler, *(arrived(at, client, task, 20) for client, at, task in warm_up))
    tell(scheduler, arrived(12.0, "1", 6, 100), arrived(12.0, "2", 7, 40), passed(14.0, 1))
    tell(scheduler, arrived(15.2, "3", 8, 28))
    assert isinstance(scheduler.policy, Compass)
    assert [clock(group.expected) for group in scheduler.policy.open_groups] == ["22:00", "31:57"]
