"""Local training: exactly the given steps, the same bits whatever was trained before."""

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcompass.aggregation.layout import Layout
from fedcompass.errors import DataError, SettingsError, TaskFailed
from fedcompass.settings.training import Sampling
from fedcompass.training import LocalSettings, LocalTrainer, Problem, Samples
from fedcompass.training.streams import batch_rows, row_stream

torch.set_num_threads(1)
SGD = LocalSettings(optimizer="sgd", learning_rate=0.1, batch_size=8)


class Normed(nn.Module):
    """Batch norm, dropout, a frozen weight, a buffer it replaces and one that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU())
        self.head = nn.Linear(8, 3)
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.seen: Tensor
        self.scratch: Tensor
        self.register_buffer("seen", torch.zeros((), dtype=torch.int32))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = self.seen + len(x)
            self.scratch += 1
        out: Tensor = self.head(self.body(x)) * self.frozen + 0.01 * self.scratch.sum()
        return out


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
        self.two.weight = self.one.weight
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.two(torch.relu(self.one(x))))
        return out


def linear() -> nn.Module:
    return nn.Linear(6, 3)


def problem_of(model: Callable[[], nn.Module], **options: object) -> Problem:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(60, 6, generator=generator), torch.arange(60) % 3
    parts = [torch.arange(0, 40), torch.arange(40, 57), torch.arange(57, 60)]
    return Problem.from_tensors(
        model,
        train=(x, y),
        test=(x, y),
        parts=parts,
        **options,  # type: ignore[arg-type]
    )


def round_of(
    trainer: LocalTrainer, client: int = 0, local_round: int = 0, steps: int = 5
) -> Tensor:
    update = trainer.train(
        trainer.initial_state(),
        client=client,
        local_round=local_round,
        steps=steps,
        payload="delta",
    )
    return torch.cat([update.trainable, update.averaged, update.counted])


@pytest.mark.parametrize("sampling", ["replacement", "epochs", "rounds"])
@pytest.mark.parametrize(
    ("settings", "optimizer"),
    [
        (SGD, lambda p: torch.optim.SGD(p, lr=0.1)),
        (
            LocalSettings(optimizer="sgd", learning_rate=0.1, momentum=0.9, batch_size=8),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        ),
        (LocalSettings(batch_size=8), lambda p: torch.optim.Adam(p, lr=0.003)),
        (
            LocalSettings(optimizer="adamw", weight_decay=0.1, batch_size=8),
            lambda p: torch.optim.AdamW(p, lr=0.003, weight_decay=0.1),
        ),
    ],
)
def test_a_round_is_what_a_plain_loop_over_the_same_batches_does(
    settings: LocalSettings,
    optimizer: Callable[[object], torch.optim.Optimizer],
    sampling: Sampling,
) -> None:
    problem, settings = problem_of(linear), settings.model_copy(update={"sampling": sampling})
    trainer = LocalTrainer(problem, settings, seed=3)
    start = trainer.initial_state()
    module = linear()
    trainer.layout.load(module, start)
    plain = optimizer(module.parameters())
    stream = row_stream(sampling, seed=3, client=1, local_round=4, steps_before=50)
    for batch in batch_rows(stream, steps=300, batch_size=8, samples=17):
        inputs, targets = problem.clients[1].batch(batch)
        plain.zero_grad()
        functional.cross_entropy(module(inputs), targets).backward()  # type: ignore[no-untyped-call]
        plain.step()
    end = trainer.layout.state_of(module)
    task = partial(trainer.train, start, client=1, local_round=4, steps=300, steps_before=50)
    update = task(payload="delta")
    torch.testing.assert_close(update.trainable, start.trainable - end.trainable)
    model = task(payload="model")
    torch.testing.assert_close(model.trainable, end.trainable)


@pytest.mark.parametrize("sampling", ["replacement", "epochs", "rounds"])
@pytest.mark.parametrize("model", [linear, Normed, Tied])
def test_a_round_does_not_depend_on_what_was_trained_before(
    model: Callable[[], nn.Module], sampling: Sampling
) -> None:
    settings = LocalSettings(batch_size=8, sampling=sampling)
    fresh = LocalTrainer(problem_of(model), settings, seed=0)
    used = LocalTrainer(problem_of(model), settings, seed=0)
    for client in (2, 1, 0):
        round_of(used, client=client, local_round=7)
    assert torch.equal(round_of(fresh), round_of(used))


@pytest.mark.parametrize(("client", "local_round", "seed"), [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_client_round_and_seed_each_select_other_batches(
    client: int, local_round: int, seed: int
) -> None:
    start = LocalTrainer(problem_of(linear), SGD, seed=0).initial_state()
    first = LocalTrainer(problem_of(linear), SGD, seed=0)
    other = LocalTrainer(problem_of(linear), SGD, seed=seed)
    a = first.train(start, client=0, local_round=0, steps=3, payload="delta")
    b = other.train(start, client=client, local_round=local_round, steps=3, payload="delta")
    assert not torch.equal(a.trainable, b.trainable)


def test_the_start_is_left_alone_unless_the_update_overwrites_it() -> None:
    trainer = LocalTrainer(problem_of(Normed), SGD, seed=0)
    start = trainer.initial_state()
    before = start.clone()
    update = trainer.train(start, client=0, local_round=0, steps=3, payload="delta")
    assert torch.equal(start.trainable, before.trainable)
    assert torch.equal(start.averaged, before.averaged)
    same = trainer.train(start, client=0, local_round=0, steps=3, payload="delta", out=start)
    assert same is start
    assert torch.equal(start.trainable, update.trainable)


def test_buffers_travel_as_end_values_even_when_the_module_replaces_them() -> None:
    trainer = LocalTrainer(problem_of(Normed), SGD, seed=0)
    update = trainer.train(
        trainer.initial_state(), client=0, local_round=0, steps=3, payload="delta"
    )
    values = trainer.layout.unflatten(update)
    assert values["seen"].item() == 3 * 8
    assert values["body.1.num_batches_tracked"].item() == 3
    assert "frozen" not in values
    assert not torch.equal(values["body.1.running_mean"], torch.zeros(8))


def test_a_model_of_two_float_types_trains() -> None:
    trainer = LocalTrainer(problem_of(MixedTypes), SGD, seed=0)
    start = trainer.initial_state()
    update = trainer.train(start, client=0, local_round=0, steps=3, payload="delta")
    views = {spec.name: view for spec, view in trainer.layout.views(update)}
    assert all(bool(view.abs().sum() > 0) for view in views.values())


class MixedTypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(6, 4).double(), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.narrow(self.wide(x.double()).float())
        return out


def test_augmentation_draws_from_its_own_generator_and_only_in_training() -> None:
    def noisy(x: Tensor, generator: torch.Generator) -> Tensor:
        return x + torch.randn(x.shape, generator=generator)

    trainer = LocalTrainer(problem_of(linear, augment=noisy), SGD, seed=0)
    first = round_of(trainer)
    torch.manual_seed(99)
    assert torch.equal(round_of(trainer), first)
    assert not torch.equal(first, round_of(LocalTrainer(problem_of(linear), SGD, seed=0)))


def test_the_transform_prepares_every_batch() -> None:
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    problem = problem_of(linear)
    stored = [Samples(s.tensor * 2, s.targets, s.indices) for s in problem.clients]
    by_hand = Problem(model=linear, clients=stored, test=problem.test)
    on_the_fly = problem_of(linear, transform=doubled)
    a, b = (round_of(LocalTrainer(p, SGD, seed=0)) for p in (by_hand, on_the_fly))
    assert torch.equal(a, b)


def test_training_leaves_the_global_generator_alone() -> None:
    trainer = LocalTrainer(problem_of(Normed), SGD, seed=0)
    torch.manual_seed(4)
    before = torch.get_rng_state()
    round_of(trainer)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_exception_in_the_users_code_names_the_client_and_the_round() -> None:
    def failing(outputs: Tensor, targets: Tensor) -> Tensor:
        raise ValueError("bad labels")

    trainer = LocalTrainer(problem_of(linear, loss=failing), SGD, seed=0)
    with pytest.raises(TaskFailed, match=r"client 1 .*local round 4 .*ValueError: bad labels"):
        round_of(trainer, client=1, local_round=4)
    with pytest.raises(TaskFailed, match="asks for 0 steps; a task has at least 1"):
        round_of(trainer, steps=0)


def test_a_model_without_anything_to_train_is_refused() -> None:
    with pytest.raises(SettingsError, match="no parameter that trains"):
        LocalTrainer(problem_of(nn.Flatten), SGD, seed=0)


def test_settings_name_what_is_wrong() -> None:
    with pytest.raises(SettingsError, match="optimizer is 'adan'; allowed: one of 'sgd'"):
        LocalSettings(optimizer="adan")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"momentum is 0\.9 but optimizer is 'adam'"):
        LocalSettings(momentum=0.9)


def test_problems_that_cannot_work_are_refused() -> None:
    x, y = torch.zeros(4, 6), torch.zeros(4, dtype=torch.int64)
    whole = Samples(x, y)
    with pytest.raises(DataError, match="4 inputs have 3 targets"):
        Samples(x, y[:3])
    with pytest.raises(DataError, match="from 0 to 4 of 4"):
        Samples(x, y, torch.tensor([0, 4]))
    with pytest.raises(DataError, match="vector of int64"):
        Samples(x, y, torch.tensor([0.0]))
    with pytest.raises(DataError, match="client 1 has no samples"):
        Problem(model=linear, clients=[whole, Samples(x, y, torch.arange(0))], test=whole)
    with pytest.raises(DataError, match="1 clients have 2 client_tests"):
        Problem(model=linear, clients=[whole], test=whole, client_tests=[whole, whole])


def test_moving_a_problem_keeps_what_clients_share_shared() -> None:
    moved = problem_of(linear).to("cpu")
    assert len({id(s.inputs) for s in moved.clients}) == 1


def test_the_initial_model_depends_on_the_seed_alone() -> None:
    first, again, other = (LocalTrainer(problem_of(linear), SGD, seed=s) for s in (0, 0, 1))
    start = copy.deepcopy(first.initial_state())
    round_of(first)
    assert torch.equal(first.initial_state().trainable, start.trainable)
    assert torch.equal(again.initial_state().trainable, start.trainable)
    assert not torch.equal(other.initial_state().trainable, start.trainable)
    assert first.layout == Layout.of(linear())
