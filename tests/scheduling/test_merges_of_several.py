"""Merges that wait until so many clients are in them: what secure aggregation needs.

Compass with 20 to 100 steps; "a" does 10 steps a second, "b" 5, "c" 4.
"""

import json

import pytest
from tests.scheduling.conversations import (
    arrived,
    commit,
    compass,
    deadline,
    fold,
    hold,
    joined,
    lost,
    start,
    tell,
)

from fedcompass.errors import SettingsError
from fedcompass.scheduling.commands import GENERAL, Commit, Fold, Quarantine, StartTraining
from fedcompass.scheduling.events import (
    DeadlinePassed,
    MergeFailed,
    QuarantineLifted,
    SpoilerFound,
    UpdateReturned,
)
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.strategies import strategy

THIRD = 1 / 3


def three_together() -> Scheduler:
    scheduler = compass(min_clients=3, merge_at_least=3)
    tell(scheduler, joined("a"), joined("b"), joined("c"))
    return scheduler


def warm_up(at: float, client: str, task: int) -> Fold:
    return fold(at, client, task, 20, GENERAL, THIRD)


def test_first_answers_wait_until_three_clients_have_answered() -> None:
    scheduler = three_together()
    assert tell(scheduler, arrived(2.0, "a", 1, 20)) == [
        warm_up(2.0, "a", 1),
        hold(2.0, GENERAL),
        deadline(14.0, 1),
        start(2.0, "a", 4, 100, 0, 1),
    ]
    assert tell(scheduler, arrived(4.0, "b", 2, 20))[:2] == [
        warm_up(4.0, "b", 2),
        hold(4.0, GENERAL),
    ]
    folds = [warm_up(2.0, "a", 1), warm_up(4.0, "b", 2), warm_up(5.0, "c", 3)]
    assert tell(scheduler, arrived(5.0, "c", 3, 20)) == [
        folds[2],
        commit(5.0, 1, (GENERAL,), *folds),
        start(5.0, "c", 6, 28, 1, 1),
    ]


def test_a_group_of_two_waits_for_the_next_merge() -> None:
    scheduler = three_together()
    tell(scheduler, arrived(2.0, "a", 1, 20), arrived(4.0, "b", 2, 20), arrived(5.0, "c", 3, 20))
    tell(scheduler, lost(6.0, "c"), arrived(12.0, "a", 4, 100))
    both = tell(scheduler, arrived(12.0, "b", 5, 40))
    assert both[1] == hold(12.0, 1)
    assert scheduler.version == 1
    assert scheduler.roster.held == [1]
    merged = tell(scheduler, joined("c", 13.0), arrived(18.0, "c", 9, 20))[1]
    assert merged == commit(18.0, 2, (GENERAL, 1), *scheduler_folds(merged))
    assert [found.client for found in scheduler_folds(merged)] == ["c", "a", "b"]
    assert scheduler.roster.held == []


def scheduler_folds(command: object) -> tuple[Fold, ...]:
    folds: tuple[Fold, ...] = getattr(command, "contributions", ())
    return folds


def test_a_client_that_has_left_does_not_count() -> None:
    scheduler = three_together()
    tell(scheduler, arrived(2.0, "a", 1, 20), lost(3.0, "a"), arrived(4.0, "b", 2, 20))
    assert tell(scheduler, arrived(5.0, "c", 3, 20))[1] == hold(5.0, GENERAL)


def two_go_on_without_the_third(scheduler: Scheduler) -> None:
    """Until neither is given another task."""
    tell(scheduler, arrived(2.0, "a", 1, 20), arrived(4.0, "b", 2, 20), arrived(5.0, "c", 3, 20))
    tell(scheduler, lost(6.0, "c"))
    at, parked = 12.0, scheduler.roster.parked
    while len(parked) < 2:
        for client in ("a", "b"):
            if (task := scheduler.outstanding(client)) is not None:
                tell(scheduler, arrived(at, client, task.task, task.steps))
        at += 10.0
        assert at < 100


def test_while_a_merge_is_held_of_each_client_two_updates_wait_and_no_more() -> None:
    scheduler = three_together()
    two_go_on_without_the_third(scheduler)
    assert [one.client for one in scheduler.pending()] == ["a", "b", "a", "b"]
    assert scheduler.outstanding("a") is scheduler.outstanding("b") is None
    tell(scheduler, joined("c", 113.0))
    merged = tell(scheduler, arrived(118.0, "c", scheduler.roster.last_task, 20))
    version = scheduler.version
    assert [type(one).__name__ for one in merged[:2]] == ["Fold", "Commit"]
    starts = {one.client: one.version for one in merged if isinstance(one, StartTraining)}
    assert starts == {"a": version, "b": version, "c": version}


def test_a_late_answer_that_makes_a_held_merge_possible_lets_all_go_on() -> None:
    scheduler = three_together()
    tell(scheduler, arrived(2.0, "a", 1, 20), arrived(4.0, "b", 2, 20), arrived(5.0, "c", 3, 20))
    for at in (12.0, 30.0):  # c is late for the first group; the second is without it
        for client in ("a", "b"):
            task = scheduler.outstanding(client)
            assert task is not None
            tell(scheduler, arrived(at, client, task.task, task.steps))
        while scheduler.policy.next_deadline < 30.0:
            at = scheduler.policy.next_deadline
            tell(scheduler, DeadlinePassed(at=at, group=scheduler.roster.members["a"].group or 0))
    assert list(scheduler.roster.parked) == ["a", "b"]
    late = scheduler.outstanding("c")
    assert late is not None
    merged = tell(scheduler, arrived(60.0, "c", late.task, late.steps))
    assert [one.version for one in merged if isinstance(one, Commit)] == [2]
    assert not scheduler.roster.parked
    assert {one.client for one in merged if isinstance(one, StartTraining)} == {"a", "b", "c"}


def test_one_that_comes_back_with_two_updates_waiting_is_parked_too() -> None:
    scheduler = three_together()
    two_go_on_without_the_third(scheduler)
    assert tell(scheduler, lost(120.0, "a"), joined("a", 121.0)) == []
    assert list(scheduler.roster.parked) == ["b", "a"]
    tell(scheduler, joined("c", 122.0))
    merged = tell(scheduler, arrived(127.0, "c", scheduler.roster.last_task, 20))
    starts = {one.client: one.group for one in merged if isinstance(one, StartTraining)}
    assert starts.keys() == {"a", "b", "c"}
    assert starts["a"] is None  # its pace is unknown again: it warms up


def test_one_whose_updates_are_merged_goes_on_though_another_merge_is_held() -> None:
    """Two merges due within one event, the first made and the second held, leave such a state."""
    scheduler = compass(min_clients=1, merge_at_least=2)
    b, d, e = (joined(client) for client in "bde")
    tell(scheduler, b, d, e)
    roster = scheduler.roster
    roster.unmerged = {
        7: [fold(1.0, "d", 90, 20, 7, THIRD), fold(2.0, "d", 91, 20, 7, THIRD)],
    }
    roster.held, roster.parked = [7], {"d": None, "b": None}
    for client in ("b", "d"):
        roster.members[client].task = None
    said = tell(scheduler, lost(3.0, "e"))
    assert [one.client for one in said if isinstance(one, StartTraining)] == ["b"]
    assert list(roster.parked) == ["d"]


def test_an_update_that_comes_back_gives_no_commands_though_a_merge_could_be_made() -> None:
    """It comes in the midst of a merge: nobody would carry them out."""
    scheduler = three_together()
    two_go_on_without_the_third(scheduler)
    tell(scheduler, joined("c", 113.0))
    returned = UpdateReturned(at=113.0, client="c", task=1, staleness=0, share=THIRD, steps=20)
    assert tell(scheduler, returned) == []
    answer = arrived(118.0, "c", scheduler.roster.last_task, 20)
    assert any(isinstance(one, Commit) for one in tell(scheduler, answer))


def test_a_buffer_of_fedbuffs_that_is_held_grows_by_two_updates_of_each_client() -> None:
    scheduler = Scheduler(
        strategy("fedbuff", steps=10, buffer_size=2, merge_at_least=3).new_policy()
    )
    tell(scheduler, joined("a"), joined("b"))
    for at in (1.0, 2.0, 3.0, 4.0):
        for client in ("a", "b"):
            task = scheduler.outstanding(client)
            if task is not None:
                tell(scheduler, arrived(at, client, task.task, 10))
    assert [one.client for one in scheduler.pending()] == ["a", "b", "a", "b"]
    assert list(scheduler.roster.parked) == ["a", "b"]
    said = tell(scheduler, joined("c", 5.0), arrived(6.0, "c", 5, 10))
    assert {one.client for one in said if isinstance(one, StartTraining)} == {"a", "b", "c"}


def test_who_is_parked_survives_a_restart_and_may_leave() -> None:
    scheduler = three_together()
    two_go_on_without_the_third(scheduler)
    again = compass(min_clients=3, merge_at_least=3)
    again.restore(json.loads(json.dumps(scheduler.to_json())))
    assert again.to_json() == scheduler.to_json()
    tell(again, lost(120.0, "a"))
    assert list(again.roster.parked) == ["b"]


def test_what_is_held_survives_a_restart() -> None:
    scheduler = three_together()
    tell(scheduler, arrived(2.0, "a", 1, 20), arrived(4.0, "b", 2, 20))
    again = compass(min_clients=3, merge_at_least=3)
    again.restore(scheduler.to_json())
    assert again.to_json() == scheduler.to_json()
    last = arrived(5.0, "c", 3, 20)
    assert tell(again, last) == tell(scheduler, last)


def test_an_update_that_a_merge_left_out_is_in_the_next_one() -> None:
    scheduler = three_together()
    tell(scheduler, arrived(2.0, "a", 1, 20), arrived(4.0, "b", 2, 20), arrived(5.0, "c", 3, 20))
    returned = UpdateReturned(at=5.0, client="b", task=2, staleness=0, share=THIRD, steps=20)
    assert tell(scheduler, returned) == []
    assert [pending.task for pending in scheduler.pending()] == [2]
    tell(scheduler, arrived(12.0, "a", 4, 100), arrived(12.0, "b", 5, 40))
    merged = tell(scheduler, arrived(12.0, "c", 6, 28))[1]
    assert [found.task for found in scheduler_folds(merged)] == [4, 5, 6, 2]


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("fedat", {}, "tiers are merged one by one"),
        ("metronome", {"absent": "remember"}, "absent clients are remembered"),
    ],
)
def test_merges_that_cannot_wait_are_refused(name: str, settings: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError) as refused:
        strategy(name, merge_at_least=2, **settings)
    assert str(refused.value) == (f"merge_at_least of {name!r} is 2; allowed: 1, since {why}")


def a_merge_of_three_fails_and_nobody_can_tell_why() -> Scheduler:
    """Rounds of three go on until of each two updates wait: a merge of these alone is not made."""
    scheduler = Scheduler(
        strategy("fedavg", steps=10, merge_at_least=3, min_clients=3).new_policy()
    )
    tell(scheduler, joined("a"), joined("b"), joined("c"))
    for client, task in (("a", 1), ("b", 2), ("c", 3)):
        tell(scheduler, arrived(5.0, client, task, 10))
    assert scheduler.version == 1
    assert tell(scheduler, MergeFailed(at=5.0, version=1, untold=("a", "b", "c"))) == []
    tasks = {one: scheduler.outstanding(one) for one in "abc"}
    assert [task and task.version for task in tasks.values()] == [0, 0, 0]
    for at, first in ((10.0, 4), (15.0, 7)):
        for client, task in (("a", first), ("b", first + 1), ("c", first + 2)):
            held = tell(scheduler, arrived(at, client, task, 10))
        assert held[1] == hold(at, GENERAL)
    assert list(scheduler.roster.parked) == ["a", "b", "c"]
    return scheduler


def test_rounds_whose_merge_cannot_be_made_go_on_when_an_operator_says_so() -> None:
    scheduler = a_merge_of_three_fails_and_nobody_can_tell_why()
    merged = tell(scheduler, QuarantineLifted(at=20.0, client="b"))
    assert [type(one).__name__ for one in merged] == ["Commit", *["StartTraining"] * 3]
    assert not scheduler.roster.parked


def test_rounds_whose_merge_cannot_be_made_go_on_when_a_fourth_client_has_answered() -> None:
    scheduler = a_merge_of_three_fails_and_nobody_can_tell_why()
    assert tell(scheduler, joined("d", 20.0)) == [start(20.0, "d", 10, 10, 0)]
    merged = tell(scheduler, arrived(25.0, "d", 10, 10))
    assert [type(one).__name__ for one in merged] == ["Fold", "Commit", *["StartTraining"] * 4]
    assert {one.version for one in merged if isinstance(one, StartTraining)} == {1}
    assert not scheduler.roster.parked


def test_who_spoils_sums_is_excluded_once() -> None:
    scheduler = a_merge_of_three_fails_and_nobody_can_tell_why()
    assert tell(scheduler, SpoilerFound(at=20.0, client="b")) == [Quarantine(at=20.0, client="b")]
    assert tell(scheduler, SpoilerFound(at=21.0, client="b")) == []
    assert list(scheduler.roster.parked) == ["a", "c"], "two are too few"


def test_that_a_merge_cannot_be_made_survives_a_restart() -> None:
    scheduler = a_merge_of_three_fails_and_nobody_can_tell_why()
    again = Scheduler(strategy("fedavg", steps=10, merge_at_least=3, min_clients=3).new_policy())
    again.restore(json.loads(json.dumps(scheduler.to_json())))
    assert again.to_json() == scheduler.to_json()
    lifted = QuarantineLifted(at=20.0, client="a")
    assert tell(again, lifted) == tell(scheduler, lifted)
