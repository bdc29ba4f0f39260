"""A stack of tasks gives what each task gives alone, up to rounding."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcompass.aggregation.layout import FlatState
from fedcompass.models.resnet import ResidualBlock
from fedcompass.settings.training import Sampling
from fedcompass.training import LocalSettings, LocalTrainer, Problem
from fedcompass.training.evaluation import evaluate
from fedcompass.training.stacked import StackedTask, StackedTrainer
from fedcompass.training.stacked.chosen_trainer import stacked_trainer
from fedcompass.training.stacked.convert import convert
from fedcompass.training.stacked.forward import CannotStack
from fedcompass.training.streams import row_stream

torch.set_num_threads(1)
STEPS = (3, 5, 1, 4)
BEFORE = (0, 7, 2, 40)
SETTINGS = {
    "sgd": LocalSettings(optimizer="sgd", learning_rate=0.05, batch_size=8),
    "momentum": LocalSettings(
        optimizer="sgd", learning_rate=0.05, momentum=0.9, weight_decay=0.01, batch_size=8
    ),
    "adam": LocalSettings(learning_rate=1e-3, weight_decay=0.1, batch_size=8),
    "adamw": LocalSettings(optimizer="adamw", learning_rate=1e-3, weight_decay=0.1, batch_size=8),
}


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, 10),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 16), nn.Tanh(), nn.Linear(16, 10, bias=False))


def residual() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(4),
        ResidualBlock(4, 8, 2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


class Functional(nn.Module):
    """Dilation, cumulative batch norm, pooling and flattening by functions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, dilation=2, padding=(1, 2), bias=False)
        self.norm = nn.BatchNorm2d(4, momentum=None)
        self.head = nn.Linear(4 * 7 * 8, 10)
        with torch.no_grad():
            self.head.weight.copy_(torch.linspace(-0.1, 0.1, 2240).view(10, 224))
        self.head.weight.requires_grad_(False)  # the same for every seed

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        out: Tensor = self.head(torch.flatten(x, 1))
        return out


def transposed() -> nn.Module:
    """Has a layer that is not known: vmap."""
    return nn.Sequential(
        nn.ConvTranspose2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(648, 10)
    )


def to_float(pixels: Tensor) -> Tensor:
    return pixels.float() / 255


def problem_of(model: Callable[[], nn.Module], **options: object) -> Problem:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (120, 1, 16, 16), dtype=torch.uint8, generator=generator)
    y = torch.arange(120) % 10
    parts = torch.split(torch.randperm(120, generator=generator), [20, 40, 25, 35])
    return Problem.from_tensors(
        model,
        train=(x, y),
        test=(x, y),
        parts=parts,
        transform=to_float,
        **options,  # type: ignore[arg-type]
    )


def tasks_of(
    problem: Problem,
    start: FlatState,
    steps: tuple[int, ...] = STEPS,
    sampling: Sampling = "replacement",
) -> list[StackedTask]:
    return [
        StackedTask(
            start=start,
            samples=problem.clients[client],
            stream=row_stream(
                sampling, seed=0, client=client, local_round=0, steps_before=BEFORE[client]
            ),
            steps=count,
            payload="delta" if client % 2 else "model",
        )
        for client, count in enumerate(steps)
    ]


def trainer_of(problem: Problem, settings: LocalSettings, max_stack: int = 16) -> StackedTrainer:
    made = stacked_trainer(problem, settings, torch.device("cpu"), max_stack)
    assert isinstance(made, StackedTrainer), made
    return made


def assert_like_serial(problem: Problem, settings: LocalSettings, updates: list[FlatState]) -> None:
    alone = LocalTrainer(problem, settings, seed=0)
    start = alone.initial_state()
    for client, update in enumerate(updates):
        wanted = alone.train(
            start,
            client=client,
            local_round=0,
            steps=STEPS[client],
            payload="delta" if client % 2 else "model",
            steps_before=BEFORE[client],
        )
        # Adam divides by the gradient's size, so rounding shows where a gradient is almost 0.
        torch.testing.assert_close(update.trainable, wanted.trainable, rtol=1e-3, atol=2e-4)
        torch.testing.assert_close(update.averaged, wanted.averaged, rtol=1e-4, atol=1e-5)
        assert torch.equal(update.counted, wanted.counted)


@pytest.mark.parametrize("optimizer", SETTINGS)
@pytest.mark.parametrize("model", [cnn, mlp, residual, Functional, transposed])
def test_a_stack_gives_what_each_task_gives_alone(
    model: Callable[[], nn.Module], optimizer: str
) -> None:
    problem, settings = problem_of(model), SETTINGS[optimizer]
    trainer = trainer_of(problem, settings)
    start = LocalTrainer(problem, settings, seed=0).initial_state()
    assert trainer.how.startswith("vmap" if model is transposed else "stacked")
    assert_like_serial(problem, settings, trainer.train(tasks_of(problem, start)))


@pytest.mark.parametrize("max_stack", [2, 16])
@pytest.mark.parametrize("sampling", ["epochs", "rounds"])
def test_a_stack_reads_the_passes_that_each_task_reads_alone(
    sampling: Sampling, max_stack: int
) -> None:
    settings = SETTINGS["sgd"].model_copy(update={"sampling": sampling})
    problem = problem_of(mlp)
    start = LocalTrainer(problem, settings, seed=0).initial_state()
    tasks = tasks_of(problem, start, sampling=sampling)
    assert_like_serial(problem, settings, trainer_of(problem, settings, max_stack).train(tasks))


@pytest.mark.parametrize("sampling", ["epochs", "rounds"])
def test_the_trial_of_a_layer_that_is_not_known_draws_as_the_model_alone(
    sampling: Sampling,
) -> None:
    settings = SETTINGS["sgd"].model_copy(update={"sampling": sampling})
    assert trainer_of(problem_of(transposed), settings).how.startswith("vmap")


@pytest.mark.parametrize("max_stack", [1, 3])
def test_the_size_of_stacks_changes_nothing_but_rounding(max_stack: int) -> None:
    problem, settings = problem_of(cnn), SETTINGS["adam"]
    trainer = trainer_of(problem, settings, max_stack)
    start = LocalTrainer(problem, settings, seed=0).initial_state()
    tasks = tasks_of(problem, start)
    assert_like_serial(problem, settings, trainer.train(tasks))
    again, first = trainer.train(tasks), trainer.train(tasks)
    assert all(torch.equal(a.trainable, b.trainable) for a, b in zip(again, first, strict=True))


def test_a_task_that_is_done_keeps_its_weights_to_the_bit() -> None:
    problem, settings = problem_of(cnn), SETTINGS["momentum"]
    trainer = trainer_of(problem, settings)
    start = LocalTrainer(problem, settings, seed=0).initial_state()
    short = trainer.train(tasks_of(problem, start, (2, 2)))[1]
    mixed = trainer.train(tasks_of(problem, start, (6, 2)))[1]
    torch.testing.assert_close(short.trainable, mixed.trainable, rtol=0, atol=1e-7)


def test_tasks_may_start_from_different_models_and_the_starts_stay() -> None:
    problem, settings = problem_of(mlp), SETTINGS["sgd"]
    trainer = trainer_of(problem, settings)
    starts = [LocalTrainer(problem, settings, seed=s).initial_state() for s in (0, 1, 0)]
    before = [start.trainable.clone() for start in starts]
    tasks = [tasks_of(problem, start, (3, 3))[1] for start in starts]
    one, other, third = trainer.train(tasks)
    torch.testing.assert_close(one.trainable, third.trainable, rtol=0, atol=1e-7)
    assert not torch.allclose(one.trainable, other.trainable)
    for start, kept in zip(starts, before, strict=True):
        assert torch.equal(start.trainable, kept)


@pytest.mark.parametrize("model", [cnn, residual, transposed])
def test_a_stack_of_models_is_measured_like_each_alone(model: Callable[[], nn.Module]) -> None:
    problem, settings = problem_of(model), SETTINGS["sgd"]
    trainer = trainer_of(problem, settings)
    alone = [LocalTrainer(problem, settings, seed=seed) for seed in range(6)]
    states = [one.initial_state() for one in alone]
    found = trainer.evaluator.evaluate(states, problem.test, ("loss", "accuracy"), problem.loss)
    for one, state, metrics in zip(alone, states, found, strict=True):
        wanted = evaluate(one, state, problem.test, ("loss", "accuracy"))
        assert metrics["accuracy"] == wanted["accuracy"]
        assert metrics["loss"] == pytest.approx(wanted["loss"], rel=1e-5)


def test_another_loss_is_taken_client_by_client() -> None:
    def squared(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.mse_loss(outputs, functional.one_hot(targets, 10).float())

    problem, settings = problem_of(mlp, loss=squared), SETTINGS["adam"]
    start = LocalTrainer(problem, settings, seed=0).initial_state()
    trainer = trainer_of(problem, settings)
    assert_like_serial(problem, settings, trainer.train(tasks_of(problem, start)))


class Forgetful(nn.Module):
    """Replaces a buffer, which vmap does not notice."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(256, 10)
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.seen + 1
        out: Tensor = self.head(x.flatten(1))
        return out


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(256, 256), nn.Linear(256, 256)
        self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.two(self.one(x.flatten(1)))[:, :10]
        return out


def dropout() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(256, 10))


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (problem_of(dropout), "random"),
        (problem_of(Tied), "share weights"),
        (problem_of(lambda: mlp().double()), "not float32"),
        (problem_of(Forgetful), "other results"),
        (problem_of(mlp, augment=lambda x, _: x), "augments"),
    ],
)
def test_what_cannot_be_stacked_says_why(problem: Problem, why: str) -> None:
    made = stacked_trainer(problem, SETTINGS["sgd"], torch.device("cpu"), None)
    assert isinstance(made, str)
    assert made.startswith("one at a time (")
    assert why in made


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if bool(x.sum() > 0) else -x


class TwoInputs(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class TwoOutputs(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x


class AcrossSamples(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.flatten(x, 0)


def hooked() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *_: None)
    return layer


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (Branching(), "cannot be traced"),
        (TwoInputs(), "more than one argument"),
        (TwoOutputs(), "more than one tensor"),
        (AcrossSamples(), "flattens more"),
        (hooked(), "hooks"),
        (nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), "grouped"),
        (nn.Sequential(nn.Flatten(0)), "'0' is a Flatten"),
        (nn.Sequential(nn.LSTM(2, 2)), "LSTM"),
    ],
)
def test_the_converter_names_what_it_does_not_know(module: nn.Module, why: str) -> None:
    with pytest.raises(CannotStack, match=why):
        convert(module)


def test_samples_that_problems_share_are_moved_once() -> None:
    one = problem_of(mlp)
    two = Problem(model=mlp, clients=one.clients[:2], test=one.test)
    stored: dict[int, tuple[Tensor, Tensor]] = {}
    moved = [problem.to("cpu", stored) for problem in (one, two)]
    assert moved[0].clients[0].inputs is moved[1].clients[1].inputs
    assert len(stored) == 2  # inputs and targets; training and test are the same here
