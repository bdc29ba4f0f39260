"""What the paper leaves open and the design settles: one test, or a few, per question.

Compass with 20 to 100 steps and λ = 1.2; "a" does 10 steps a second, "b" 5, "c" 4.
"""

import pytest
from tests.scheduling.conversations import (
    arrived,
    commit,
    compass,
    deadline,
    first,
    fold,
    immediate,
    joined,
    lifted,
    lost,
    passed,
    quarantine,
    refused,
    start,
    synchronous,
    task_lost,
    tell,
    tiered,
)
from tests.scheduling.invariants import copy_of

from fedcompass.errors import EventRefused
from fedcompass.scheduling.commands import (
    DIRECT,
    GENERAL,
    Command,
    Commit,
    Fold,
    StartTraining,
)
from fedcompass.scheduling.compass import Compass
from fedcompass.scheduling.events import Event
from fedcompass.scheduling.pace import Pace, PaceSettings
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.simulation.event_queue import EventQueue

THIRD = 1 / 3


def three_in_a_group(latest: float = 1.2) -> Scheduler:
    """a, b and c train 100, 40 and 28 steps for group 1: T_a = 12, T_max = 14, version 3."""
    scheduler = compass(min_clients=3, latest=latest)
    tell(scheduler, joined("a"), joined("b"), joined("c"))
    tell(scheduler, arrived(2.0, "a", 1, 20), arrived(4.0, "b", 2, 20), arrived(5.0, "c", 3, 20))
    return scheduler


def open_groups(scheduler: Scheduler) -> dict[int, tuple[list[str], list[str]]]:
    """Who is awaited and who has arrived, by group."""
    assert isinstance(scheduler.policy, Compass)
    return {
        group.id: (list(group.awaited), list(group.arrived))
        for group in scheduler.policy.open_groups
    }


# first task


def test_every_client_that_joins_gets_q_min_steps_as_warm_up() -> None:
    scheduler = compass(min_clients=2)
    assert tell(scheduler, joined("a")) == []
    assert tell(scheduler, joined("b")) == [start(0.0, "a", 1, 20, 0), start(0.0, "b", 2, 20, 0)]


def test_a_client_that_joins_mid_run_warms_up_with_q_min_steps_on_the_newest_model() -> None:
    scheduler = three_in_a_group()
    assert tell(scheduler, joined("d", at=6.0)) == [start(6.0, "d", 7, 20, 3)]


def test_a_run_starts_when_min_clients_have_joined() -> None:
    scheduler = compass(min_clients=3)
    assert tell(scheduler, joined("a"), joined("b"), lost(1.0, "a"), joined("c", at=2.0)) == []
    assert tell(scheduler, joined("d", at=3.0)) == [
        start(3.0, client, task, 20, 0) for task, client in enumerate("bcd", start=1)
    ]


def test_a_run_that_has_started_goes_on_with_fewer_than_min_clients() -> None:
    scheduler = compass(min_clients=2)
    tell(scheduler, joined("a"), joined("b"), lost(1.0, "a"), lost(1.0, "b"))
    assert tell(scheduler, joined("c", at=2.0)) == [start(2.0, "c", 3, 20, 0)]


# tasks have ids


@pytest.mark.parametrize(
    ("client", "task", "complaint"),
    [
        ("a", 1, "client 'a' answered task 1 at t=6s but holds task 4"),
        ("a", 99, "client 'a' answered task 99 at t=6s but holds task 4"),
        ("stranger", 4, "client 'stranger' answered task 4 at t=6s but holds no task"),
    ],
)
def test_only_a_reply_to_the_outstanding_task_counts(
    client: str, task: int, complaint: str
) -> None:
    scheduler = three_in_a_group()
    before = scheduler.to_json()
    for event in (arrived(6.0, client, task, 20), task_lost(6.0, client, task)):
        with pytest.raises(EventRefused, match=complaint):
            scheduler.handle(event)
    assert tell(scheduler, refused(5.0, client, task)) == []  # a refusal of it cancels nothing
    assert scheduler.to_json() == before


def test_a_task_is_answered_once() -> None:
    scheduler = three_in_a_group()
    tell(scheduler, arrived(12.0, "a", 4, 100))
    with pytest.raises(
        EventRefused, match=r"but holds no task\. Send one answer per StartTraining"
    ):
        tell(scheduler, arrived(12.0, "a", 4, 100))


# pace S


def test_pace_is_the_seconds_per_step_of_the_last_response() -> None:
    scheduler = three_in_a_group()
    assert scheduler.pace("a") == Pace(seconds_per_step=0.1, overhead=0.0)
    tell(scheduler, arrived(7.0, "a", 4, 100))
    assert scheduler.pace("a") == Pace(seconds_per_step=0.05, overhead=0.0)


def test_pace_is_smoothed_exponentially_as_an_option() -> None:
    scheduler = compass(pace=PaceSettings(newest_weight=0.25))
    tell(scheduler, joined("a"), arrived(2.0, "a", 1, 20), arrived(22.0, "a", 2, 100))
    pace = scheduler.pace("a")
    assert pace is not None
    assert pace.seconds_per_step == pytest.approx(0.25 * 0.2 + 0.75 * 0.1)


# steps done


def test_pace_and_normalization_use_the_steps_that_were_done() -> None:
    scheduler = compass()
    answer = arrived(2.0, "a", 1, 10)  # of 20
    assert tell(scheduler, joined("a"), answer) == [
        fold(2.0, "a", 1, 10, DIRECT, 1.0),
        commit(2.0, 1, (DIRECT,), fold(2.0, "a", 1, 10, DIRECT, 1.0)),
        deadline(26.0, 1),
        start(2.0, "a", 2, 100, 1, group=1),  # 0.2 s a step, not 0.1
    ]


def test_an_answer_of_0_steps_is_a_lost_task() -> None:
    scheduler = three_in_a_group()
    assert tell(scheduler, arrived(7.0, "c", 6, 0)) == [start(7.0, "c", 7, 20, 3, group=1)]
    assert scheduler.pending() == []
    assert scheduler.pace("c") == Pace(seconds_per_step=0.25, overhead=0.0)


def test_more_steps_than_asked_for_are_refused() -> None:
    scheduler = three_in_a_group()
    for steps in (101, -1):
        with pytest.raises(EventRefused, match=f"reports {steps} steps for task 4; allowed: 0 to"):
            tell(scheduler, arrived(12.0, "a", 4, steps))


# floor() and equal instants


def test_floor_is_tolerant_so_that_a_pace_of_two_thirds_does_not_lose_a_step() -> None:
    pace = Pace(seconds_per_step=2 / 3, overhead=0.0)
    assert all(pace.steps_within(pace.seconds_for(steps)) == steps for steps in range(1, 2000))
    assert pace.steps_within(10.0 - 1e-6) == 14
    assert Pace(seconds_per_step=1.0, overhead=0.0).steps_within(5 - 1e-7) == 5
    assert Pace(seconds_per_step=1.0, overhead=0.0).steps_within(5 - 1e-5) == 4


def test_an_arrival_within_an_instant_of_t_max_is_on_time() -> None:
    scheduler = three_in_a_group()
    tell(scheduler, arrived(12.0, "a", 4, 100), arrived(12.0, "b", 5, 40))
    answer = tell(scheduler, arrived(14.0 + 5e-7, "c", 6, 28))
    assert isinstance(answer[0], Fold)
    assert (answer[0].client, answer[0].buffer) == ("c", 1)


def test_an_arrival_more_than_an_instant_after_t_max_is_late() -> None:
    scheduler = three_in_a_group()
    tell(scheduler, arrived(12.0, "a", 4, 100), arrived(12.0, "b", 5, 40))
    answer = tell(scheduler, arrived(14.0 + 2e-6, "c", 6, 28))
    assert [command.buffer for command in answer if isinstance(command, Fold)] == [GENERAL]


def test_a_deadline_is_handled_after_the_arrivals_within_an_instant_with_t_max_as_its_time() -> (
    None
):
    queue: EventQueue[str] = EventQueue()
    queue.add_deadline(14.0, 1, "deadline")
    queue.add_arrival(14.0 + 5e-7, 6, "on time")
    queue.add_arrival(14.0 + 2e-6, 7, "late")
    moments = [queue.pop() for _ in range(3)]
    assert [moment.what for moment in moments] == ["on time", "deadline", "late"]
    assert moments[1].at == 14.0
    scheduler = three_in_a_group()
    tell(scheduler, arrived(12.0, "a", 4, 100), arrived(14.0 + 5e-7, "b", 5, 40))
    merge = tell(scheduler, passed(14.0, 1))[0]
    assert isinstance(merge, Commit)
    assert merge.at == 14.0


def test_arrivals_at_one_instant_are_handled_in_the_order_of_dispatch() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.add_arrival(12.0, 9, "third")
    queue.add_arrival(12.0 + 4e-7, 4, "first")
    queue.add_arrival(12.0 - 4e-7, 7, "second")
    assert [queue.pop().what for _ in range(3)] == ["first", "second", "third"]


def test_a_deadline_just_below_a_power_of_two_survives_the_arrival_an_instant_later() -> None:
    due = 15.99999969388966  # (due + 1e-6) - 1e-6 is more than due
    scheduler = compass(min_clients=2, latest=1.0)
    tell(scheduler, joined("a"), joined("b"), arrived(2.0, "a", 1, 20))
    tell(scheduler, lost(due + 1e-6, "b"))
    assert tell(scheduler, passed(due, 1)) == []  # not refused as out of order


# arrival after T_max whose deadline event is still on its way


def test_a_deadline_that_is_due_is_carried_out_before_a_later_arrival() -> None:
    scheduler = three_in_a_group()
    early = [fold(12.0, "a", 4, 100, 1, THIRD, 2), fold(12.0, "b", 5, 40, 1, THIRD, 1)]
    tell(scheduler, arrived(12.0, "a", 4, 100), arrived(12.0, "b", 5, 40))
    assert tell(scheduler, arrived(15.2, "c", 6, 28)) == [
        commit(14.0, 4, (1,), *early),
        deadline(26.0, 2),
        start(14.0, "a", 7, 100, 4, group=2),
        start(14.0, "b", 8, 50, 4, group=2),
        fold(15.2, "c", 6, 28, GENERAL, THIRD, 1),
        start(15.2, "c", 9, 24, 4, group=2),
    ]
    assert tell(scheduler, passed(15.2, 1)) == []  # the deadline event itself finds nothing left


def two_groups_with_somebody_waiting() -> Scheduler:
    """Group 1 (a waits, b is awaited) is due at 11, group 2 (c waits, d is awaited) at 3."""
    scheduler = compass(min_clients=4, latest=1.0, min_steps=10, max_steps=10)
    tell(scheduler, *(joined(client) for client in "abcd"))
    tell(scheduler, arrived(1.0, "a", 1, 1), arrived(1.0, "b", 2, 1))  # 1 s a step
    tell(scheduler, arrived(1.0, "c", 3, 5), arrived(1.0, "d", 4, 5))  # 0.2 s a step
    tell(scheduler, arrived(1.5, "a", 5, 10), arrived(1.5, "c", 7, 10))
    assert open_groups(scheduler) == {1: (["b"], ["a"]), 2: (["d"], ["c"])}
    return scheduler


@pytest.mark.parametrize("event", [joined("e", at=50.0), passed(11.0, 1), passed(50.0, 1)])
def test_due_deadlines_are_carried_out_in_order_of_t_max(event: Event) -> None:
    commands = tell(two_groups_with_somebody_waiting(), event)
    merges = [command for command in commands if isinstance(command, Commit)]
    assert [(merge.at, merge.buffers) for merge in merges] == [(3.0, (2,)), (11.0, (1,))]


@pytest.mark.parametrize("event", [joined("e", at=50.0), passed(21.0, 2)])
def test_due_deadlines_at_the_same_t_max_are_carried_out_in_order_of_opening(event: Event) -> None:
    scheduler = compass(min_clients=4, latest=2.0, min_steps=10, max_steps=10)
    tell(scheduler, *(joined(client) for client in "abcd"))
    tell(scheduler, arrived(1.0, "a", 1, 1), arrived(1.0, "b", 2, 1))  # 1 s a step: until 1 + 20
    tell(scheduler, arrived(6.0, "c", 3, 8), arrived(6.0, "d", 4, 8))  # 0.75 s: until 6 + 15
    tell(scheduler, arrived(7.0, "c", 7, 10), arrived(7.0, "a", 5, 10))
    assert open_groups(scheduler) == {1: (["b"], ["a"]), 2: (["d"], ["c"])}
    merges = [command for command in tell(scheduler, event) if isinstance(command, Commit)]
    assert [(merge.at, merge.buffers) for merge in merges] == [(21.0, (1,)), (21.0, (2,))]


# a group that has merged


def test_a_group_that_has_merged_is_closed_even_if_its_expected_time_lies_ahead() -> None:
    scheduler = three_in_a_group()
    tell(scheduler, arrived(6.0, "a", 4, 100), arrived(6.0, "b", 5, 40), joined("d", at=6.0))
    tell(scheduler, arrived(6.5, "c", 6, 28))  # all came before T_a = 12
    assert 1 not in open_groups(scheduler)
    answer = tell(scheduler, arrived(8.0, "d", 7, 20))[-1]
    assert isinstance(answer, StartTraining)
    assert answer.group != 1
    assert tell(scheduler, passed(14.0, 1)) == []


# deadline with nobody arrived


def test_a_deadline_with_nobody_arrived_changes_nothing() -> None:
    scheduler = compass()
    tell(scheduler, joined("a"), arrived(2.0, "a", 1, 20))
    assert tell(scheduler, passed(14.0, 1)) == []
    assert scheduler.version == 1


def test_a_deadline_with_nobody_arrived_merges_the_general_buffer_if_it_holds_anything() -> None:
    scheduler = compass()
    tell(scheduler, joined("a"), arrived(2.0, "a", 1, 20), passed(14.0, 1))
    late = fold(22.0, "a", 2, 100, GENERAL, 1.0)
    assert tell(scheduler, arrived(22.0, "a", 2, 100)) == [
        late,
        deadline(46.0, 2),
        start(22.0, "a", 3, 100, 1, group=2),
    ]
    assert tell(scheduler, passed(46.0, 2)) == [commit(46.0, 2, (GENERAL,), late)]


# "fastest client in the group" (CreateGroup)


@pytest.mark.parametrize(
    ("answer_of_a", "steps"),
    [(None, 35), (7.0, 22)],
    ids=["awaited, 0.1 s a step", "arrived, now 0.05 s a step"],
)
def test_the_fastest_client_of_a_group_is_sought_among_the_arrived_and_the_awaited(
    answer_of_a: float | None, steps: int
) -> None:
    scheduler = compass(min_clients=3)
    tell(scheduler, *(joined(client) for client in "abd"))
    tell(scheduler, arrived(2.0, "a", 1, 20), arrived(4.0, "b", 2, 20))  # group 1, T_a = 12
    if answer_of_a is not None:
        tell(scheduler, arrived(answer_of_a, "a", 4, 100))
    # d, 0.4 s a step, opens a group at T_exp = 12 + 100 S of a.
    answer = tell(scheduler, arrived(8.0, "d", 3, 20))[-1]
    assert answer == start(8.0, "d", 6, steps, 3, group=2)


def test_the_fastest_client_is_sought_anew_when_a_pace_changes_or_somebody_dies() -> None:
    scheduler = compass(min_clients=3)
    tell(scheduler, *(joined(client) for client in "abd"))
    tell(scheduler, arrived(2.0, "a", 1, 20), arrived(4.0, "b", 2, 20))  # group 1, T_a = 12
    tell(scheduler, joined("e", at=6.0), joined("f", at=7.0))
    tell(scheduler, arrived(8.0, "d", 3, 20))  # looks for the fastest: a, T_exp = 22
    assert open_groups(scheduler) == {1: (["a", "b"], []), 2: (["d"], [])}
    tell(scheduler, lost(8.0, "d"), arrived(8.0, "a", 4, 100))  # a does 0.06 s a step now
    answer = tell(scheduler, arrived(8.0, "e", 6, 5))[-1]  # 0.4 s a step; T_exp = 18
    assert answer == start(8.0, "e", 9, 25, 4, group=3)
    tell(scheduler, lost(8.5, "a"), lost(8.5, "e"))
    answer = tell(scheduler, arrived(9.0, "f", 7, 5))[-1]  # 0.4 s a step; b's T_exp = 32
    assert answer == start(9.0, "f", 10, 57, 5, group=4)


# ties among equal q in JoinGroup


def test_the_later_opened_group_wins_a_tie() -> None:
    scheduler = compass(min_steps=2, max_steps=100, min_clients=2)
    tell(scheduler, joined("a"), joined("c"))
    tell(scheduler, arrived(10.0, "a", 1, 2))  # 5 s a step: group 1, T_a = 510
    tell(scheduler, joined("b", at=10.0))
    tell(scheduler, arrived(19.0, "b", 4, 2))  # 4.5 s, 109 steps to 510: group 2, T_a = 469
    assert open_groups(scheduler) == {1: (["a"], []), 2: (["b"], [])}
    # c, 110 s a step, has 290 s to group 1 and 249 s to group 2: 2 steps either way.
    assert tell(scheduler, arrived(220.0, "c", 2, 2))[-1] == start(220.0, "c", 6, 2, 3, group=2)


def test_the_later_opened_group_wins_a_tie_when_it_is_expected_later_too() -> None:
    scheduler = compass(min_steps=2, max_steps=2)
    tell(scheduler, joined("a"), joined("b", at=18.0), joined("c", at=31.0))
    tell(scheduler, arrived(200.0, "a", 1, 2))  # 100 s a step: group 1, T_a = 400
    tell(scheduler, arrived(210.0, "b", 2, 2))  # 96 s, 1 step to 400: group 2, T_a = 402
    # c, 90 s a step, has 189 s to group 1 and 191 s to group 2.
    assert tell(scheduler, arrived(211.0, "c", 3, 2))[-1] == start(211.0, "c", 6, 2, 3, group=2)


# staleness of a buffered update


def test_staleness_is_taken_when_an_update_arrives_not_when_its_group_merges() -> None:
    scheduler = three_in_a_group()
    tell(scheduler, joined("d", at=5.0))
    fresh = tell(scheduler, arrived(6.0, "c", 6, 28))[0]  # c trained on version 3, the newest
    assert isinstance(fresh, Fold)
    assert fresh.staleness == 0
    tell(scheduler, arrived(11.9, "d", 7, 20), arrived(12.0, "a", 4, 100))  # d makes version 4
    merge = tell(scheduler, arrived(12.0, "b", 5, 40))[1]
    assert isinstance(merge, Commit)
    assert [(u.client, u.staleness) for u in merge.contributions] == [("c", 0), ("a", 3), ("b", 2)]


# several late updates of one client


def test_several_late_updates_of_one_client_are_all_merged_each_once() -> None:
    scheduler = compass(min_clients=2)
    tell(scheduler, joined("a"), joined("b"))
    commands = tell(scheduler, arrived(2.0, "a", 1, 20)) + tell(
        scheduler, arrived(100.0, "b", 2, 20)
    )
    for at in (150.0, 1000.0, 8000.0):  # a is late three times; b's group is open until 700
        order = scheduler.outstanding("a")
        assert order is not None
        answer = tell(scheduler, arrived(at, "a", order.task, order.steps))
        assert [c.buffer for c in answer if isinstance(c, Fold)] == [GENERAL]
        commands += answer
    commands += tell(scheduler, lost(1e6, "b"))
    merged = [u.task for c in commands if isinstance(c, Commit) for u in c.contributions]
    assert sorted(merged) == [1, 2, 3, 5, 6]
    assert scheduler.pending() == []


def test_a_late_and_an_on_time_update_of_one_client_merge_together() -> None:
    scheduler = compass()
    tell(scheduler, joined("a"), arrived(2.0, "a", 1, 20), passed(14.0, 1))
    tell(scheduler, arrived(22.0, "a", 2, 100))
    late, on_time = fold(22.0, "a", 2, 100, GENERAL, 1.0), fold(42.0, "a", 3, 100, 2, 1.0)
    assert tell(scheduler, arrived(42.0, "a", 3, 100)) == [
        on_time,
        commit(42.0, 2, (2, GENERAL), on_time, late),
        deadline(66.0, 3),
        start(42.0, "a", 4, 100, 2, group=3),
    ]


# a client that is always late, alone


def test_a_client_that_is_always_late_and_alone_is_merged_at_its_groups_deadline() -> None:
    scheduler = compass()
    tell(scheduler, joined("a"), arrived(2.0, "a", 1, 20))
    pace, at, task, merged = 0.1, 2.0, 2, []
    for group in range(1, 6):
        due = at + 100 * pace * 1.2
        merged += [c for c in tell(scheduler, passed(due, group)) if isinstance(c, Commit)]
        pace *= 2  # it slows down in every round
        at += 100 * pace
        tell(scheduler, arrived(at, "a", task, 100))
        task += 1
    assert [[update.task for update in merge.contributions] for merge in merged] == [
        [2],
        [3],
        [4],
        [5],
    ]
    assert [update.task for update in scheduler.pending()] == [6]


# weight p_i


def test_the_weight_is_the_share_of_samples_among_those_who_joined_and_did_not_leave() -> None:
    scheduler = immediate()
    tell(scheduler, joined("a", samples=10), joined("b", samples=30))
    assert tell(scheduler, arrived(1.0, "a", 1, 10))[0] == fold(1.0, "a", 1, 10, GENERAL, 0.25)
    tell(scheduler, joined("c", at=2.0, samples=60))
    answer = tell(scheduler, arrived(3.0, "a", 3, 10))
    assert answer[0] == fold(3.0, "a", 3, 10, GENERAL, 0.1)
    tell(scheduler, lost(4.0, "c"), lost(4.0, "b"))
    answer = tell(scheduler, arrived(5.0, "a", 5, 10))
    assert answer[0] == fold(5.0, "a", 5, 10, GENERAL, 1.0)


def test_the_weight_is_fixed_when_the_update_arrives() -> None:
    scheduler = three_in_a_group()
    tell(scheduler, arrived(12.0, "a", 4, 100), joined("d", at=12.0, samples=97))
    tell(scheduler, arrived(12.0, "b", 5, 40))
    merge = tell(scheduler, arrived(12.0, "c", 6, 28))[1]
    assert isinstance(merge, Commit)
    assert [update.share for update in merge.contributions] == [THIRD, 0.01, 0.01]


def test_a_synchronous_round_takes_those_who_answered() -> None:
    scheduler = synchronous(min_clients=3)
    tell(scheduler, joined("a"), joined("b"), joined("c"), arrived(1.0, "a", 1, 10))
    tell(scheduler, arrived(2.0, "b", 2, 10))
    merge = tell(scheduler, lost(3.0, "c"))[0]
    assert isinstance(merge, Commit)
    assert [update.client for update in merge.contributions] == ["a", "b"]


def test_shares_of_a_round_stay_in_proportion_while_clients_come_and_go() -> None:
    scheduler = synchronous(min_clients=3)
    tell(scheduler, joined("a", samples=2), joined("b", samples=3), joined("c", samples=5))
    tell(scheduler, arrived(1.0, "a", 1, 10), lost(2.0, "c"), joined("d", at=2.0, samples=90))
    merge = tell(scheduler, arrived(3.0, "b", 2, 10))[1]
    assert isinstance(merge, Commit)
    assert [update.share for update in merge.contributions] == [0.2, 0.3]  # 2 : 3 either way


def test_shares_of_a_tiers_round_stay_in_proportion_while_clients_come_and_go() -> None:
    scheduler = tiered(min_clients=2)
    tell(scheduler, joined("a", samples=2), joined("b", samples=3))
    tell(scheduler, arrived(10.0, "a", 1, 10), arrived(10.0, "b", 2, 10))
    tell(scheduler, joined("d", at=10.0, samples=10), arrived(20.0, "a", 3, 10))
    tell(scheduler, arrived(20.0, "d", 5, 10))  # measured; its update counts in the open round
    merge = tell(scheduler, arrived(20.0, "b", 4, 10))[1]
    assert isinstance(merge, Commit)
    shares = {update.client: update.share for update in merge.contributions}
    assert shares == {"a": 0.4, "d": 2.0, "b": 0.6}  # 2 : 10 : 3


def test_equal_weights_are_an_option() -> None:
    scheduler = immediate(weights="equal")
    tell(scheduler, joined("a", samples=10), joined("b", samples=30))
    assert tell(scheduler, arrived(1.0, "a", 1, 10))[0] == fold(1.0, "a", 1, 10, GENERAL, 0.5)


def test_a_quarantined_client_carries_no_weight() -> None:
    scheduler = compass(quarantine_after=1)
    tell(scheduler, joined("a", samples=10), joined("b", samples=30), refused(1.0, "b", 2))
    answer = tell(scheduler, arrived(2.0, "a", 1, 20))
    assert answer[0] == first(2.0, "a", 1, 1.0)


# a client leaves or dies


def test_a_client_that_dies_leaves_its_group() -> None:
    scheduler = three_in_a_group()
    assert tell(scheduler, lost(6.0, "b")) == []
    assert open_groups(scheduler) == {1: (["a", "c"], [])}


def test_an_update_of_a_client_that_died_later_stays() -> None:
    scheduler = three_in_a_group()
    tell(scheduler, arrived(11.0, "a", 4, 100), lost(11.5, "a"), arrived(12.0, "b", 5, 40))
    assert open_groups(scheduler) == {1: (["c"], ["b"])}
    merge = tell(scheduler, arrived(12.0, "c", 6, 28))[1]
    assert isinstance(merge, Commit)
    assert [update.client for update in merge.contributions] == ["a", "b", "c"]


def test_if_the_last_one_awaited_dies_the_group_merges_what_arrived() -> None:
    scheduler = three_in_a_group()
    early = [fold(12.0, "a", 4, 100, 1, THIRD, 2), fold(12.0, "b", 5, 40, 1, THIRD, 1)]
    tell(scheduler, arrived(12.0, "a", 4, 100), arrived(12.0, "b", 5, 40))
    assert tell(scheduler, lost(13.0, "c")) == [
        commit(13.0, 4, (1,), *early),
        deadline(25.0, 2),
        start(13.0, "a", 7, 100, 4, group=2),
        start(13.0, "b", 8, 50, 4, group=2),
    ]


def test_if_the_last_one_awaited_dies_and_nobody_arrived_the_general_buffer_is_merged() -> None:
    scheduler = compass(min_clients=2)
    tell(scheduler, joined("a"), joined("b"), lost(1.0, "b"))
    tell(scheduler, arrived(2.0, "a", 1, 20), passed(14.0, 1), arrived(22.0, "a", 2 + 1, 100))
    late = fold(22.0, "a", 3, 100, GENERAL, 1.0)
    assert scheduler.pending() == [late]
    assert tell(scheduler, lost(23.0, "a")) == [commit(23.0, 2, (GENERAL,), late)]
    assert open_groups(scheduler) == {}


def test_if_the_last_one_awaited_dies_and_nothing_waits_the_group_just_closes() -> None:
    scheduler = compass()
    tell(scheduler, joined("a"), arrived(2.0, "a", 1, 20))
    assert tell(scheduler, lost(3.0, "a")) == []
    assert open_groups(scheduler) == {}


def test_a_client_that_comes_back_warms_up_again() -> None:
    scheduler = three_in_a_group()
    tell(scheduler, lost(6.0, "a"))
    assert tell(scheduler, joined("a", at=7.0)) == [start(7.0, "a", 7, 20, 3)]
    assert scheduler.pace("a") is None
    assert tell(scheduler, arrived(9.0, "a", 7, 20))[:2] == [
        first(9.0, "a", 7, THIRD),
        commit(9.0, 4, (DIRECT,), first(9.0, "a", 7, THIRD)),
    ]


def test_a_client_that_joins_again_without_leaving_starts_over() -> None:
    scheduler = three_in_a_group()
    assert tell(scheduler, joined("a", at=7.0, samples=4)) == [start(7.0, "a", 7, 20, 3)]
    assert open_groups(scheduler) == {1: (["b", "c"], [])}
    assert tell(scheduler, arrived(9.0, "a", 7, 20))[0] == first(9.0, "a", 7, 4 / 6)


def test_an_unknown_client_cannot_leave_or_be_let_back_in() -> None:
    scheduler = compass()
    for event in (lost(1.0, "x"), lifted(1.0, "x")):
        with pytest.raises(EventRefused, match=r"client 'x' is unknown \(t=1s\). Send ClientJoin"):
            tell(scheduler, event)


# a refused update


def test_a_refused_answer_is_a_lost_task_and_the_client_is_assigned_anew() -> None:
    scheduler = three_in_a_group()
    assert tell(scheduler, refused(6.0, "c", 6)) == [start(6.0, "c", 7, 24, 3, group=1)]
    assert scheduler.pending() == []


def test_a_refused_answer_while_warming_up_gives_q_min_steps_again() -> None:
    scheduler = compass()
    assert tell(scheduler, joined("a"), refused(2.0, "a", 1)) == [start(2.0, "a", 2, 20, 0)]


def test_a_refused_answer_of_the_last_one_awaited_lets_the_others_go_on() -> None:
    scheduler = three_in_a_group()
    tell(scheduler, arrived(12.0, "a", 4, 100), arrived(12.0, "b", 5, 40))
    early = [fold(12.0, "a", 4, 100, 1, THIRD, 2), fold(12.0, "b", 5, 40, 1, THIRD, 1)]
    assert tell(scheduler, refused(12.0, "c", 6)) == [
        commit(12.0, 4, (1,), *early),
        deadline(24.0, 2),
        start(12.0, "a", 7, 100, 4, group=2),
        start(12.0, "b", 8, 50, 4, group=2),
        start(12.0, "c", 9, 40, 4, group=2),
    ]


def test_a_refused_answer_after_t_max_is_not_waited_for() -> None:
    scheduler = compass()
    tell(scheduler, joined("a"), arrived(2.0, "a", 1, 20), passed(14.0, 1))
    assert tell(scheduler, refused(20.0, "a", 2)) == [
        deadline(32.0, 2),
        start(20.0, "a", 3, 100, 1, group=2),
    ]


def test_a_duplicate_or_forged_refusal_never_cancels_a_live_task() -> None:
    scheduler = three_in_a_group()
    before = scheduler.to_json()
    for client, task in (("a", 1), ("a", 99), ("stranger", 4)):
        assert tell(scheduler, refused(5.0, client, task)) == []
    assert scheduler.to_json() == before


def test_three_refusals_in_a_row_quarantine_a_client() -> None:
    scheduler = three_in_a_group()
    assert tell(scheduler, refused(6.0, "c", 6), refused(6.5, "c", 7)) == [
        start(6.5, "c", 8, 22, 3, group=1)
    ]
    assert tell(scheduler, refused(7.0, "c", 8)) == [quarantine(7.0, "c")]
    assert open_groups(scheduler) == {1: (["a", "b"], [])}
    assert scheduler.outstanding("c") is None
    tell(scheduler, arrived(12.0, "a", 4, 100), arrived(12.0, "b", 5, 40))
    assert scheduler.outstanding("c") is None


def test_an_unusual_norm_counts_where_it_happens_again_while_others_pass() -> None:
    scheduler = immediate()

    def unusual(at: float, client: str = "a") -> list[Command]:
        task = scheduler.outstanding(client)
        assert task is not None
        return tell(scheduler, refused(at, client, task.task, "unusual-norm"))

    def passes(at: float, client: str = "b") -> None:
        task = scheduler.outstanding(client)
        assert task is not None
        tell(scheduler, arrived(at, client, task.task, 10))

    tell(scheduler, joined("a"), joined("b"))
    for _ in range(5):  # nobody's update passes: training may have changed for all
        unusual(1.0, "a")
        unusual(1.0, "b")
    for at in (2.0, 3.0):
        passes(at)
        for _ in range(5):
            assert [type(command) for command in unusual(at)] == [StartTraining]
    passes(4.0, "a")  # one that is accepted begins anew
    for at in (5.0, 6.0, 7.0):
        assert quarantine(at, "a") not in unusual(at)
        passes(at)
    assert quarantine(8.0, "a") in unusual(8.0)


def test_an_accepted_answer_starts_the_count_of_refusals_anew() -> None:
    scheduler = compass()
    tell(scheduler, joined("a"), refused(1.0, "a", 1), refused(2.0, "a", 2))
    tell(scheduler, arrived(3.0, "a", 3, 20), refused(4.0, "a", 4), refused(5.0, "a", 5))
    assert scheduler.outstanding("a") is not None
    assert quarantine(6.0, "a") in tell(scheduler, refused(6.0, "a", 6))


def test_quarantining_the_last_one_awaited_lets_the_others_go_on() -> None:
    scheduler = compass(min_clients=2, quarantine_after=1)
    tell(scheduler, joined("a"), joined("b"), arrived(2.0, "a", 1, 20), arrived(4.0, "b", 2, 20))
    tell(scheduler, arrived(12.0, "a", 3, 100))
    waiting = fold(12.0, "a", 3, 100, 1, 0.5, 1)
    assert tell(scheduler, refused(12.0, "b", 4)) == [
        quarantine(12.0, "b"),
        commit(12.0, 3, (1,), waiting),
        deadline(24.0, 2),
        start(12.0, "a", 5, 100, 3, group=2),
    ]


def test_an_operator_lifts_a_quarantine_and_the_client_warms_up_again() -> None:
    scheduler = compass(quarantine_after=1)
    tell(scheduler, joined("a"), arrived(2.0, "a", 1, 20), refused(3.0, "a", 2))
    assert tell(scheduler, lifted(4.0, "a")) == [start(4.0, "a", 3, 20, 1)]
    assert tell(scheduler, lifted(5.0, "a")) == []  # there is nothing to lift
    assert tell(scheduler, task_lost(6.0, "a", 3)) == [start(6.0, "a", 4, 20, 1)]


def test_a_quarantine_outlasts_a_rejoin_an_absence_and_a_restart_until_an_operator_lifts_it() -> (
    None
):
    scheduler = compass(quarantine_after=1)
    tell(scheduler, joined("a"), joined("b", at=0.5), refused(3.0, "a", 1))
    assert tell(scheduler, joined("a", at=4.0)) == [quarantine(4.0, "a")]
    assert tell(scheduler, lost(5.0, "a")) == []
    restored = compass(quarantine_after=1)
    restored.restore(copy_of(scheduler.to_json()))
    for each in (scheduler, restored):
        assert tell(each, joined("a", at=6.0)) == [quarantine(6.0, "a")]
        assert tell(each, arrived(7.0, "b", 2, 20))[0] == first(7.0, "b", 2, 1.0)  # all the weight
        assert tell(each, lifted(8.0, "a")) == [start(8.0, "a", 4, 20, 1)]


def test_a_quarantine_can_be_lifted_while_the_client_is_away() -> None:
    scheduler = compass(quarantine_after=1)
    tell(scheduler, joined("a"), refused(3.0, "a", 1), lost(4.0, "a"))
    assert tell(scheduler, lifted(5.0, "a")) == []
    assert tell(scheduler, joined("a", at=6.0)) == [start(6.0, "a", 2, 20, 0)]
    assert tell(scheduler, lost(7.0, "a")) == []
    with pytest.raises(EventRefused, match="client 'a' is unknown"):
        tell(scheduler, lifted(8.0, "a"))


def test_a_quarantined_client_may_leave() -> None:
    scheduler = compass(quarantine_after=1)
    tell(scheduler, joined("a"), joined("b"), refused(3.0, "a", 1), lost(4.0, "a"))
    assert tell(scheduler, arrived(5.0, "b", 2, 20))[0] == first(5.0, "b", 2, 1.0)


def test_a_client_quarantined_out_of_a_group_may_leave() -> None:
    scheduler = compass(min_clients=2, quarantine_after=1)
    tell(scheduler, joined("a"), joined("b"), arrived(2.0, "a", 1, 20), arrived(4.0, "b", 2, 20))
    tell(scheduler, refused(5.0, "a", 3))
    assert tell(scheduler, lost(6.0, "a")) == []
    assert open_groups(scheduler) == {1: (["b"], [])}


# end of a run


def test_updates_that_were_accepted_but_not_merged_are_listed_as_pending() -> None:
    scheduler = three_in_a_group()
    tell(scheduler, arrived(12.0, "a", 4, 100), arrived(12.0, "b", 5, 40), lost(12.5, "b"))
    assert scheduler.pending() == [
        fold(12.0, "a", 4, 100, 1, THIRD, 2),
        fold(12.0, "b", 5, 40, 1, THIRD, 1),
    ]


# FedAT


def test_tiers_are_formed_from_the_first_round_greedily_from_the_fastest() -> None:
    scheduler = tiered(min_clients=5)
    tell(scheduler, *(joined(client) for client in "abcde"))
    finish = {"a": 10.0, "b": 40.0, "c": 20.0, "d": 41.0, "e": 21.0}  # 1, 4, 2, 4.1, 2.1 s a step
    order = sorted(finish, key=lambda client: finish[client])
    tell(scheduler, *(arrived(finish[c], c, 1 + "abcde".index(c), 10) for c in order[:-1]))
    commands = tell(scheduler, arrived(41.0, "d", 4, 10))
    starts = {c.client: c.group for c in commands if isinstance(c, StartTraining)}
    assert starts == {"a": 1, "c": 1, "b": 2, "d": 2, "e": 2}


def test_tiers_are_fixed_once_formed() -> None:
    scheduler = tiered(min_clients=2)
    tell(scheduler, joined("a"), joined("b"), arrived(10.0, "a", 1, 10), arrived(50.0, "b", 2, 10))
    answer = tell(scheduler, arrived(1000.0, "a", 3, 10))  # a is slower than b now
    assert answer[-1] == start(1000.0, "a", 5, 10, 2, group=1)


def test_a_joiner_enters_the_tier_its_first_answer_fits() -> None:
    scheduler = tiered(min_clients=2)
    tell(scheduler, joined("a"), joined("b"), arrived(10.0, "a", 1, 10), arrived(50.0, "b", 2, 10))
    assert tell(scheduler, joined("c", at=50.0)) == [start(50.0, "c", 5, 10, 1)]
    assert tell(scheduler, arrived(120.0, "c", 5, 10)) == [fold(120.0, "c", 5, 10, 2, 0.5)]
    answer = tell(scheduler, arrived(121.0, "b", 4, 10))
    assert answer[2:] == [
        start(121.0, "b", 6, 10, 2, group=2),
        start(121.0, "c", 7, 10, 2, group=2),
    ]


# Q_max = Q_min


def test_q_max_may_equal_q_min() -> None:
    scheduler = compass(min_steps=20, max_steps=20, min_clients=2)
    tell(scheduler, joined("a"), joined("b"), arrived(2.0, "a", 1, 20))
    answer = tell(scheduler, arrived(4.0, "b", 2, 20))
    assert answer[2:] == [deadline(8.8, 2), start(4.0, "b", 4, 20, 2, group=2)]
