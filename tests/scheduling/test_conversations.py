"""What the schedulers without arrival groups answer, and what holds for all of them."""

import json
import math
from collections.abc import Callable

import pytest
from tests.scheduling.conversations import (
    arrived,
    buffered_by,
    commit,
    compass,
    deadline,
    discard,
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

from fedcompass.errors import EventRefused
from fedcompass.scheduling.commands import DIRECT, GENERAL, StartTraining
from fedcompass.scheduling.events import Event
from fedcompass.scheduling.pace import Pace, PaceSettings
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.scheduling.tiered import Tiered, TieredSettings

# synchronous: FedAvg


def round_of_two() -> Scheduler:
    """a and b hold tasks 1 and 2."""
    scheduler = synchronous(min_clients=2)
    tell(scheduler, joined("a", samples=1), joined("b", samples=3))
    return scheduler


def test_a_round_is_over_when_everybody_has_answered() -> None:
    scheduler = round_of_two()
    ours, theirs = fold(1.0, "a", 1, 10, GENERAL, 0.25), fold(5.0, "b", 2, 10, GENERAL, 0.75)
    assert tell(scheduler, arrived(1.0, "a", 1, 10)) == [ours]
    assert tell(scheduler, arrived(5.0, "b", 2, 10)) == [
        theirs,
        commit(5.0, 1, (GENERAL,), ours, theirs),
        start(5.0, "a", 3, 10, 1),
        start(5.0, "b", 4, 10, 1),
    ]


def test_one_that_joins_mid_round_waits_for_the_next() -> None:
    scheduler = round_of_two()
    assert tell(scheduler, joined("c", at=1.0, samples=4)) == []
    tell(scheduler, arrived(2.0, "a", 1, 10))
    assert tell(scheduler, arrived(3.0, "b", 2, 10))[2:] == [
        start(3.0, "a", 3, 10, 1),
        start(3.0, "b", 4, 10, 1),
        start(3.0, "c", 5, 10, 1),
    ]


def test_a_round_goes_on_without_one_that_dies() -> None:
    scheduler = round_of_two()
    ours = fold(1.0, "a", 1, 10, GENERAL, 0.25)
    tell(scheduler, arrived(1.0, "a", 1, 10))
    assert tell(scheduler, lost(2.0, "b")) == [
        commit(2.0, 1, (GENERAL,), ours),
        start(2.0, "a", 3, 10, 1),
    ]


def test_an_update_stays_in_the_round_when_its_sender_dies() -> None:
    scheduler = round_of_two()
    ours, theirs = fold(1.0, "a", 1, 10, GENERAL, 0.25), fold(3.0, "b", 2, 10, GENERAL, 0.75)
    tell(scheduler, arrived(1.0, "a", 1, 10))
    assert tell(scheduler, lost(2.0, "a")) == []
    assert tell(scheduler, arrived(3.0, "b", 2, 10)) == [
        theirs,
        commit(3.0, 1, (GENERAL,), ours, theirs),
        start(3.0, "b", 3, 10, 1),
    ]


def test_one_that_lost_its_task_waits_for_the_next_round() -> None:
    scheduler = round_of_two()
    assert tell(scheduler, task_lost(1.0, "a", 1)) == []
    theirs = fold(2.0, "b", 2, 10, GENERAL, 0.75)
    assert tell(scheduler, arrived(2.0, "b", 2, 10)) == [
        theirs,
        commit(2.0, 1, (GENERAL,), theirs),
        start(2.0, "a", 3, 10, 1),
        start(2.0, "b", 4, 10, 1),
    ]


@pytest.mark.parametrize(
    "event", [task_lost(1.0, "b", 2), refused(1.0, "b", 2), arrived(1.0, "b", 2, 0)]
)
def test_a_round_in_which_all_lose_their_tasks_starts_over_without_a_merge(event: Event) -> None:
    scheduler = round_of_two()
    tell(scheduler, task_lost(1.0, "a", 1))
    assert tell(scheduler, event) == [start(1.0, "a", 3, 10, 0), start(1.0, "b", 4, 10, 0)]


def test_a_round_goes_on_without_one_that_is_quarantined_until_it_is_let_in() -> None:
    scheduler = synchronous()
    tell(scheduler, joined("a"), refused(1.0, "a", 1), refused(2.0, "a", 2))
    assert tell(scheduler, refused(3.0, "a", 3)) == [quarantine(3.0, "a")]
    assert tell(scheduler, lifted(4.0, "a")) == [start(4.0, "a", 4, 10, 0)]


def test_when_all_have_left_the_next_to_join_opens_a_round() -> None:
    scheduler = round_of_two()
    tell(scheduler, lost(1.0, "a"))
    assert tell(scheduler, lost(2.0, "b")) == []
    assert tell(scheduler, joined("a", at=3.0)) == [start(3.0, "a", 3, 10, 0)]


def test_one_that_comes_back_mid_round_waits_for_the_next() -> None:
    scheduler = round_of_two()
    assert tell(scheduler, joined("a", at=1.0)) == []
    answer = tell(scheduler, arrived(2.0, "b", 2, 10))
    assert answer[2:] == [start(2.0, "b", 3, 10, 1), start(2.0, "a", 4, 10, 1)]


# immediate: FedAsync, and buffered: FedBuff


def test_every_answer_is_merged_at_once_and_the_client_goes_on() -> None:
    scheduler = immediate()
    assert tell(scheduler, joined("a")) == [start(0.0, "a", 1, 10, 0)]
    assert tell(scheduler, joined("b")) == [start(0.0, "b", 2, 10, 0)]
    tell(scheduler, arrived(1.0, "a", 1, 10))
    stale = fold(2.0, "b", 2, 7, GENERAL, 0.5, 1)
    assert tell(scheduler, arrived(2.0, "b", 2, 7)) == [
        stale,
        commit(2.0, 2, (GENERAL,), stale),
        start(2.0, "b", 4, 10, 2),
    ]


def test_every_k_answers_make_a_version_and_nobody_waits() -> None:
    scheduler = buffered_by(2)
    tell(scheduler, joined("a"))
    early = fold(1.0, "a", 1, 10, GENERAL, 1.0)
    assert tell(scheduler, arrived(1.0, "a", 1, 10)) == [early, start(1.0, "a", 2, 10, 0)]
    assert scheduler.pending() == [early]
    full = fold(2.0, "a", 2, 10, GENERAL, 1.0)
    assert tell(scheduler, arrived(2.0, "a", 2, 10)) == [
        full,
        commit(2.0, 1, (GENERAL,), early, full),
        start(2.0, "a", 3, 10, 1),
    ]


def test_a_buffered_update_stays_when_its_sender_dies() -> None:
    scheduler = buffered_by(2)
    tell(scheduler, joined("a"), joined("b"), arrived(1.0, "a", 1, 10))
    assert tell(scheduler, lost(2.0, "a")) == []
    commands = tell(scheduler, arrived(3.0, "b", 2, 10))
    gone, here = fold(1.0, "a", 1, 10, GENERAL, 0.5), fold(3.0, "b", 2, 10, GENERAL, 1.0)
    assert commands[:2] == [here, commit(3.0, 1, (GENERAL,), gone, here)]


@pytest.mark.parametrize(
    "event", [task_lost(1.0, "a", 1), refused(1.0, "a", 1), arrived(1.0, "a", 1, 0)]
)
@pytest.mark.parametrize("scheduler", [immediate, lambda: buffered_by(3)])
def test_a_lost_task_is_given_anew_at_once(
    scheduler: Callable[[], Scheduler], event: Event
) -> None:
    assert tell(scheduler(), joined("a"), event) == [start(1.0, "a", 2, 10, 0)]


# tiered: FedAT


def two_tiers() -> Scheduler:
    """a and b (1 and 1.5 s a step) hold tasks 4 and 5 of tier 1, c (5 s) task 6 of tier 2."""
    scheduler = tiered(min_clients=3)
    tell(scheduler, joined("a"), joined("b"), joined("c"))
    tell(scheduler, arrived(10.0, "a", 1, 10), arrived(15.0, "b", 2, 10))
    tell(scheduler, arrived(50.0, "c", 3, 10))
    return scheduler


THIRD = 1 / 3


def test_the_first_round_is_merged_as_one_and_then_tiers_run_alone() -> None:
    scheduler = tiered(min_clients=3)
    assert tell(scheduler, joined("a"), joined("b"), joined("c")) == [
        start(0.0, "a", 1, 10, 0),
        start(0.0, "b", 2, 10, 0),
        start(0.0, "c", 3, 10, 0),
    ]
    folds = [
        fold(10.0, "a", 1, 10, GENERAL, THIRD),
        fold(15.0, "b", 2, 10, GENERAL, THIRD),
        fold(50.0, "c", 3, 10, GENERAL, THIRD),
    ]
    assert tell(scheduler, arrived(10.0, "a", 1, 10)) == [folds[0]]
    assert tell(scheduler, arrived(15.0, "b", 2, 10)) == [folds[1]]
    assert tell(scheduler, arrived(50.0, "c", 3, 10)) == [
        folds[2],
        commit(50.0, 1, (GENERAL,), *folds),
        start(50.0, "a", 4, 10, 1, group=1),
        start(50.0, "b", 5, 10, 1, group=1),
        start(50.0, "c", 6, 10, 1, group=2),
    ]


def test_a_tier_merges_when_all_of_it_have_answered() -> None:
    scheduler = two_tiers()
    ours, theirs = fold(60.0, "a", 4, 10, 1, THIRD), fold(65.0, "b", 5, 10, 1, THIRD)
    assert tell(scheduler, arrived(60.0, "a", 4, 10)) == [ours]
    assert tell(scheduler, arrived(65.0, "b", 5, 10)) == [
        theirs,
        commit(65.0, 2, (1,), ours, theirs),
        start(65.0, "a", 7, 10, 2, group=1),
        start(65.0, "b", 8, 10, 2, group=1),
    ]
    stale = fold(100.0, "c", 6, 10, 2, THIRD, 1)
    assert tell(scheduler, arrived(100.0, "c", 6, 10)) == [
        stale,
        commit(100.0, 3, (2,), stale),
        start(100.0, "c", 9, 10, 3, group=2),
    ]


def test_one_that_joins_in_the_first_round_takes_part_in_it() -> None:
    scheduler = tiered()
    tell(scheduler, joined("a"))
    assert tell(scheduler, joined("b", at=1.0)) == [start(1.0, "b", 2, 10, 0)]
    assert len(tell(scheduler, arrived(10.0, "a", 1, 10))) == 1  # b is awaited


@pytest.mark.parametrize(("answers_at", "tier"), [(51.0, 1), (70.0, 1), (71.0, 2), (1050.0, 2)])
def test_a_joiner_is_measured_alone_and_its_update_counts_in_the_open_round(
    answers_at: float, tier: int
) -> None:
    scheduler = two_tiers()
    assert tell(scheduler, joined("d", at=50.0)) == [start(50.0, "d", 7, 10, 1)]
    measured = fold(answers_at, "d", 7, 10, tier, THIRD)
    assert tell(scheduler, arrived(answers_at, "d", 7, 10)) == [measured]
    assert scheduler.pending() == [measured]


def test_a_joiner_of_a_deserted_tier_goes_on_alone() -> None:
    scheduler = two_tiers()
    assert tell(scheduler, lost(51.0, "c")) == []
    tell(scheduler, joined("d", at=51.0))
    alone = fold(101.0, "d", 7, 10, 2, 0.5)
    assert tell(scheduler, arrived(101.0, "d", 7, 10)) == [
        alone,
        commit(101.0, 2, (2,), alone),
        start(101.0, "d", 8, 10, 2, group=2),
    ]


def test_one_that_lost_its_task_waits_for_its_tiers_next_round() -> None:
    scheduler = two_tiers()
    assert tell(scheduler, task_lost(51.0, "a", 4)) == []
    theirs = fold(65.0, "b", 5, 10, 1, THIRD)
    assert tell(scheduler, arrived(65.0, "b", 5, 10)) == [
        theirs,
        commit(65.0, 2, (1,), theirs),
        start(65.0, "a", 7, 10, 2, group=1),
        start(65.0, "b", 8, 10, 2, group=1),
    ]


def test_a_tier_in_which_all_lose_their_tasks_starts_over_without_a_merge() -> None:
    assert tell(two_tiers(), refused(51.0, "c", 6)) == [start(51.0, "c", 7, 10, 1, group=2)]


def test_a_joiner_that_loses_its_task_is_measured_again() -> None:
    scheduler = two_tiers()
    tell(scheduler, joined("d", at=50.0))
    assert tell(scheduler, task_lost(55.0, "d", 7)) == [start(55.0, "d", 8, 10, 1)]


def test_a_task_lost_in_the_first_round_is_trained_again_in_it() -> None:
    scheduler = tiered(min_clients=2)
    tell(scheduler, joined("a"), joined("b"))
    assert tell(scheduler, task_lost(1.0, "a", 1)) == [start(1.0, "a", 3, 10, 0)]
    tell(scheduler, arrived(10.0, "b", 2, 10))
    assert tell(scheduler, arrived(11.0, "a", 3, 10))[1:] == [
        commit(
            11.0,
            1,
            (GENERAL,),
            fold(10.0, "b", 2, 10, GENERAL, 0.5),
            fold(11.0, "a", 3, 10, GENERAL, 0.5),
        ),
        start(11.0, "a", 4, 10, 1, group=1),
        start(11.0, "b", 5, 10, 1, group=1),
    ]


def test_the_last_of_the_first_round_to_lose_its_task_does_not_hold_up_the_tiers() -> None:
    scheduler = tiered(min_clients=2)
    tell(scheduler, joined("a"), joined("b"), arrived(10.0, "a", 1, 10))
    assert tell(scheduler, task_lost(11.0, "b", 2)) == [
        commit(11.0, 1, (GENERAL,), fold(10.0, "a", 1, 10, GENERAL, 0.5)),
        start(11.0, "a", 3, 10, 1, group=1),
        start(11.0, "b", 4, 10, 1),
    ]


def test_a_first_round_in_which_all_lose_their_tasks_starts_over() -> None:
    scheduler = tiered()
    assert tell(scheduler, joined("a"), task_lost(1.0, "a", 1)) == [start(1.0, "a", 2, 10, 0)]


def test_when_all_leave_in_the_first_round_the_next_to_join_opens_another() -> None:
    scheduler = tiered(min_clients=2)
    tell(scheduler, joined("a"), joined("b"), arrived(10.0, "a", 1, 10), lost(11.0, "a"))
    assert tell(scheduler, lost(12.0, "b")) == [
        commit(12.0, 1, (GENERAL,), fold(10.0, "a", 1, 10, GENERAL, 0.5))
    ]
    assert tell(scheduler, joined("c", at=13.0)) == [start(13.0, "c", 3, 10, 1)]
    assert tell(scheduler, arrived(23.0, "c", 3, 10))[2:] == [start(23.0, "c", 4, 10, 2, group=1)]


def profiled() -> Scheduler:
    """a with half of the samples, b and c with a quarter each hold tasks of one step."""
    scheduler = tiered(min_clients=3, profiling="tasks")
    tell(scheduler, joined("a", samples=2), joined("b"))
    assert tell(scheduler, joined("c")) == [
        start(0.0, "a", 1, 1, 0),
        start(0.0, "b", 2, 1, 0),
        start(0.0, "c", 3, 1, 0),
    ]
    return scheduler


def test_profiling_tasks_are_discarded_and_three_quarters_of_the_samples_form_tiers() -> None:
    scheduler = profiled()
    assert tell(scheduler, arrived(1.0, "a", 1, 1)) == [discard(1.0, "a", 1, 1)]
    assert tell(scheduler, arrived(1.5, "b", 2, 1)) == [
        discard(1.5, "b", 2, 1),
        start(1.5, "a", 4, 10, 0, group=1),
        start(1.5, "b", 5, 10, 0, group=1),
    ]
    assert scheduler.pending() == []
    folds = fold(11.5, "a", 4, 10, 1, 0.5), fold(16.5, "b", 5, 10, 1, 0.25)
    assert tell(scheduler, arrived(11.5, "a", 4, 10)) == [folds[0]]
    assert tell(scheduler, arrived(16.5, "b", 5, 10)) == [
        folds[1],
        commit(16.5, 1, (1,), *folds),
        start(16.5, "a", 6, 10, 1, group=1),
        start(16.5, "b", 7, 10, 1, group=1),
    ]


def test_who_answers_its_profiling_task_later_and_is_too_slow_for_all_tiers_opens_another() -> None:
    scheduler = profiled()
    tell(scheduler, arrived(1.0, "a", 1, 1), arrived(1.5, "b", 2, 1))
    assert tell(scheduler, arrived(5.0, "c", 3, 1)) == [
        discard(5.0, "c", 3, 1),
        start(5.0, "c", 6, 10, 0, group=2),
    ]
    tell(scheduler, joined("d", at=6.0))
    assert tell(scheduler, arrived(26.0, "d", 7, 1)) == [
        discard(26.0, "d", 7, 1),
        start(26.0, "d", 8, 10, 0, group=3),
    ]


def test_who_answers_its_profiling_task_later_and_fits_a_tier_waits_for_its_next_round() -> None:
    scheduler = profiled()
    tell(scheduler, arrived(1.0, "a", 1, 1), arrived(1.5, "b", 2, 1))
    assert tell(scheduler, arrived(2.0, "c", 3, 1)) == [discard(2.0, "c", 3, 1)]
    tell(scheduler, arrived(11.5, "a", 4, 10))
    assert tell(scheduler, arrived(16.5, "b", 5, 10))[2:] == [
        start(16.5, "a", 6, 10, 1, group=1),
        start(16.5, "b", 7, 10, 1, group=1),
        start(16.5, "c", 8, 10, 1, group=1),
    ]


def test_a_profiling_task_that_is_lost_is_given_again_before_and_after_tiers_are_formed() -> None:
    scheduler = profiled()
    assert tell(scheduler, task_lost(0.5, "c", 3)) == [start(0.5, "c", 4, 1, 0)]
    tell(scheduler, arrived(1.0, "a", 1, 1), arrived(1.5, "b", 2, 1))
    assert tell(scheduler, task_lost(1.6, "c", 4)) == [start(1.6, "c", 7, 1, 0)]


def test_when_one_that_is_being_measured_leaves_the_others_may_be_enough_for_tiers() -> None:
    scheduler = profiled()
    tell(scheduler, arrived(1.0, "a", 1, 1), joined("d", at=1.0))
    assert tell(scheduler, lost(1.2, "c")) == []  # a has 2 of 4
    assert tell(scheduler, lost(1.3, "b")) == []  # 2 of 3
    assert tell(scheduler, lost(1.4, "d")) == [start(1.4, "a", 5, 10, 0, group=1)]


def test_a_profiling_task_has_one_step_at_least_and_equal_weights_count_clients() -> None:
    settings = TieredSettings(steps=4, profiling="tasks", min_clients=3, weights="equal")
    scheduler = Scheduler(Tiered(settings))
    tell(scheduler, joined("a", samples=1000), joined("b"), joined("c"))
    assert tell(scheduler, arrived(1.0, "a", 1, 1)) == [discard(1.0, "a", 1, 1)]
    assert tell(scheduler, arrived(2.0, "b", 2, 1)) == [discard(2.0, "b", 2, 1)]
    assert len(tell(scheduler, arrived(3.0, "c", 3, 1))) == 4  # two of three are too few


def test_one_that_waited_in_its_tier_may_leave() -> None:
    scheduler = two_tiers()
    ours = fold(60.0, "a", 4, 10, 1, THIRD)
    tell(scheduler, arrived(60.0, "a", 4, 10))
    assert tell(scheduler, lost(61.0, "a")) == []
    theirs = fold(65.0, "b", 5, 10, 1, THIRD)
    assert tell(scheduler, arrived(65.0, "b", 5, 10)) == [
        theirs,
        commit(65.0, 2, (1,), ours, theirs),
        start(65.0, "b", 7, 10, 2, group=1),
    ]


def test_one_that_was_quarantined_is_measured_again() -> None:
    scheduler = two_tiers()
    tell(scheduler, refused(51.0, "c", 6), refused(52.0, "c", 7))
    assert tell(scheduler, refused(53.0, "c", 8)) == [quarantine(53.0, "c")]
    assert tell(scheduler, lifted(54.0, "c")) == [start(54.0, "c", 9, 10, 1)]


# Compass: the course of a run, and pace


def test_a_first_answer_is_applied_at_once_and_opens_a_group() -> None:
    scheduler = compass(min_clients=2)
    tell(scheduler, joined("a", samples=1), joined("b", samples=3))
    answer = first(2.0, "a", 1, 0.25)
    assert tell(scheduler, arrived(2.0, "a", 1, 20)) == [
        answer,
        commit(2.0, 1, (DIRECT,), answer),
        deadline(14.0, 1),
        start(2.0, "a", 3, 100, 1, group=1),
    ]


def test_a_group_merges_with_its_last_arrival_and_goes_on_fastest_first() -> None:
    scheduler = compass(min_clients=2)
    tell(scheduler, joined("a"), joined("b"), arrived(2.0, "b", 2, 20), arrived(4.0, "a", 1, 20))
    slow, fast = fold(11.0, "a", 4, 40, 1, 0.5), fold(12.0, "b", 3, 100, 1, 0.5, 1)
    assert tell(scheduler, arrived(11.0, "a", 4, 40)) == [slow]
    assert tell(scheduler, arrived(12.0, "b", 3, 100)) == [
        fast,
        commit(12.0, 3, (1,), slow, fast),
        deadline(24.0, 2),
        start(12.0, "b", 5, 100, 3, group=2),
        start(12.0, "a", 6, 57, 3, group=2),
    ]


def test_new_groups_are_clamped_to_q_min_when_the_fast_ones_come_back_too_soon() -> None:
    scheduler = compass(min_clients=2)
    tell(scheduler, joined("a"), joined("b"), arrived(2.0, "a", 1, 20))
    answer = tell(scheduler, arrived(11.0, "b", 2, 4))  # 2.75 s a step, 11 s to T_exp = 22
    assert answer[2:] == [deadline(11.0 + 55 * 1.2, 2), start(11.0, "b", 4, 20, 2, group=2)]


def test_a_group_whose_expected_time_has_passed_is_no_guide_for_a_new_one() -> None:
    scheduler = compass(min_clients=2)
    tell(scheduler, joined("a"), joined("b"), arrived(2.0, "a", 1, 20))
    answer = tell(scheduler, arrived(12.0, "b", 2, 4))  # T_a = 12 is now, T_max = 14 is not yet
    assert answer[-1] == start(12.0, "b", 4, 100, 2, group=2)


def test_an_overhead_aware_pace_tells_the_fixed_cost_from_the_steps() -> None:
    scheduler = compass(min_clients=2, pace=PaceSettings(overhead_aware=True))
    tell(scheduler, joined("a"), joined("b"))
    answer = tell(scheduler, arrived(6.0, "a", 1, 20, compute=2.0))
    assert scheduler.pace("a") == Pace(seconds_per_step=0.1, overhead=4.0)
    assert answer[2:] == [
        deadline(6.0 + (4.0 + 10.0) * 1.2, 1),
        start(6.0, "a", 3, 100, 1, group=1),  # expected at 20
    ]
    answer = tell(scheduler, arrived(9.0, "b", 2, 20, compute=4.0))
    assert answer[-1] == start(9.0, "b", 4, 30, 2, group=1)  # 5 s overhead + 30 steps of 0.2 s


def test_an_overhead_that_does_not_fit_any_group_still_gets_q_min_steps() -> None:
    scheduler = compass(min_clients=2, pace=PaceSettings(overhead_aware=True))
    tell(scheduler, joined("a"), joined("b"), arrived(2.0, "a", 1, 20, compute=2.0))
    answer = tell(scheduler, arrived(11.0, "b", 2, 20, compute=0.0))  # 11 s overhead; T_exp = 22
    assert answer[-1] == start(11.0, "b", 4, 20, 2, group=2)


@pytest.mark.parametrize("compute", [None, math.nan, math.inf, -1.0, 6.5])
def test_a_compute_time_that_cannot_be_is_not_believed(compute: float | None) -> None:
    scheduler = compass(pace=PaceSettings(overhead_aware=True))
    answer = tell(scheduler, joined("a"), arrived(6.0, "a", 1, 20, compute))
    assert answer[2:] == [deadline(42.0, 1), start(6.0, "a", 2, 100, 1, group=1)]


def test_without_the_option_the_reported_compute_time_is_ignored() -> None:
    scheduler = compass()
    tell(scheduler, joined("a"), arrived(6.0, "a", 1, 20, compute=2.0))
    assert scheduler.pace("a") == Pace(seconds_per_step=0.3, overhead=0.0)


def test_overhead_is_smoothed_like_the_pace() -> None:
    scheduler = compass(pace=PaceSettings(overhead_aware=True, newest_weight=0.5))
    tell(scheduler, joined("a"), arrived(6.0, "a", 1, 20, compute=2.0))
    tell(scheduler, arrived(28.0, "a", 2, 100, compute=20.0))
    pace = scheduler.pace("a")
    assert pace is not None
    assert [pace.seconds_per_step, pace.overhead] == pytest.approx([0.15, 3.0])


def test_an_answer_in_no_time_at_all_is_taken() -> None:
    scheduler = compass()
    answer = tell(scheduler, joined("a"), arrived(0.0, "a", 1, 20))
    assert answer[-1] == start(0.0, "a", 2, 100, 1, group=1)


# what holds for all of them


def test_a_stranger_holds_no_task_and_has_no_pace() -> None:
    scheduler = compass()
    assert (scheduler.outstanding("x"), scheduler.pace("x")) == (None, None)


@pytest.mark.parametrize("at", [4.0, math.nan, math.inf, -math.inf])
def test_events_out_of_order_or_at_no_time_are_refused(at: float) -> None:
    scheduler = immediate()
    tell(scheduler, joined("a", at=5.0))
    with pytest.raises(EventRefused, match=r"comes after an event at t=5.0s. Send events in the"):
        tell(scheduler, arrived(at, "a", 1, 10))


def test_time_may_step_back_by_an_instant() -> None:
    scheduler = immediate()
    tell(scheduler, joined("a", at=5.0))
    assert len(tell(scheduler, arrived(5.0 - 1e-6, "a", 1, 10))) == 3
    assert scheduler.now == 5.0


@pytest.mark.parametrize("samples", [0, -3])
def test_a_client_without_samples_cannot_join(samples: int) -> None:
    complaint = rf"client 'a' joins with {samples} samples \(t=0s\); allowed: at least 1"
    with pytest.raises(EventRefused, match=complaint):
        tell(immediate(), joined("a", samples=samples))


def test_a_deadline_before_its_time_is_refused() -> None:
    scheduler = compass()
    tell(scheduler, joined("a"), arrived(2.0, "a", 1, 20))
    complaint = r"the deadline of group 1 is at t=14.0s, not t=13.0s. Send DeadlinePassed at"
    with pytest.raises(EventRefused, match=complaint):
        tell(scheduler, passed(13.0, 1))


@pytest.mark.parametrize("scheduler", [immediate(), synchronous(), tiered(), buffered_by(2)])
def test_without_groups_a_deadline_means_nothing(scheduler: Scheduler) -> None:
    assert tell(scheduler, joined("a"), passed(5.0, 1)) == []
    assert scheduler.policy.pass_deadlines(scheduler.roster, before=math.inf) == []


def test_a_clients_steps_are_counted_through_lost_tasks_leaving_coming_back_and_a_restart() -> None:
    scheduler = immediate()

    def before(*events: Event) -> list[tuple[str, int]]:
        said = tell(scheduler, *events)
        return [(c.client, c.steps_before) for c in said if isinstance(c, StartTraining)]

    assert before(joined("a")) == [("a", 0)]
    assert before(joined("b")) == [("b", 0)]
    assert before(arrived(1.0, "a", 1, 7)) == [("a", 10)]  # 3 steps were not done: they are skipped
    assert before(task_lost(2.0, "a", 3)) == [("a", 20)]
    assert before(lost(3.0, "a"), joined("a", 4.0)) == [("a", 30)]
    assert before(joined("a", 5.0)) == [("a", 40)]
    scheduler, saved = immediate(), json.loads(json.dumps(scheduler.to_json()))
    scheduler.restore(saved)
    held = scheduler.outstanding("a")
    assert held is not None
    assert (held.steps_before, held.steps) == (40, 10)
    assert before(arrived(6.0, "a", held.task, 10)) == [("a", 50)]
    assert before(arrived(6.0, "b", 2, 10)) == [("b", 10)]
    assert before(lost(7.0, "a")) == []
    scheduler, saved = immediate(), json.loads(json.dumps(scheduler.to_json()))
    scheduler.restore(saved)
    assert before(joined("a", 8.0)) == [("a", 60)]
