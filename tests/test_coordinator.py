import re
import weakref
from collections.abc import Callable
from dataclasses import replace
from math import inf, isfinite, nan, sqrt
from typing import Any

import pytest
import torch
from tests.memory_journal import MemoryJournal
from torch import Tensor

from fedcompass.aggregation import FlatState, Layout, TensorSpec
from fedcompass.coordinator import Coordinator, DriverCommand, Update
from fedcompass.errors import CheckpointError, EventRefused
from fedcompass.scheduling.commands import Quarantine, SetDeadline, StartTraining
from fedcompass.scheduling.events import Event
from fedcompass.strategies import strategy
from fedcompass.vocabulary import Refusal

LAYOUT = Layout(
    (
        TensorSpec("weight", (3,), torch.float32, "trainable"),
        TensorSpec("running_mean", (1,), torch.float32, "averaged"),
        TensorSpec("batches", (), torch.int64, "counted"),
    )
)
FRESH = 0.9  # st(0) of FedCompass: alpha
ONE_OLD = 0.9 / sqrt(2)  # st(1): alpha (1+1)^-0.5


def state(numbers: list[float], mean: float = 0.0, batches: int = 0) -> FlatState:
    return FlatState(torch.tensor(numbers), torch.tensor([mean]), torch.tensor([batches]))


def coordinator(name: str, **settings: Any) -> Coordinator:
    """A model [1, 2, 3] and a journal that remembers."""
    return Coordinator(strategy(name, **settings), LAYOUT, state([1.0, 2.0, 3.0]), MemoryJournal())


def of_two(name: str, **settings: Any) -> Coordinator:
    """Client a with a quarter of the samples and b with the rest, both training."""
    made = coordinator(name, min_clients=2, **settings)
    made.join(0.0, "a", 1)
    made.join(0.0, "b", 3)
    return made


def answer_of(made: Coordinator, client: str, numbers: list[float]) -> Update:
    """A good answer to the client's task."""
    command = made.scheduler.outstanding(client)
    assert command is not None
    return Update(
        client=client,
        task=command.task,
        version=command.version,
        steps_done=command.steps,
        tensors=state(numbers),
    )


def answer(made: Coordinator, at: float, client: str, numbers: list[float]) -> list[DriverCommand]:
    receipt = made.receive(at, answer_of(made, client, numbers))
    assert receipt.refused is None
    return receipt.commands


def weights(made: Coordinator) -> list[float]:
    return made.model.trainable.tolist()


def bits(made: Coordinator) -> list[bytes]:
    return [vector.numpy().tobytes() for vector in made.model.tensors().values()]


def journal(made: Coordinator) -> list[dict[str, Any]]:
    assert isinstance(made.journal, MemoryJournal)
    return made.journal.records


def test_fedavg_averages_by_samples_when_everybody_has_answered() -> None:
    made = of_two("fedavg", steps=4)
    assert answer(made, 4.0, "a", [4.0, 0.0, 0.0]) == []
    assert (weights(made), made.version) == ([1.0, 2.0, 3.0], 0)
    commands = answer(made, 9.0, "b", [0.0, 4.0, 8.0])
    # 1/4 of a's change and 3/4 of b's
    assert (weights(made), made.version) == ([0.0, -1.0, -3.0], 1)
    assert commands == [
        StartTraining(at=9.0, client="a", task=3, steps=4, version=1, group=None),
        StartTraining(at=9.0, client="b", task=4, steps=4, version=1, group=None),
    ]


def test_fedavg_renormalizes_over_those_who_answered() -> None:
    made = of_two("fedavg", steps=4)
    answer(made, 4.0, "b", [1.0, 1.0, 1.0])
    made.lose_task(5.0, "a", 1)
    assert (weights(made), made.version) == ([0.0, 1.0, 2.0], 1)


def test_fedavgm_keeps_nine_tenths_of_its_velocity() -> None:
    made = of_two("fedavgm", steps=4)
    answer(made, 4.0, "a", [4.0, 0.0, 0.0])
    answer(made, 9.0, "b", [0.0, 4.0, 8.0])
    assert weights(made) == [0.0, -1.0, -3.0]  # v = [1, 3, 6]
    answer(made, 13.0, "a", [1.0, 1.0, 1.0])
    answer(made, 18.0, "b", [1.0, 1.0, 1.0])
    assert weights(made) == pytest.approx([-1.9, -4.7, -9.4])  # v = 0.9 [1, 3, 6] + [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("fedadam", lambda g: 0.1 * g, lambda g: 0.99 * 1e-6 + 0.01 * g * g),
        ("fedyogi", lambda g: 0.1 * g, lambda g: 1e-6 + 0.01 * g * g),
        ("fedadagrad", lambda g: g, lambda g: 1e-6 + g * g),
    ],
)
def test_adaptive_servers_take_a_step_of_their_own_length(
    name: str, first: Callable[[float], float], second: Callable[[float], float]
) -> None:
    made = of_two(name, steps=4)
    answer(made, 4.0, "a", [4.0, 0.0, 0.0])
    answer(made, 9.0, "b", [0.0, 4.0, 8.0])
    expected = [
        w - 0.01 * first(g) / (sqrt(second(g)) + 1e-3)
        for w, g in zip([1.0, 2.0, 3.0], [1.0, 3.0, 6.0], strict=True)
    ]
    assert weights(made) == pytest.approx(expected)


def test_fedasync_mixes_each_end_model_in_at_once() -> None:
    made = of_two("fedasync", steps=4)
    assert made.payload == "model"
    commands = answer(made, 4.0, "a", [6.0, 2.0, -2.0])
    assert weights(made) == pytest.approx([4.0, 2.0, 0.0])  # 0.4 w + 0.6 w_a
    assert commands == [StartTraining(at=4.0, client="a", task=3, steps=4, version=1, group=None)]
    answer(made, 9.0, "b", [0.0, 0.0, 10.0])
    late = 0.6 / sqrt(2)  # b started from version 0
    assert weights(made) == pytest.approx([(1 - late) * 4, (1 - late) * 2, late * 10])
    assert made.version == 2


def test_fedasync_by_share_subtracts_each_change_scaled_by_samples() -> None:
    made = of_two("fedasync", steps=4, variant="share")
    assert made.payload == "delta"
    answer(made, 4.0, "a", [4.0, 0.0, 0.0])
    assert weights(made) == pytest.approx([1 - FRESH * 0.25 * 4, 2.0, 3.0])
    answer(made, 9.0, "b", [0.0, 0.0, 10.0])
    assert weights(made) == pytest.approx([0.1, 2.0, 3 - ONE_OLD * 0.75 * 10])


def test_fedbuff_divides_every_k_answers_by_k() -> None:
    made = of_two("fedbuff", steps=4, buffer_size=2)
    answer(made, 4.0, "a", [4.0, 0.0, 0.0])
    assert (weights(made), made.version) == ([1.0, 2.0, 3.0], 0)
    answer(made, 8.0, "a", [2.0, 2.0, 0.0])  # whoever sends them
    assert (weights(made), made.version) == ([-2.0, 1.0, 3.0], 1)
    answer(made, 9.0, "b", [0.0, 0.0, 4.0])  # started from version 0
    answer(made, 12.0, "a", [0.0, 2.0, 0.0])
    assert weights(made) == pytest.approx([-2.0, 0.0, 3 - 2 / sqrt(2)])


def test_fedbuff_by_share_sums_what_is_scaled_by_samples() -> None:
    made = of_two("fedbuff", steps=4, buffer_size=2, variant="share")
    answer(made, 4.0, "a", [4.0, 0.0, 0.0])
    answer(made, 9.0, "b", [0.0, 4.0, 8.0])
    expected = [1 - FRESH * 0.25 * 4, 2 - FRESH * 0.75 * 4, 3 - FRESH * 0.75 * 8]
    assert weights(made) == pytest.approx(expected)


def test_fedat_weighs_the_tiers_by_the_mirrored_counts() -> None:
    made = of_two("fedat", steps=4)
    answer(made, 4.0, "a", [5.0, 1.0, 1.0])  # 1 s a step
    commands = answer(made, 12.0, "b", [1.0, 1.0, 5.0])  # 3 s a step: another tier
    assert weights(made) == [2.0, 1.0, 4.0]  # the first round is everybody's
    assert [getattr(command, "group", None) for command in commands] == [1, 2]
    answer(made, 16.0, "a", [1.0, 0.0, 0.0])
    assert weights(made) == [1.0, 0.0, 0.0]  # tier 2 has not finished: left out
    answer(made, 20.0, "a", [0.0, 2.0, 0.0])
    assert weights(made) == [0.0, 2.0, 0.0]
    answer(made, 24.0, "b", [3.0, 3.0, 3.0])
    # T = 2, 1: tier 1 weighs 1/3, tier 2 weighs 2/3
    assert weights(made) == pytest.approx([2.0, 2 / 3 + 2, 2.0])
    assert made.version == 4


def test_an_update_that_only_measured_a_pace_changes_nothing_but_spends_its_budget() -> None:
    made = of_two("fedat", steps=20, profiling="tasks")
    given = replace(answer_of(made, "a", [9.0, 9.0, 9.0]), epsilon=0.5)
    assert given.steps_done == 2
    assert made.receive(2.0, given).commands == []
    assert journal(made)[-1] == {
        "command": "Discard",
        "at": 2.0,
        "client": "a",
        "task": 1,
        "steps": 2,
        "epsilon": 0.5,
    }
    commands = answer(made, 2.1, "b", [7.0, 7.0, 7.0])
    assert [getattr(command, "group", None) for command in commands] == [1, 1]
    assert (weights(made), made.version, made.scheduler.pending()) == ([1.0, 2.0, 3.0], 0, [])
    answer(made, 22.0, "a", [5.0, 1.0, 1.0])
    answer(made, 23.0, "b", [1.0, 1.0, 5.0])
    assert weights(made) == [2.0, 1.0, 4.0]  # the tier's mean by samples, of these alone


COMPASS = {"min_steps": 2, "max_steps": 10, "latest": 1.2}


def compass_conversation(made: Coordinator) -> list[list[float]]:
    """The models after each stage: first answers, a merge, a merge at the deadline, a late one."""
    stages: list[list[float]] = []
    answer(made, 2.0, "a", [4.0, 0.0, 0.0])  # 1 s a step: opens group 1, 10 steps, T_a 12
    answer(made, 4.0, "b", [0.0, 4.0, 0.0])  # 2 s a step: joins it with 4 steps
    stages.append(weights(made))
    answer(made, 12.0, "a", [0.0, 0.0, 10.0])
    assert weights(made) == stages[0]  # b is awaited
    commands = answer(made, 12.0, "b", [4.0, 0.0, 0.0])
    assert commands == [
        SetDeadline(at=24.0, group=2),
        StartTraining(at=12.0, client="a", task=5, steps=10, version=3, group=2),
        StartTraining(at=12.0, client="b", task=6, steps=5, version=3, group=2),
    ]
    stages.append(weights(made))
    answer(made, 22.0, "a", [10.0, 10.0, 10.0])
    assert made.pass_deadline(24.0, 2) == [
        SetDeadline(at=36.0, group=3),
        StartTraining(at=24.0, client="a", task=7, steps=10, version=4, group=3),
    ]
    stages.append(weights(made))
    answer(made, 26.0, "b", [0.0, 5.0, 0.0])  # late, 2.8 s a step: joins group 3 with 2 steps
    assert (weights(made), made.version) == (stages[2], 4)  # it waits for a merge
    assert [fold.client for fold in made.scheduler.pending()] == ["b"]
    answer(made, 31.6, "b", [0.0, 0.0, 2.0])
    answer(made, 34.0, "a", [10.0, 0.0, 0.0])
    assert (made.version, made.scheduler.pending()) == (5, [])
    stages.append(weights(made))
    return stages


def minus(start: list[float], *scaled: tuple[float, list[float]]) -> list[float]:
    moved = torch.tensor(start, dtype=torch.float64)
    for factor, vector in scaled:
        moved -= factor * torch.tensor(vector, dtype=torch.float64)
    numbers: list[float] = moved.tolist()
    return numbers


AFTER_FIRST_ANSWERS = minus(
    [1.0, 2.0, 3.0],
    (FRESH * 0.25, [4.0, 0.0, 0.0]),
    (ONE_OLD * 0.75, [0.0, 4.0, 0.0]),
)
MERGED = [  # what the three merges of the conversation hold: (weight, change)
    [(ONE_OLD * 0.25, [0.0, 0.0, 10.0]), (FRESH * 0.75, [4.0, 0.0, 0.0])],
    [(FRESH * 0.25, [10.0, 10.0, 10.0])],
    [
        (ONE_OLD * 0.75, [0.0, 5.0, 0.0]),
        (FRESH * 0.75, [0.0, 0.0, 2.0]),
        (FRESH * 0.25, [10.0, 0.0, 0.0]),
    ],
]


def test_fedcompass_applies_first_answers_at_once_and_merges_groups_with_late_updates() -> None:
    stages = compass_conversation(of_two("fedcompass", **COMPASS))
    expected = [AFTER_FIRST_ANSWERS]
    for merged in MERGED:
        expected.append(minus(expected[-1], *merged))
    for got, wanted in zip(stages, expected, strict=True):
        assert got == pytest.approx(wanted, rel=1e-5)


def test_fedcompass_m_sends_merges_through_momentum_but_not_first_answers() -> None:
    stages = compass_conversation(of_two("fedcompass+m", **COMPASS))
    expected, velocity = [AFTER_FIRST_ANSWERS], [0.0, 0.0, 0.0]
    for merged in MERGED:
        velocity = minus([0.9 * v for v in velocity], *((-f, change) for f, change in merged))
        expected.append(minus(expected[-1], (1.0, velocity)))
    for got, wanted in zip(stages, expected, strict=True):
        assert got == pytest.approx(wanted, rel=1e-5)


def test_fedcompass_n_divides_by_steps_and_multiplies_by_the_effective_ones() -> None:
    stages = compass_conversation(of_two("fedcompass+n", **COMPASS))
    steps = [[10, 4], [10], [5, 2, 10]]
    effective = [
        0.25 * 10 + 0.75 * 4,
        10.0,
        (0.75 * 5 + 0.75 * 2 + 0.25 * 10) / (0.75 + 0.75 + 0.25),
    ]
    expected = [AFTER_FIRST_ANSWERS]  # first answers as plain FedCompass
    for merged, done, tau in zip(MERGED, steps, effective, strict=True):
        scaled = [(tau * f / q, change) for (f, change), q in zip(merged, done, strict=True)]
        expected.append(minus(expected[-1], *scaled))
    for got, wanted in zip(stages, expected, strict=True):
        assert got == pytest.approx(wanted, rel=1e-5)


def test_model_buffers_bypass_momentum_and_integers_take_the_maximum() -> None:
    made = of_two("fedcompass+m", **COMPASS)
    mean = informed = 0.0
    for at, client, value, s in (
        (2.0, "a", 8.0, FRESH * 0.25),
        (4.0, "b", 2.0, ONE_OLD * 0.75),
    ):
        update = answer_of(made, client, [0.0, 0.0, 0.0])
        made.receive(at, replace(update, tensors=state([0.0, 0.0, 0.0], value, int(10 * at))))
        informed = (1 - s) * informed + s
        mean += s / informed * (value - mean)
        assert made.model.averaged.tolist() == pytest.approx([mean])
    assert made.model.counted.tolist() == [40]
    for client, value in (("a", 1.0), ("b", 5.0)):
        update = answer_of(made, client, [0.0, 0.0, 0.0])
        made.receive(12.0, replace(update, tensors=state([0.0, 0.0, 0.0], value, 3)))
    s_a, s_b = ONE_OLD * 0.25, FRESH * 0.75
    s, merged = s_a + s_b, (s_a * 1.0 + s_b * 5.0) / (s_a + s_b)
    informed = (1 - s) * informed + s
    mean += s / informed * (merged - mean)
    assert made.model.averaged.tolist() == pytest.approx([mean])
    assert made.model.counted.tolist() == [40]


def test_the_journal_tells_every_event_every_command_and_the_weight_an_update_got() -> None:
    made = of_two("fedcompass", **COMPASS)
    before = len(journal(made))
    answer(made, 2.0, "a", [4.0, 0.0, 0.0])
    lines = journal(made)[before:]
    kinds = [line.get("event") or line["command"] for line in lines]
    assert kinds == ["UpdateArrived", "Fold", "Commit", "SetDeadline", "StartTraining"]
    assert lines[1]["weight"] == pytest.approx(FRESH * 0.25)
    assert "weight" not in lines[2]


def test_each_order_starts_from_the_version_it_names_even_if_one_event_merges_twice() -> None:
    made = of_two("fedcompass", **COMPASS)
    compass_conversation(made)  # group 4: deadline at 46
    answer(made, 44.0, "a", [1.0, 0.0, 0.0])
    made.join(45.0, "c", 4)
    commands = answer(made, 47.0, "c", [0.0, 8.0, 0.0])  # the deadline of 46 has not been reported
    starts = [command for command in commands if isinstance(command, StartTraining)]
    assert [(command.client, command.version) for command in starts] == [("a", 6), ("c", 7)]
    first, second = (made.start_model(command).trainable.tolist() for command in starts)
    assert second == weights(made)
    assert first == pytest.approx(minus(second, (-ONE_OLD * 0.5, [0.0, 8.0, 0.0])), rel=1e-5)


def test_a_version_is_copied_once_and_merges_leave_the_copy_alone() -> None:
    made = of_two("fedasync", steps=4)
    copy = made.snapshot()
    assert made.snapshot() is copy
    assert copy.trainable.data_ptr() != made.model.trainable.data_ptr()
    answer(made, 4.0, "a", [6.0, 2.0, -2.0])
    assert copy.trainable.tolist() == [1.0, 2.0, 3.0]
    assert made.snapshot().trainable.tolist() == weights(made)


def with_tensors(**vectors: Tensor) -> Callable[[Update], Update]:
    def change(update: Update) -> Update:
        assert update.tensors is not None
        return replace(update, tensors=replace(update.tensors, **vectors))

    return change


ANSWERS_ITS_TASK = [
    (with_tensors(trainable=torch.tensor([0.0, nan, 0.0])), Refusal.NOT_FINITE, "trainable"),
    (with_tensors(trainable=torch.tensor([0.0, inf, 0.0])), Refusal.NOT_FINITE, "infinite"),
    (with_tensors(trainable=torch.tensor([-inf, inf, 0.0])), Refusal.NOT_FINITE, "infinite"),
    (with_tensors(averaged=torch.tensor([nan])), Refusal.NOT_FINITE, "averaged"),
    (with_tensors(trainable=torch.tensor([1.0])), Refusal.WRONG_LAYOUT, r"float32\[1\]"),
    (with_tensors(trainable=torch.zeros(4)), Refusal.WRONG_LAYOUT, r"float32\[4\]"),
    (with_tensors(trainable=torch.zeros(1, 3)), Refusal.WRONG_LAYOUT, r"float32\[1, 3\]"),
    (with_tensors(trainable=torch.zeros(())), Refusal.WRONG_LAYOUT, r"float32\[\]"),
    (with_tensors(trainable=torch.zeros(3).double()), Refusal.WRONG_LAYOUT, "float64"),
    (with_tensors(averaged=torch.zeros(0)), Refusal.WRONG_LAYOUT, "averaged"),
    (with_tensors(counted=torch.tensor([1.0])), Refusal.WRONG_LAYOUT, "counted"),
    (
        with_tensors(trainable=torch.full((3,), 1e3)),
        Refusal.NORM_TOO_LARGE,
        r"norm is 17\d\d.*allows 100",
    ),
    (lambda u: replace(u, version=7), Refusal.WRONG_VERSION, "version 0, not 7"),
    (lambda u: replace(u, version=-1), Refusal.WRONG_VERSION, "version 0, not -1"),
    (lambda u: replace(u, steps_done=5), Refusal.WRONG_STEPS, "5 steps done; allowed: 0 to 4"),
    (lambda u: replace(u, steps_done=-1), Refusal.WRONG_STEPS, "-1 steps done"),
]
ANSWERS_ANOTHER = [
    (lambda u: replace(u, client="nobody"), Refusal.UNKNOWN_CLIENT, "'nobody' .* holds no task"),
    (lambda u: replace(u, task=99), Refusal.UNEXPECTED_TASK, "'a' answered task 99 .* task 1"),
    (lambda u: replace(u, client="b"), Refusal.UNEXPECTED_TASK, "'b' answered task 1 .* task 2"),
    (lambda u: replace(u, task=2), Refusal.UNEXPECTED_TASK, "'a' answered task 2 .* task 1"),
]


@pytest.mark.parametrize(("spoil", "reason", "message"), ANSWERS_ITS_TASK)
@pytest.mark.parametrize("name", ["fedasync", "fedbuff"])
def test_a_bad_answer_is_refused_told_and_journaled_and_the_client_is_asked_again(
    name: str, spoil: Callable[[Update], Update], reason: Refusal, message: str
) -> None:
    made = of_two(name, steps=4, guard={"max_norm": 100.0})
    before, lines = bits(made), len(journal(made))
    receipt = made.receive(4.0, spoil(answer_of(made, "a", [1.0, 1.0, 1.0])))
    assert receipt.refused is not None
    assert receipt.refused.reason == reason
    assert re.search(message, receipt.refused.message)
    assert bits(made) == before
    assert made.scheduler.pending() == []
    assert journal(made)[lines] == {
        "event": "UpdateRefused",
        "at": 4.0,
        "client": "a",
        "task": 1,
        "reason": reason.value,
    }
    assert receipt.commands == [
        StartTraining(at=4.0, client="a", task=3, steps=4, version=0, group=None)
    ]
    answer(made, 9.0, "b", [1.0, 1.0, 1.0])  # the others go on


@pytest.mark.parametrize(("spoil", "reason", "message"), ANSWERS_ANOTHER)
def test_an_answer_to_nothing_is_refused_and_never_cancels_a_live_task(
    spoil: Callable[[Update], Update], reason: Refusal, message: str
) -> None:
    made = of_two("fedcompass", **COMPASS)
    before, lines = bits(made), len(journal(made))
    live = [made.scheduler.outstanding(client) for client in ("a", "b")]
    for _ in range(5):  # nor does it ever quarantine anybody
        receipt = made.receive(1.0, spoil(answer_of(made, "a", [1.0, 1.0, 1.0])))
        assert receipt.refused is not None
        assert receipt.refused.reason == reason
        assert re.search(message, receipt.refused.message)
        assert receipt.commands == []
    assert bits(made) == before
    assert [made.scheduler.outstanding(client) for client in ("a", "b")] == live
    assert [line["event"] for line in journal(made)[lines:]] == ["UpdateRefused"] * 5
    answer(made, 2.0, "a", [1.0, 1.0, 1.0])
    answer(made, 4.0, "b", [1.0, 1.0, 1.0])


def test_a_duplicate_of_an_accepted_answer_is_refused_and_the_next_task_lives_on() -> None:
    made = of_two("fedasync", steps=4)
    update = answer_of(made, "a", [6.0, 2.0, -2.0])
    assert made.receive(4.0, update).refused is None
    before, live = bits(made), made.scheduler.outstanding("a")
    receipt = made.receive(4.0, update)
    assert receipt.refused is not None
    assert receipt.refused.reason == Refusal.UNEXPECTED_TASK
    assert (bits(made), made.scheduler.outstanding("a")) == (before, live)


def test_a_bad_late_update_leaves_the_group_and_the_general_buffer_alone() -> None:
    made = of_two("fedcompass", **COMPASS)
    answer(made, 2.0, "a", [4.0, 0.0, 0.0])
    answer(made, 4.0, "b", [0.0, 4.0, 0.0])
    answer(made, 12.0, "a", [0.0, 0.0, 10.0])
    before = bits(made)
    receipt = made.receive(13.0, answer_of(made, "b", [nan, 0.0, 0.0]))
    # b was the last one awaited: a's update merges, both go on, b through AssignGroup
    assert receipt.refused is not None
    assert bits(made) != before
    assert weights(made)[2] == pytest.approx(3.0 - ONE_OLD * 0.25 * 10)
    started = [command for command in receipt.commands if isinstance(command, StartTraining)]
    assert [(command.client, command.group) for command in started] == [("a", 2), ("b", 2)]


def test_the_norm_bound_is_about_the_change_where_clients_send_end_models() -> None:
    made = of_two("fedasync", steps=4, guard={"max_norm": 1.0})
    made.model.trainable.fill_(1000.0)
    assert made.receive(4.0, answer_of(made, "a", [1000.5, 1000.0, 1000.0])).refused is None
    receipt = made.receive(5.0, answer_of(made, "b", [1002.0, 1000.0, 1000.0]))
    assert receipt.refused is not None
    assert receipt.refused.reason == Refusal.NORM_TOO_LARGE


def refuse(made: Coordinator, at: float, client: str) -> list[DriverCommand]:
    receipt = made.receive(at, answer_of(made, client, [nan, nan, nan]))
    assert receipt.refused is not None
    return receipt.commands


def quarantined() -> Coordinator:
    made = of_two("fedasync", steps=4, variant="share")
    assert len(refuse(made, 1.0, "a")) == 1
    assert len(refuse(made, 2.0, "a")) == 1
    assert refuse(made, 3.0, "a") == [Quarantine(at=3.0, client="a")]
    return made


def test_three_refusals_in_a_row_quarantine_a_client_and_take_its_weight() -> None:
    made = quarantined()
    assert made.scheduler.outstanding("a") is None
    answer(made, 4.0, "b", [1.0, 0.0, 0.0])
    assert weights(made)[0] == pytest.approx(1 - FRESH * 1.0)  # b is all there is
    late = Update(client="a", task=1, version=0, steps_done=4, tensors=state([1.0, 1.0, 1.0]))
    receipt = made.receive(5.0, late)
    assert receipt.refused is not None
    assert receipt.refused.reason == Refusal.UNEXPECTED_TASK


def test_a_good_answer_between_refusals_starts_the_count_again() -> None:
    made = of_two("fedasync", steps=4)
    for at in range(6):
        refuse(made, 2.0 * at, "a")
        if at % 2:
            answer(made, 2.0 * at + 1, "a", [1.0, 1.0, 1.0])
    assert made.scheduler.outstanding("a") is not None


@pytest.mark.parametrize("way", ["stay", "rejoin"])
def test_a_quarantined_client_returns_when_an_operator_lifts_it_and_not_by_rejoining(
    way: str,
) -> None:
    made = quarantined()
    if way == "rejoin":
        assert made.join(5.0, "a", 1) == [Quarantine(at=5.0, client="a")]
    commands = made.lift_quarantine(6.0, "a")
    assert commands == [StartTraining(at=6.0, client="a", task=5, steps=4, version=0, group=None)]
    answer(made, 7.0, "a", [4.0, 0.0, 0.0])
    assert weights(made)[0] == pytest.approx(1 - FRESH * 0.25 * 4)
    for at in (8.0, 9.0):
        assert len(refuse(made, at, "a")) == 1  # it has three tries again


def test_an_answer_of_no_steps_is_a_lost_task_whatever_its_tensors_are() -> None:
    made = of_two("fedcompass", **COMPASS)
    before = bits(made)
    for at in range(1, 6):  # five in a row do not quarantine
        update = replace(answer_of(made, "a", [nan, nan, nan]), steps_done=0)
        receipt = made.receive(float(at), update)
        assert receipt.refused is None
        assert [type(command) for command in receipt.commands] == [StartTraining]
        assert receipt.commands[0].at == at
    assert bits(made) == before
    assert (made.version, made.scheduler.pending()) == (0, [])


def test_an_event_that_cannot_be_changes_and_journals_nothing() -> None:
    made = of_two("fedasync", steps=4)
    answer(made, 4.0, "a", [6.0, 2.0, -2.0])
    before, lines, facts = bits(made), len(journal(made)), made.scheduler.to_json()
    update = answer_of(made, "b", [1.0, 1.0, 1.0])
    for impossible in (
        lambda: made.receive(3.0, update),
        lambda: made.join(9.0, "c", 0),
        lambda: made.lose(9.0, "nobody"),
        lambda: made.lose_task(9.0, "a", 1),
        lambda: made.lift_quarantine(9.0, "nobody"),
        lambda: made.join(nan, "c", 1),
    ):
        with pytest.raises(EventRefused):
            impossible()
    assert (bits(made), len(journal(made)), made.scheduler.to_json()) == (before, lines, facts)


def buffers(made: Coordinator) -> list[str]:
    tensors, _ = made.state({})
    return sorted(name for name in tensors if name.startswith("buffer.") and "trainable" in name)


@pytest.mark.parametrize("clients", [3, 60])
def test_a_round_takes_one_buffer_whatever_the_number_of_clients(clients: int) -> None:
    made = coordinator("fedavg", steps=4, min_clients=clients)
    for number in range(clients):
        made.join(0.0, str(number), 1)
    for number in range(clients - 1):
        answer(made, 1.0 + number, str(number), [1.0, 1.0, 1.0])
    assert buffers(made) == ["buffer.0.trainable"]


def test_compass_holds_a_buffer_for_each_open_group_with_answers_and_one_for_late_ones() -> None:
    clients = 40
    made = coordinator("fedcompass", min_clients=clients, **COMPASS)
    for number in range(clients):
        made.join(0.0, str(number), 1)
    for number in range(clients):
        answer(made, 2.0 + 0.001 * number, str(number), [1.0, 1.0, 1.0])
    assert buffers(made) == []
    last = clients - 1
    for number in range(last):
        answer(made, 12.05 + 0.001 * number, str(number), [1.0, 1.0, 1.0])
    assert len(made.scheduler.pending()) == last
    assert buffers(made) == ["buffer.1.trainable"]
    made.pass_deadline(14.5, 1)
    assert buffers(made) == []
    answer(made, 15.0, str(last), [1.0, 1.0, 1.0])  # late
    assert buffers(made) == ["buffer.0.trainable"]


def test_an_update_is_let_go_as_soon_as_it_is_folded() -> None:
    made = of_two("fedavg", steps=4)
    update = answer_of(made, "a", [1.0, 1.0, 1.0])
    assert update.tensors is not None
    vector = weakref.ref(update.tensors.trainable)
    made.receive(1.0, update)
    del update
    assert vector() is None


def test_a_checkpoint_has_the_present_model_once_and_gives_it_back_as_a_start() -> None:
    saved = of_two("fedasync", steps=4)
    starts = {0: saved.snapshot()}
    saved.receive(1.0, answer_of(saved, "a", [1.0, 1.0, 1.0]))
    starts[1] = saved.snapshot()
    tensors, facts = saved.state(starts)
    assert {name.rsplit(".", 1)[0] for name in tensors} >= {"model", "start.0"}
    assert not any(name.startswith("start.1.") for name in tensors)
    found = of_two("fedasync", steps=4).restore(tensors, facts)
    assert found.keys() == starts.keys()
    for version, start in starts.items():
        assert torch.equal(found[version].trainable, start.trainable)


def test_a_restored_coordinator_may_check_more_strictly_than_the_one_that_was_saved() -> None:
    saved = of_two("fedavgm", steps=4)
    made = coordinator("fedavgm", steps=4, min_clients=2, guard={"max_norm": 1.0})
    made.restore(*saved.state({}))
    receipt = made.receive(1.0, answer_of(made, "a", [9.0, 0.0, 0.0]))
    assert receipt.refused is not None


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("fedavgm", {"steps": 4}, r"strategy\.name is 'fedavg' in the checkpoint and 'fedavgm'"),
        ("fedasync", {"steps": 4}, r"strategy\.name is 'fedavg'"),
        ("fedavg", {"steps": 5}, r"strategy\.steps is 4 in the checkpoint and 5 in"),
        (
            "fedavg",
            {"steps": 4, "server": {"learning_rate": 0.5}},
            r"strategy\.server\.learning_rate is 1.0 in the checkpoint and 0.5",
        ),
    ],
)
def test_a_checkpoint_of_another_strategy_is_refused_and_nothing_changes(
    name: str, settings: dict[str, Any], message: str
) -> None:
    saved = of_two("fedavg", steps=4)
    answer(saved, 1.0, "a", [1.0, 1.0, 1.0])
    made = coordinator(name, min_clients=2, **settings)
    before, facts = bits(made), made.scheduler.to_json()
    with pytest.raises(CheckpointError, match=message) as caught:
        made.restore(*saved.state({}))
    assert "\n" not in str(caught.value)
    assert (bits(made), made.scheduler.to_json()) == (before, facts)


def test_a_checkpoint_of_another_model_of_the_same_size_is_refused() -> None:
    saved = of_two("fedavg", steps=4)
    specs = (TensorSpec("bias", (3,), torch.float32, "trainable"), *LAYOUT.specs[1:])
    made = Coordinator(
        strategy("fedavg", steps=4, min_clients=2), Layout(specs), state([1.0, 2.0, 3.0])
    )
    with pytest.raises(CheckpointError, match=r"layout\.0 is 'weight float32\[3\]' .* 'bias "):
        made.restore(*saved.state({}))


@pytest.mark.parametrize("lost", ["made_with", "scheduler", "aggregator"])
def test_a_checkpoint_with_a_part_missing_is_refused_and_nothing_changes(lost: str) -> None:
    saved = of_two("fedavg", steps=4)
    answer(saved, 1.0, "a", [1.0, 1.0, 1.0])
    tensors, facts = saved.state({})
    made = coordinator("fedavg", steps=4, min_clients=2)
    before, fresh = bits(made), made.scheduler.to_json()
    damages: list[dict[str, Any]] = [{}, {lost: {}}, {lost: None}]
    for damage in damages:
        broken = {**{key: value for key, value in facts.items() if key != lost}, **damage}
        with pytest.raises(CheckpointError) as caught:
            made.restore(tensors, broken)
        assert "\n" not in str(caught.value)
        assert (bits(made), made.scheduler.to_json()) == (before, fresh)
    made.restore(tensors, facts)
    assert made.scheduler.to_json() == saved.scheduler.to_json()


class NotingJournal(MemoryJournal):
    """Keeps the notes of each event by the event's name."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[str, dict[str, Any]]] = []

    def event(self, event: Event, **notes: Any) -> None:
        super().event(event)
        self.notes.append((type(event).__name__, notes))


def test_notes_reach_the_journal_with_their_event_and_a_refusal_says_why() -> None:
    made = of_two("fedavg", steps=4)
    made.journal = noting = NotingJournal()
    made.receive(1.0, answer_of(made, "a", [nan, 1.0, 1.0]), bytes=12)
    made.receive(2.0, answer_of(made, "b", [1.0, 1.0, 1.0]), bytes=12)
    made.lose(3.0, "b", why="it left")
    why = noting.notes[0][1].pop("why")
    assert "NaN" in why or "finite" in why
    assert noting.notes == [
        ("UpdateRefused", {"bytes": 12}),
        ("UpdateArrived", {"bytes": 12}),
        ("ClientLost", {"why": "it left"}),
    ]


HUGE = 3e38
OVERFLOWING = [
    ("fedbuff", {"steps": 4, "buffer_size": 2}),  # the sum of two
    ("fedasync", {"steps": 4, "variant": "share", "server": {"learning_rate": 1e3}}),
    ("fedavgm", {"steps": 4}),
    ("fedadam", {"steps": 4}),  # its squares
]


@pytest.mark.parametrize(("name", "settings"), OVERFLOWING, ids=lambda value: str(value)[:8])
def test_a_merge_that_would_not_be_finite_is_not_made_and_the_run_goes_on(
    name: str, settings: dict[str, Any]
) -> None:
    made = of_two(name, **settings)
    before = bits(made)
    for at, client in ((4.0, "a"), (5.0, "b")):
        answer(made, at, client, [HUGE, HUGE, -HUGE])
    assert bits(made) == before
    assert made.version == 0
    failed = [record for record in journal(made) if record.get("failed")]
    assert failed[0]["failed"] == "the merge would not be finite; see whose updates were in it"
    assert failed[-1]["members"][-1] == "b"
    assert sorted(task for record in failed for task in record["lost"]) == [1, 2]
    assert [r["version"] for r in journal(made) if r.get("event") == "MergeFailed"]
    for at, client in ((8.0, "a"), (9.0, "b")):
        answer(made, at, client, [1.0, 1.0, 1.0])
    assert made.version >= 1
    assert bits(made) != before
    assert all(map(isfinite, weights(made)))


def test_a_merge_of_huge_values_that_is_finite_is_made() -> None:
    made = of_two("fedavg", steps=4)
    for at, client in ((4.0, "a"), (5.0, "b")):
        answer(made, at, client, [HUGE, HUGE, -HUGE])
    assert made.version == 1
    assert weights(made) == pytest.approx([-HUGE, -HUGE, HUGE])


def test_a_merge_of_model_buffers_that_would_not_be_finite_is_not_made() -> None:
    made = of_two("fedbuff", steps=4, buffer_size=2)
    before = bits(made)
    for at, client in ((4.0, "a"), (5.0, "b")):
        update = answer_of(made, client, [1.0, 1.0, 1.0])
        made.receive(at, replace(update, tensors=state([1.0, 1.0, 1.0], mean=HUGE)))
    assert (bits(made), made.version) == (before, 0)
