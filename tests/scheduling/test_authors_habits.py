"""What the authors' code does beyond the paper, behind settings: JoinGroup's and CreateGroup's."""

from typing import Literal

from tests.scheduling.conversations import (
    arrived,
    commit,
    compass,
    deadline,
    first,
    fold,
    joined,
    start,
    tell,
)
from tests.scheduling.test_algorithm_two import client

from fedcompass.scheduling.arrival_groups import OpenGroups
from fedcompass.scheduling.commands import StartTraining
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.pace import PaceSettings
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.simulation.timetable import timetable


def test_a_client_may_join_a_group_that_asks_for_up_to_a_fifth_more_than_the_most() -> None:
    groups = OpenGroups(20, 100, 1.2, join_up_to=1.2)
    groups.assign(client("slow", 0.1), 0.0)  # group 1, expected at 10
    assert groups.assign(client("quick", 10 / 120), 0.0)[1:] == (120, False)
    assert groups.assign(client("quicker", 10 / 121), 0.0)[1:] == (100, True)


def test_without_that_habit_the_most_is_the_most() -> None:
    groups = OpenGroups(20, 100, 1.2)
    groups.assign(client("slow", 0.1), 0.0)
    assert groups.assign(client("quick", 10 / 100), 0.0)[1:] == (100, False)
    assert groups.assign(client("quicker", 10 / 101), 0.0)[1:] == (100, True)


def test_a_new_group_aims_at_the_return_from_the_latest_arrival() -> None:
    for aims, expected in ((False, 20.0), (True, 22.0)):
        groups = OpenGroups(20, 100, 1.2, aim_at_deadline=aims)
        groups.assign(client("first", 0.1), 0.0)  # expected at 10, waited for until 12
        group, _, opened = groups.assign(client("second", 1.0), 0.0)
        assert (opened, group.expected) == (True, expected)


def test_between_the_expected_and_the_latest_arrival_a_group_still_counts_for_the_aim() -> None:
    for aims, steps in ((False, 100), (True, 22)):
        groups = OpenGroups(20, 100, 1.2, aim_at_deadline=aims)
        groups.assign(client("first", 0.1), 0.0)
        assert groups.assign(client("second", 0.5), 11.0)[1:] == (steps, True)


def slow_and_quick(create_group: Literal["clamp", "pass-over"]) -> Scheduler:
    """At 25: a slow client's group is expected at 120, a quick one's at 30, back at 220 and 40."""
    scheduler = compass(create_group=create_group)
    tell(scheduler, joined("slow"), joined("third", at=15.0), joined("quick", at=18.0))
    opened = tell(scheduler, arrived(20.0, "slow", 1, 20))[-2:]  # 1 s a step
    assert opened == [deadline(140.0, 1), start(20.0, "slow", 4, 100, 1, group=1)]
    opened = tell(scheduler, arrived(20.0, "quick", 3, 20))[-2:]  # 0.1 s: q = 2000, none is left
    assert opened == [deadline(32.0, 2), start(20.0, "quick", 5, 100, 2, group=2)]
    return scheduler


def test_create_group_clamps_the_largest_q_of_all_groups_and_the_quick_client_misses_it() -> None:
    scheduler = slow_and_quick("clamp")
    # 0.5 s a step: 390 steps to the slow group's return, 30 to the quick one's.
    answer = first(25.0, "third", 2, 1 / 3, staleness=2)
    assert tell(scheduler, arrived(25.0, "third", 2, 20)) == [
        answer,
        commit(25.0, 3, (answer.buffer,), answer),
        deadline(85.0, 3),
        start(25.0, "third", 6, 100, 3, group=3),
    ]
    merged = fold(30.0, "quick", 5, 100, 2, 1 / 3, staleness=1)
    assert tell(scheduler, arrived(30.0, "quick", 5, 100)) == [
        merged,
        commit(30.0, 4, (2,), merged),
        deadline(42.0, 4),
        start(30.0, "quick", 7, 100, 4, group=4),
    ]


def test_passing_over_a_q_above_the_most_opens_a_group_that_the_quick_client_joins() -> None:
    scheduler = slow_and_quick("pass-over")
    answer = first(25.0, "third", 2, 1 / 3, staleness=2)
    assert tell(scheduler, arrived(25.0, "third", 2, 20)) == [
        answer,
        commit(25.0, 3, (answer.buffer,), answer),
        deadline(43.0, 3),
        start(25.0, "third", 6, 30, 3, group=3),
    ]
    merged = fold(30.0, "quick", 5, 100, 2, 1 / 3, staleness=1)
    assert tell(scheduler, arrived(30.0, "quick", 5, 100)) == [
        merged,
        commit(30.0, 4, (2,), merged),
        start(30.0, "quick", 7, 100, 4, group=3),
    ]


def test_a_q_below_the_fewest_that_is_left_is_raised_to_the_fewest() -> None:
    for create_group, steps in (("clamp", 100), ("pass-over", 20)):
        scheduler = slow_and_quick(create_group)  # type: ignore[arg-type]
        # 0.9 s a step: 216 steps to the slow group's return, 16 to the quick one's.
        tell(scheduler, joined("fourth", at=21.0))
        answer = tell(scheduler, arrived(25.5, "fourth", 6, 5))[-1]
        assert answer == start(25.5, "fourth", 7, steps, 3, group=3)


def test_exactly_the_most_is_not_passed_over() -> None:
    for pace, steps in ((2.0, 100), (1.98, 60)):
        groups = OpenGroups(60, 100, 1.2, passes_over=True)
        groups.assign(client("slow", 1.0), 0.0)  # back at 200: q = 100, 101
        groups.assign(client("quick", 0.1), 0.0)  # back at 20: q = 10
        assert groups.assign(client("third", pace), 0.0)[1:] == (steps, True)


def test_a_scheduler_with_all_the_habits_goes_on_to_one_group() -> None:
    settings = CompassSettings(
        min_steps=20,
        max_steps=100,
        join_up_to=1.2,
        aim="latest",
        create_group="pass-over",
        pace=PaceSettings(newest_weight=0.9),
        min_clients=5,
    )
    paces = dict(zip("12345", (0.1, 0.2, 0.25, 0.4, 0.5), strict=True))
    entries = timetable(
        Scheduler(Compass(settings)), dict.fromkeys(paces, 1), lambda c, _: paces[c], 100.0
    )
    sent = [entry for entry in entries if isinstance(entry, StartTraining)]
    assert max(entry.steps for entry in sent) <= 120
    assert len({entry.group for entry in sent[-5:]}) == 1


def test_the_warm_up_can_have_the_most_steps_instead_of_the_fewest() -> None:
    for warm_up, steps in (("min", 20), ("max", 100)):
        settings = CompassSettings(min_steps=20, max_steps=100, min_clients=1, warm_up=warm_up)  # type: ignore[arg-type]
        first = next(timetable(Scheduler(Compass(settings)), {"a": 1}, lambda *_: 1.0, 1.0))
        assert isinstance(first, StartTraining)
        assert first.steps == steps
