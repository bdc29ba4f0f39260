"""A learning rate that falls with the steps a client was given, alone and in a stack."""

import pytest
import torch
from torch import nn

from fedcompass.training import LocalSettings, LocalTrainer, Problem
from fedcompass.training.stacked import StackedTask, StackedTrainer
from fedcompass.training.streams import RowStream, stream_key

torch.set_num_threads(1)
OPTIMIZERS = {
    "sgd": {"optimizer": "sgd", "learning_rate": 0.05},
    "momentum": {"optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.9},
    "adam": {"optimizer": "adam", "learning_rate": 0.01},
    "adamw": {"optimizer": "adamw", "learning_rate": 0.01, "weight_decay": 0.1},
}


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def problem() -> Problem:
    inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
    targets = torch.arange(60) % 3
    rows = [torch.arange(0, 30), torch.arange(30, 60)]
    return Problem.from_tensors(model, train=(inputs, targets), test=(inputs, targets), parts=rows)


def settings(optimizer: str, **more: float) -> LocalSettings:
    return LocalSettings(**OPTIMIZERS[optimizer], batch_size=8, **more)  # type: ignore[arg-type]


def test_a_task_counts_as_done_when_its_rate_is_chosen() -> None:
    decaying = LocalSettings(rate_decay=0.5, rate_decay_steps=200)
    assert decaying.rate_scale(0, 199) == 1.0
    assert decaying.rate_scale(0, 200) == 0.5
    assert decaying.rate_scale(390, 10) == 0.25
    assert LocalSettings().rate_scale(10**6, 10**6) == 1.0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_decayed_round_is_a_round_at_the_lower_rate(optimizer: str) -> None:
    decaying = settings(optimizer, rate_decay=0.5, rate_decay_steps=10)
    low = {**OPTIMIZERS[optimizer], "learning_rate": decaying.learning_rate * 0.25}
    plain = LocalSettings(**low, batch_size=8)  # type: ignore[arg-type]
    one, other = (LocalTrainer(problem(), chosen, 0) for chosen in (decaying, plain))
    start = one.initial_state()
    decayed = one.train(start, client=0, local_round=1, steps=5, payload="delta", steps_before=16)
    lower = other.train(start, client=0, local_round=1, steps=5, payload="delta")
    assert torch.equal(decayed.trainable, lower.trainable)
    fresh = one.train(start, client=0, local_round=1, steps=5, payload="delta")
    assert not torch.equal(fresh.trainable, decayed.trainable)  # and the next is not affected


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_tasks_of_a_stack_have_each_their_own_rate(optimizer: str) -> None:
    chosen = settings(optimizer, rate_decay=0.5, rate_decay_steps=10)
    given = problem()
    alone, stack = LocalTrainer(given, chosen, 0), StackedTrainer(model(), chosen, given.loss)
    start = alone.initial_state()
    before = (0, 16, 34)
    tasks = [
        StackedTask(
            start=start,
            samples=given.clients[1],
            stream=RowStream(stream_key(0, "batches", 1, number)),
            steps=6,
            payload="delta",
            rate_scale=chosen.rate_scale(steps, 6),
        )
        for number, steps in enumerate(before)
    ]
    for number, (steps, got) in enumerate(zip(before, stack.train(tasks), strict=True)):
        wanted = alone.train(
            start, client=1, local_round=number, steps=6, payload="delta", steps_before=steps
        )
        torch.testing.assert_close(got.trainable, wanted.trainable, rtol=1e-4, atol=1e-6)
