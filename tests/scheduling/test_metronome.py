"""Metronome: beats, who is due at them, who waits, and what happens to those that come late."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.memory_journal import MemoryJournal
from tests.scheduling.conversations import arrived, joined, lost, tell

from fedcompass.errors import SettingsError
from fedcompass.scheduling.beats import Beats, KnownPaces
from fedcompass.scheduling.commands import (
    Command,
    Commit,
    Fold,
    FoldAgain,
    SetDeadline,
    StartTraining,
)
from fedcompass.scheduling.events import TaskLost
from fedcompass.scheduling.metronome import Metronome, MetronomeSettings
from fedcompass.scheduling.pace import Pace
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.simulation.timetable import timetable
from fedcompass.theory import beat_shares

PACES = {"a": 0.01, "b": 0.1, "c": 0.2, "d": 0.4, "e": 2.0}
"""20 steps take 0.2, 2, 4, 8 and 40 s, so beats of 8 s are long enough for four of five."""


def metronome(clients: int = 5, **settings: object) -> Scheduler:
    given = {"min_steps": 20, "max_steps": 200, "min_clients": clients, **settings}
    return Scheduler(Metronome(MetronomeSettings(**given)))  # type: ignore[arg-type]


def warmed_up(scheduler: Scheduler, clients: Sequence[str] = "abcd") -> list[Command]:
    """Everybody joins at 0 and these answer their warm-up in time; what the last one led to."""
    for client in PACES:
        tell(scheduler, joined(client))
    said: list[Command] = []
    for client in clients:
        said = tell(scheduler, arrived(20 * PACES[client], client, "abcde".index(client) + 1, 20))
    return said


def sent(commands: Sequence[Command]) -> dict[str, tuple[int, int | None]]:
    """Steps and beat of everybody who was sent to train."""
    return {c.client: (c.steps, c.group) for c in commands if isinstance(c, StartTraining)}


def test_the_first_merge_waits_for_most_samples_and_never_for_the_rest() -> None:
    scheduler = metronome()
    assert [type(command) for command in warmed_up(scheduler, "abc")] == [Fold]
    said = tell(scheduler, arrived(8.0, "d", 4, 20))
    merge = next(command for command in said if isinstance(command, Commit))
    assert [fold.client for fold in merge.contributions] == ["a", "b", "c", "d"]
    assert [fold.share for fold in merge.contributions] == [0.2] * 4
    assert sent(said) == {"a": (200, 1), "b": (80, 1), "c": (40, 1), "d": (20, 1)}
    assert [c for c in said if isinstance(c, SetDeadline)] == [SetDeadline(at=17.6, group=1)]


def test_a_client_that_is_too_fast_does_its_most_steps_and_waits_for_the_beat() -> None:
    scheduler = metronome()
    warmed_up(scheduler)
    assert [type(c) for c in tell(scheduler, arrived(10.0, "a", 6, 200))] == [Fold]
    for client, task, steps in (("b", 7, 80), ("c", 8, 40)):
        assert [type(c) for c in tell(scheduler, arrived(16.0, client, task, steps))] == [Fold]
    said = tell(scheduler, arrived(16.0, "d", 9, 20))
    assert sent(said) == {"a": (200, 2), "b": (80, 2), "c": (40, 2), "d": (20, 2)}
    assert [len(c.contributions) for c in said if isinstance(c, Commit)] == [4]


def test_a_slow_client_takes_as_many_beats_as_it_needs_and_the_others_meet_it_there() -> None:
    entries = list(timetable(metronome(), dict.fromkeys(PACES, 1), lambda c, _: PACES[c], 100.0))
    slow = [entry for entry in entries if isinstance(entry, StartTraining) and entry.client == "e"]
    assert [(entry.at, entry.steps) for entry in slow] == [(0.0, 20), (40.0, 20), (80.0, 20)]
    merges = [entry for entry in entries if isinstance(entry, Commit)]
    assert [entry.at for entry in merges[:6]] == [8.0, 16.0, 24.0, 32.0, 40.0, 48.0]
    assert [len(entry.contributions) for entry in merges[:10]] == [4, 4, 4, 4, 5, 4, 4, 4, 4, 5]


def test_one_that_misses_its_beat_is_merged_with_the_next_and_goes_on_at_once() -> None:
    scheduler = metronome()
    warmed_up(scheduler)
    for client, task, steps in (("a", 6, 200), ("b", 7, 80), ("c", 8, 40)):
        tell(scheduler, arrived(16.0, client, task, steps))
    late = tell(scheduler, arrived(20.0, "d", 9, 20))  # the deadline was at 17.6
    merge = next(command for command in late if isinstance(command, Commit))
    assert (merge.at, [fold.client for fold in merge.contributions]) == (17.6, ["a", "b", "c"])
    folds = [command for command in late if isinstance(command, Fold)]
    assert [(fold.client, fold.buffer, fold.staleness) for fold in folds] == [("d", 0, 1)]
    assert sent(late)["d"][0] >= 20
    assert [fold.client for fold in scheduler.pending()] == ["d"]


def test_where_speeds_are_alike_it_is_one_group_with_the_papers_steps() -> None:
    paces = {"a": 0.1, "b": 0.2, "c": 0.25, "d": 0.4, "e": 0.5}
    entries = timetable(
        metronome(max_steps=100, covered=1.0), dict.fromkeys(paces, 1), lambda c, _: paces[c], 60.0
    )
    merges = [entry for entry in entries if isinstance(entry, Commit)]
    assert all(len(entry.contributions) == 5 for entry in merges)
    assert all(fold.staleness == 0 for entry in merges for fold in entry.contributions)


def test_an_update_that_took_five_beats_can_count_five_times() -> None:
    shares = {}
    for absent in ("skip", "catch-up"):
        scheduler = metronome(absent=absent)
        entries = timetable(scheduler, dict.fromkeys(PACES, 1), lambda c, _: PACES[c], 80.0)
        merged = [
            fold for entry in entries if isinstance(entry, Commit) for fold in entry.contributions
        ]
        shares[absent] = {c: [fold.share for fold in merged if fold.client == c] for c in "ae"}
    assert shares["skip"] == {"a": [0.2] * 10, "e": [0.2, 0.2]}
    assert shares["catch-up"] == {"a": [0.2] * 10, "e": [pytest.approx(1.0)] * 2}


@given(
    paces=st.lists(st.floats(0.01, 1), min_size=1, max_size=6),
    noise=st.lists(st.floats(0.5, 2), min_size=1, max_size=9),
)
def test_to_catch_up_is_to_count_once_for_every_merge_but_for_no_more_than_q_max_steps(
    paces: list[float], noise: list[float]
) -> None:
    """However late one is; answers of one client that wait for the same merge count once each."""

    def pace(client: str, local_round: int) -> float:
        return paces[int(client)] * noise[(local_round + int(client)) % len(noise)]

    scheduler = metronome(clients=len(paces), min_steps=2, max_steps=20, absent="catch-up")
    samples = {str(client): 1 for client in range(len(paces))}
    journal = MemoryJournal()
    list(timetable(scheduler, samples, pace, 60.0, journal=journal))
    said = [record for record in journal.records if "command" in record]
    starts = {c["task"]: c["version"] for c in said if c["command"] == "StartTraining"}
    for client in samples:
        folds = [c for c in said if c["command"] == "Fold" and c["client"] == client]
        counted = 0
        for fold in folds:
            merged_as = starts[fold["task"]] + fold["staleness"] + 1
            expected = max(1, min(merged_as - counted, 20 / fold["steps"]))
            assert fold["share"] * len(samples) == pytest.approx(expected)
            counted = merged_as


def test_a_fast_client_that_is_late_once_does_not_count_for_all_it_missed() -> None:
    """It did Q_max steps, as many as anybody in a merge: more of that is no catching up."""
    scheduler = metronome(absent="catch-up")
    hiccup = {("a", 3): 0.5}  # its third task takes fifty times as long as the others
    samples = dict.fromkeys(PACES, 1)
    entries = timetable(
        scheduler, samples, lambda c, number: hiccup.get((c, number), PACES[c]), 200.0
    )
    folds = [one for entry in entries if isinstance(entry, Commit) for one in entry.contributions]
    late = [one for one in folds if one.client == "a" and one.staleness > 5]
    assert [one.steps for one in late] == [200]
    assert [one.share for one in late] == [pytest.approx(0.2)]


def test_who_is_absent_from_a_beat_is_remembered_with_its_last_update() -> None:
    scheduler = metronome(absent="remember")
    warmed_up(scheduler)
    first = tell(scheduler, arrived(14.0, "e", 5, 20))  # too slow for one beat of 8 s
    assert sent(first) == {"e": (25, 2)}
    said = all_but_the_slow_one_answer(scheduler, 16.0)
    assert [type(c) for c in said[:2]] == [Fold, Commit]  # the merge has all five
    said = all_but_the_slow_one_answer(scheduler, 24.0)
    again, merge = said[1:3]
    assert again == FoldAgain(
        at=24.0, client="e", task=5, buffer=3, staleness=2, share=0.2, steps=20
    )
    assert isinstance(merge, Commit)
    assert [fold.client for fold in merge.contributions] == ["a", "b", "c", "d"]


def test_one_whose_update_waits_for_a_later_beat_is_not_counted_before_and_then() -> None:
    paces = {"a": 0.01, "b": 0.4, "e": 0.7, "f": 0.7}
    scheduler = metronome(clients=4, covered=0.5, absent="remember")
    tell(scheduler, *(joined(client) for client in paces))
    for client, task in (("a", 1), ("b", 2)):
        tell(scheduler, arrived(20 * paces[client], client, task, 20))
    for client, task in (("e", 3), ("f", 4)):
        tell(scheduler, arrived(14.0, client, task, 20))
    answers(scheduler, 16.0, "a", "b")
    answers(scheduler, 22.0, "e")  # for the beat at 32 s, which f is due at too
    said = answers(scheduler, 24.0, "a", "b")
    assert [c.client for c in said if isinstance(c, FoldAgain)] == ["f"]


def all_but_the_slow_one_answer(scheduler: Scheduler, at: float) -> list[Command]:
    return answers(scheduler, at, *"abcd")


def answers(scheduler: Scheduler, at: float, *clients: str) -> list[Command]:
    """What the last of these clients' answers led to."""
    said: list[Command] = []
    for client in clients:
        order = scheduler.outstanding(client)
        assert order is not None
        said = tell(scheduler, arrived(at, client, order.task, order.steps))
    return said


def test_one_that_leaves_is_not_waited_for_and_one_that_waits_may_leave() -> None:
    scheduler = metronome()
    warmed_up(scheduler)
    tell(scheduler, arrived(10.0, "a", 6, 200))
    tell(scheduler, arrived(16.0, "b", 7, 80), arrived(16.0, "c", 8, 40))
    tell(scheduler, lost(16.0, "a"))
    said = tell(scheduler, lost(16.5, "d"))
    merge = next(command for command in said if isinstance(command, Commit))
    assert [fold.client for fold in merge.contributions] == ["a", "b", "c"]
    assert set(sent(said)) == {"b", "c"}


def test_a_warm_up_whose_last_ones_die_begins_with_those_it_has() -> None:
    scheduler = metronome()
    warmed_up(scheduler, "ab")
    said = [tell(scheduler, lost(5.0 + n, client)) for n, client in enumerate("edc")]
    assert said[:2] == [[], []]  # two of four have answered, then two of three
    assert any(isinstance(command, Commit) for command in said[2])


def test_one_whose_warm_up_was_lost_is_waited_for_while_it_warms_up_again() -> None:
    scheduler = metronome(clients=2)
    tell(scheduler, joined("a", samples=10), joined("b", samples=90))
    assert [type(c) for c in tell(scheduler, arrived(1.0, "a", 1, 20))] == [Fold]
    said = tell(scheduler, TaskLost(at=2.0, client="b", task=2))
    assert [(type(c), c.group) for c in said if isinstance(c, StartTraining)] == [
        (StartTraining, None)
    ]
    assert scheduler.version == 0
    assert any(isinstance(c, Commit) for c in tell(scheduler, arrived(9.0, "b", 3, 20)))


def test_a_client_ten_million_times_as_slow_costs_no_more_than_any() -> None:
    scheduler = metronome(clients=2, covered=0.4)
    tell(scheduler, joined("a"), joined("b"))
    tell(scheduler, arrived(20e-6, "a", 1, 20))
    said = tell(scheduler, arrived(200.0, "b", 2, 20))
    assert sent(said)["b"][0] == 20
    assert len(scheduler.policy.to_json()["beats"]) <= 2


def test_a_beat_that_is_a_hair_too_short_for_the_fewest_steps_is_not_given() -> None:
    pace, period = Pace(seconds_per_step=0.1, overhead=0.0), 2.0 / (1 + 5e-7)
    beat, is_new = Beats(min_steps=20, latest=1.2).within_reach(pace, 0.0, period)
    assert is_new
    assert beat.expected == pytest.approx(2 * period)


@given(
    clients=st.lists(
        st.tuples(st.floats(1e-6, 1e3), st.floats(0, 10), st.integers(1, 50)), min_size=1
    ),
    steps=st.tuples(st.integers(1, 50), st.integers(0, 500)),
    covered=st.floats(0.01, 1),
)
def test_a_beat_is_long_enough_for_most_and_no_longer_than_it_must_be(
    clients: list[tuple[float, float, int]], steps: tuple[int, int], covered: float
) -> None:
    weighed = [(Pace(seconds_per_step=s, overhead=o), n) for s, o, n in clients]
    least, most = steps[0], sum(steps)
    total = sum(weight for _, weight in weighed)
    period = known(weighed, least, most).period(covered * total)
    reaches = sum(weight for pace, weight in weighed if pace.seconds_for(least) <= period)
    assert reaches >= covered * total - 1e-6
    quickest = min(pace.seconds_for(most) for pace, _ in weighed)
    assert period >= quickest
    sooner = sum(weight for pace, weight in weighed if pace.seconds_for(least) < period)
    assert period == quickest or sooner < covered * total


def known(clients: Sequence[tuple[Pace, int]], min_steps: int, max_steps: int) -> KnownPaces:
    paces = KnownPaces(min_steps, max_steps)
    for number, (pace, weight) in enumerate(clients):
        paces.note(str(number), pace, weight)
    return paces


@pytest.mark.parametrize("overhead", [0.0, 1.5])
def test_theory_tells_the_period_the_steps_and_the_waiting_of_the_schedule(overhead: float) -> None:
    period, shares = beat_shares(list(PACES.values()), 20, 200, overhead=overhead)
    weighed = [(Pace(seconds_per_step=s, overhead=overhead), 1) for s in PACES.values()]
    assert period == pytest.approx(known(weighed, 20, 200).period(0.75 * len(weighed)))
    entries = timetable(metronome(), dict.fromkeys(PACES, 1), lambda c, _: PACES[c], 200.0)
    if not overhead:
        steps = {e.client: e.steps for e in entries if isinstance(e, StartTraining)}
        assert list(steps.values()) == [share.steps for share in shares]
    assert shares[0].waiting == pytest.approx(1 - (overhead + 2.0) / period)


def test_theory_gives_everybody_a_beat_and_the_fewest_steps_however_far_they_are_apart() -> None:
    _, shares = beat_shares([1e-5, 100.0, 100.0], 20, 200)
    assert [(one.beats, one.steps) for one in shares] == [(1, 200), (1, 20), (1, 20)]
    _, shares = beat_shares([0.1, 0.1], 20, 200, overhead=[0.0, 10.0])
    assert [(one.beats, one.steps) for one in shares] == [(1, 200), (1, 100)]
    _, shares = beat_shares([1.0, 1.0000005], 20, 20, covered=0.5)
    assert [(one.beats, one.steps) for one in shares] == [(1, 20), (2, 20)]


@pytest.mark.parametrize(
    ("paces", "options", "message"),
    [
        ([], {}, r"seconds_per_step is \[\]; allowed: at least one pace"),
        ([0.1, -1.0], {}, "seconds_per_step is -1.0; allowed: above 0 and finite"),
        ([0.1], {"overhead": -1.0}, "overhead is -1.0; allowed: at least 0 and finite"),
        ([0.1, 0.2], {"overhead": [1.0]}, r"overhead is \[1.0\]; allowed: one number, or one a"),
        ([0.1, 0.2], {"samples": [3]}, r"samples is \[3\]; allowed: one number a client"),
        ([0.1, 0.2], {"samples": [3, 0]}, "samples is 0; allowed: above 0 and finite"),
    ],
)
def test_theory_says_which_number_cannot_be(
    paces: list[float], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        beat_shares(paces, 20, 200, **options)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"covered": 0}, "covered is 0; allowed: a number above 0 and at most 1"),
        ({"absent": "pray"}, "absent is 'pray'; allowed: one of 'skip', 'remember', 'catch-up'"),
        ({"min_steps": 300}, "min_steps is 300; allowed: at least 1 and at most max_steps"),
    ],
)
def test_a_wrong_setting_is_one_line(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        MetronomeSettings(**values)  # type: ignore[arg-type]


def test_the_schedule_of_five_unequal_clients_whole(golden: Callable[[str, str], None]) -> None:
    """Client e speeds up to 0.5 s a step from its second task on."""

    def pace(client: str, local_round: int) -> float:
        return 0.5 if client == "e" and local_round >= 1 else PACES[client]

    lines = []
    for entry in timetable(metronome(), dict.fromkeys(PACES, 1), pace, 90.0):
        if isinstance(entry, StartTraining):
            where = f"beat {entry.group}" if entry.group else "warm-up"
            lines.append(f"{entry.at:6.2f}  {entry.client} trains {entry.steps:>3}  ({where})")
        else:
            who = ", ".join(
                f"{fold.client} (stale {fold.staleness})" for fold in entry.contributions
            )
            lines.append(f"{entry.at:6.2f}  version {entry.version} <- {who}")
    golden("metronome.txt", "\n".join(lines) + "\n")
