"""Merges by sums: what a sum leaves out waits or is lost, and nothing is counted twice."""

import json
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any

import pytest
import torch
from tests.memory_journal import MemoryJournal
from tests.test_coordinator import LAYOUT, answer, journal, state, weights
from torch import Tensor

from fedcompass.aggregation import FlatState
from fedcompass.coordinator import Coordinator, Update
from fedcompass.errors import CheckpointError
from fedcompass.runs.codec import event_from_json
from fedcompass.runs.tally import Tally
from fedcompass.scheduling.commands import StartTraining
from fedcompass.strategies import secured
from fedcompass.summed_merges import Asked, OpenedSum, SpoilerSearch
from fedcompass.vocabulary import ClientId, TaskId


class Sites:
    """A source of sums that leaves out whom a test says."""

    def __init__(self, leave_out: Collection[str] = (), lost: Collection[int] = ()) -> None:
        self.leave_out, self.lost = leave_out, lost
        self.kept: dict[TaskId, FlatState] = {}
        self.asked: list[Asked] = []

    def keep(self, client: ClientId, task: TaskId, update: FlatState | None) -> None:
        assert update is not None
        self.kept[task] = update

    def opened(self, number: int, asked: Asked) -> OpenedSum:
        self.asked.append(asked)
        there = [client for client in asked if client not in self.leave_out]
        if len(there) < 3:
            return OpenedSum(None, tuple(asked), self.lost, failed="too few of them stayed")
        total = LAYOUT.zeros()
        for client in there:
            for task, (step_weight, weight) in asked[client].items():
                total.trainable.add_(self.kept[task].trainable, alpha=step_weight)
                total.averaged.add_(self.kept[task].averaged, alpha=weight)
        return OpenedSum(total, there, self.lost, {"masked": {"bytes_up": 1}})

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {}

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        pass


def of_four(sites: Sites) -> Coordinator:
    made = Coordinator(
        secured("fedavg", steps=4, min_clients=4, weights="equal", model_buffers="corrected"),
        LAYOUT,
        state([1.0, 2.0, 3.0]),
        MemoryJournal(),
        sites,
    )
    for client in "abcd":
        made.join(0.0, client, 1)
    return made


def all_answer(made: Coordinator, at: float, numbers: list[float]) -> None:
    for client in "abcd":
        answer(made, at, client, numbers)


def test_a_sum_moves_the_model_as_single_updates_would() -> None:
    made = of_four(Sites())
    all_answer(made, 1.0, [1.0, 2.0, 3.0])
    assert weights(made) == [0.0, 0.0, 0.0]
    [commit] = [line for line in journal(made) if line.get("command") == "Commit"]
    assert commit["masked"] == {"bytes_up": 1}
    assert "left_out" not in commit


def test_an_update_that_the_sum_left_out_counts_with_the_next() -> None:
    sites = Sites(leave_out="d")
    made = of_four(sites)
    all_answer(made, 1.0, [4.0, 0.0, 0.0])
    assert weights(made) == [-3.0, 2.0, 3.0]  # the mean of three
    assert [fold.client for fold in made.scheduler.pending()] == ["d"]
    sites.leave_out = ()
    all_answer(made, 2.0, [0.0, 5.0, 0.0])
    assert weights(made) == pytest.approx([-3.0 - 4.0 / 5, 2.0 - 4.0, 3.0])
    assert [sorted(tasks) for tasks in sites.asked[1].values()] == [[4, 8], [5], [6], [7]]
    assert made.scheduler.pending() == []


def test_a_round_that_opens_nothing_changes_nothing_and_all_wait() -> None:
    sites = Sites(leave_out="abcd")
    made = of_four(sites)
    all_answer(made, 1.0, [4.0, 0.0, 0.0])
    assert weights(made) == [1.0, 2.0, 3.0]
    assert made.state({})[0]["model_buffers.informed"].item() == 0.0
    assert [fold.client for fold in made.scheduler.pending()] == list("abcd")
    sites.leave_out = ()
    all_answer(made, 2.0, [0.0, 4.0, 0.0])
    assert weights(made) == [-1.0, 0.0, 3.0]  # the mean of eight
    assert made.state({})[0]["model_buffers.informed"].item() == 1.0


def test_a_sum_that_fails_raises_no_version_and_its_clients_go_on_from_the_one_that_stands() -> (
    None
):
    sites = Sites()
    made = of_four(sites)
    all_answer(made, 1.0, [4.0, 0.0, 0.0])
    sites.leave_out, sites.lost = "abcd", [5, 6, 7, 8]
    for client in "abc":
        assert answer(made, 2.0, client, [9.0, 9.0, 9.0]) == []
    given = answer(made, 2.0, "d", [9.0, 9.0, 9.0])
    started = [one for one in given if isinstance(one, StartTraining)]
    assert made.version == 1
    assert [(one.client, one.task, one.version) for one in started] == [
        ("a", 9, 1),
        ("b", 10, 1),
        ("c", 11, 1),
        ("d", 12, 1),
    ]
    assert all(made.scheduler.outstanding(one.client) == one for one in started)
    start = made.start_model(started[0])
    assert start.trainable.tolist() == weights(made) == [-3.0, 2.0, 3.0]
    assert made.scheduler.pending() == []  # they were revealed: no merge will have them
    sites.leave_out = ()
    all_answer(made, 3.0, [0.0, 4.0, 0.0])
    assert (made.version, weights(made)) == (2, [-3.0, -2.0, 3.0])
    folds = [line for line in journal(made) if line.get("command") == "Fold"]
    assert [line["staleness"] for line in folds] == [0] * 12


def test_the_journal_says_of_a_failed_sum_who_took_part_and_what_is_lost() -> None:
    made = of_four(Sites(leave_out="abcd", lost=[1, 2, 4]))
    all_answer(made, 1.0, [4.0, 0.0, 0.0])
    lines = journal(made)
    [commit] = [line for line in lines if line.get("command") == "Commit"]
    assert commit["failed"] == "too few of them stayed"
    assert (commit["members"], commit["lost"], commit["left_out"]) == (
        ["a", "b", "c", "d"],
        [1, 2, 4],
        [1, 2, 3, 4],
    )
    told = [line for line in lines if line.get("event") in ("MergeFailed", "UpdateReturned")]
    assert [(line["event"], line.get("task")) for line in told] == [
        ("MergeFailed", None),
        ("UpdateReturned", 3),
    ]
    tally = Tally()
    for line in lines[1:]:
        tally.take(line)
    assert (tally.version, tally.merges, tally.merged) == (0, 0, 0)
    assert (tally.failed_merges, tally.lost_updates) == (1, 3)


def test_of_a_client_whose_sums_fail_two_updates_wait_and_no_more() -> None:
    sites = Sites(leave_out="abcd")
    made = of_four(sites)
    for round_ in range(4):
        all_answer(made, 1.0 + round_, [4.0, 0.0, 0.0])
    waiting = [fold.task for fold in made.scheduler.pending()]
    assert sorted(waiting) == [9, 10, 11, 12, 13, 14, 15, 16]
    sites.leave_out = ()
    all_answer(made, 9.0, [4.0, 0.0, 0.0])
    assert [sorted(tasks) for tasks in sites.asked[-1].values()] == [
        [9, 13, 17],
        [10, 14, 18],
        [11, 15, 19],
        [12, 16, 20],
    ]
    assert made.version == 1


def test_an_update_that_nobody_has_any_more_is_not_waited_for() -> None:
    made = of_four(Sites(leave_out="d", lost=[4]))
    all_answer(made, 1.0, [4.0, 0.0, 0.0])
    assert made.scheduler.pending() == []
    [commit] = [line for line in journal(made) if line.get("command") == "Commit"]
    assert commit["left_out"] == [4]


def test_a_client_that_left_in_the_event_of_the_merge_is_not_asked() -> None:
    sites = Sites()
    made = of_four(sites)
    for client in "abc":
        answer(made, 1.0, client, [4.0, 0.0, 0.0])
    made.lose(2.0, "a")
    made.lose(3.0, "d")  # the round is complete, with two that are there
    assert sites.asked == []
    assert weights(made) == [1.0, 2.0, 3.0]


def test_a_journal_repeats_what_its_sums_left_out() -> None:
    sites = Sites(leave_out="d")
    made = of_four(sites)
    all_answer(made, 1.0, [4.0, 0.0, 0.0])
    again = of_four(Sites(leave_out="d"))
    events = [line for line in journal(made) if "event" in line][4:]
    for line in events:
        again.take_in_again(event_from_json(line), state([4.0, 0.0, 0.0]))
    again.return_left_out()
    assert again.scheduler.to_json() == made.scheduler.to_json()


def test_what_a_crash_cut_off_the_journal_is_told_at_its_end() -> None:
    made = of_four(Sites(leave_out="d"))
    all_answer(made, 1.0, [4.0, 0.0, 0.0])
    again = of_four(Sites(leave_out="d"))
    events = [line for line in journal(made) if "event" in line][4:-1]
    for line in events:
        again.take_in_again(event_from_json(line), state([4.0, 0.0, 0.0]))
    assert again.scheduler.pending() == []
    again.return_left_out()
    assert again.scheduler.to_json() == made.scheduler.to_json()


def test_a_checkpoint_knows_what_waits() -> None:
    made = of_four(Sites())
    answer(made, 1.0, "a", [4.0, 0.0, 0.0])
    tensors, facts = made.state({})
    sites = Sites()
    sites.kept[1] = state([4.0, 0.0, 0.0])
    again = of_four(sites)
    again.restore({name: tensor.clone() for name, tensor in tensors.items()}, facts)
    for client in "bcd":
        answer(again, 2.0, client, [0.0, 0.0, 0.0])
    assert weights(again) == [0.0, 2.0, 3.0]


def test_a_checkpoint_of_a_plain_run_is_refused() -> None:
    made = of_four(Sites())
    tensors, facts = made.state({})
    del facts["summed"]
    with pytest.raises(CheckpointError, match=r"secure\.enabled was changed after the checkpoint"):
        of_four(Sites()).restore(tensors, facts)


def test_an_update_that_is_not_finite_is_refused_by_its_own_client() -> None:
    made = of_four(Sites())
    order = made.scheduler.outstanding("a")
    assert order is not None
    update = Update(
        client="a",
        task=order.task,
        version=0,
        steps_done=4,
        tensors=FlatState(torch.full((3,), torch.nan), torch.zeros(1), torch.tensor([0])),
    )
    assert made.receive(1.0, update).refused is not None


@pytest.mark.parametrize(("clients", "most_failures"), [(4, 4), (5, 4), (8, 4), (9, 5), (20, 6)])
def test_who_always_spoils_sums_is_found_after_few_of_them(
    clients: int, most_failures: int
) -> None:
    everyone = [f"site-{number:02}" for number in range(clients)]
    for liar in everyone:
        search, failures = SpoilerSearch(), 0
        while (found := search.found(everyone)) is None:
            asked = search.chosen(everyone)
            assert len(asked) >= 3
            if liar in asked:
                failures += 1
                search.note_failed(asked, asked)
            else:
                search.note_opened(asked)
        assert found == liar
        assert failures <= most_failures


@pytest.mark.parametrize("seed", range(60))
def test_whenever_one_lies_and_whoever_is_there_no_other_is_found(seed: int) -> None:
    """It lies always, by chance, or only beside one that it wants to be found in its place."""
    random = Random(seed)
    everyone = [f"site-{number}" for number in range(random.randint(4, 9))]
    liar, victim = random.sample(everyone, 2)
    habits: list[Callable[[list[str]], bool]] = [
        lambda _: True,
        lambda _: random.random() < 0.4,
        lambda asked: victim in asked,
    ]
    search = SpoilerSearch()
    for _ in range(300):
        assert search.found(everyone) in (None, liar)
        asked = search.chosen(random.sample(everyone, random.randint(3, len(everyone))))
        assert len(asked) >= 3 or not asked
        if liar in asked and habits[seed % 3](asked):
            search.note_failed(asked, asked)
        else:
            search.note_opened(asked)
        search = SpoilerSearch.from_json(json.loads(json.dumps(search.to_json())))


def test_where_two_lie_the_search_begins_again() -> None:
    search = SpoilerSearch()
    search.note_failed("abc", "abc")
    search.note_failed("def", "def")
    assert search.suspects == ["d", "e", "f"]
    assert search.found("abcdef") is None
