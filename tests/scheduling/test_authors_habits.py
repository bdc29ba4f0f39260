"""What the authors' code does beyond the paper, behind settings: JoinGroup's and CreateGroup's."""

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


def test_a_scheduler_with_all_the_habits_goes_on_to_one_group() -> None:
    settings = CompassSettings(
        min_steps=20,
        max_steps=100,
        join_up_to=1.2,
        aim="latest",
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
