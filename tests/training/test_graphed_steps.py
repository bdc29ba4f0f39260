"""On a GPU a model's step is compiled and becomes a CUDA graph, or it is said why not."""

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from fedcompass.aggregation.layout import FlatState
from fedcompass.errors import SettingsError
from fedcompass.training import LocalSettings, LocalTrainer, Problem

SGD = LocalSettings(optimizer="sgd", learning_rate=0.1, batch_size=8)
MOMENTUM = LocalSettings(optimizer="sgd", learning_rate=0.1, momentum=0.9, batch_size=8)
ADAM = LocalSettings(learning_rate=0.01, batch_size=8)
ADAMW = LocalSettings(optimizer="adamw", weight_decay=0.1, batch_size=8, rate_decay=0.5)

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU")


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),  # before a norm its gradient is only rounding
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 3),
    )


def odd() -> nn.Module:
    """Weights that begin anywhere in a flat vector: kernels may not read them there."""
    return nn.Sequential(
        nn.Conv2d(3, 5, 1),
        nn.Conv2d(5, 5, 3, padding=1, groups=5, bias=False),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(20, 7),
        nn.Linear(7, 3),
    )


def dropping() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.Dropout(0.5), nn.Linear(32, 3))


class Waiting(nn.Module):
    """Looks at a value on the way, which a graph cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x.flatten(1))
        return out * 2 if float(out.detach().sum()) > 1e9 else out


class Counting(nn.Module):
    """Puts a new tensor in a buffer's place."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 3)
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = self.seen + len(x)
        out: Tensor = self.head(x.flatten(1))
        return out


class DrawingOnTheCpu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x.flatten(1))
        return out * (1 + 0.1 * torch.rand(3)).to(x.device) if self.training else out


def problem_of(model: Callable[[], nn.Module], **options: object) -> Problem:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(60, 3, 8, 8, generator=generator), torch.arange(60) % 3
    parts = [torch.arange(0, 40), torch.arange(40, 60)]
    return Problem.from_tensors(
        model,
        train=(x, y),
        test=(x, y),
        parts=parts,
        **options,  # type: ignore[arg-type]
    )


def round_of(trainer: LocalTrainer, client: int = 0, local_round: int = 0) -> Tensor:
    update = whole_round_of(trainer, client, local_round)
    return torch.cat([update.trainable, update.averaged, update.counted.float()]).cpu()


def whole_round_of(trainer: LocalTrainer, client: int = 0, local_round: int = 0) -> FlatState:
    return trainer.train(
        trainer.initial_state().to(trainer.device),
        client=client,
        local_round=local_round,
        steps=6,
        payload="delta",
    )


def how(trainer: LocalTrainer) -> str:
    return trainer.how


def apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.fixture
def exact() -> Iterator[None]:
    allowed, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    yield
    torch.backends.cudnn.allow_tf32 = allowed


def test_bfloat16_is_refused_where_it_would_be_slow() -> None:
    chosen = LocalSettings(precision="bfloat16")
    with pytest.raises(SettingsError, match="precision is 'bfloat16' and the device is cpu"):
        LocalTrainer(problem_of(convolutional), chosen, seed=0)


@needs_cuda
@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("model", [convolutional, odd])
@pytest.mark.parametrize("settings", [SGD, MOMENTUM, ADAM, ADAMW])
def test_a_round_on_a_gpu_is_that_on_a_cpu(
    settings: LocalSettings, model: Callable[[], nn.Module]
) -> None:
    problem = problem_of(model)
    on_gpu = LocalTrainer(problem, settings, seed=0, device="cuda")
    on_cpu = LocalTrainer(problem, settings, seed=0)
    for local_round in range(2):
        assert apart(round_of(on_gpu, 1, local_round), round_of(on_cpu, 1, local_round)) < 1e-3
    assert how(on_gpu) == "compiled, CUDA graph"


@needs_cuda
@pytest.mark.parametrize("model", [convolutional, dropping])
def test_a_round_does_not_depend_on_earlier_ones(model: Callable[[], nn.Module]) -> None:
    problem = problem_of(model)
    used, fresh = (LocalTrainer(problem, MOMENTUM, seed=0, device="cuda") for _ in range(2))
    round_of(used)
    round_of(used, client=1)
    assert torch.equal(round_of(used, 0, 3), round_of(fresh, 0, 3))
    assert not torch.equal(round_of(used, 0, 3), round_of(used, 0, 4))


@needs_cuda
def test_a_model_with_dropout_is_captured_but_not_compiled() -> None:
    trainer = LocalTrainer(problem_of(dropping), ADAM, seed=0, device="cuda")
    assert torch.equal(round_of(trainer), round_of(trainer))
    assert how(trainer) == "CUDA graph"


@needs_cuda
@pytest.mark.usefixtures("exact")
def test_augmented_batches_go_through_the_graph() -> None:
    def noisy(x: Tensor, generator: torch.Generator) -> Tensor:
        return x + torch.randn(x.shape, generator=generator, device=x.device)

    plain, noised = (
        LocalTrainer(problem_of(convolutional, augment=augment), SGD, seed=0, device="cuda")
        for augment in (None, noisy)
    )
    assert torch.equal(round_of(noised, 1), round_of(noised, 1))
    assert not torch.equal(round_of(noised, 1), round_of(plain, 1))
    assert how(noised) == "compiled, CUDA graph"


@needs_cuda
@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Waiting, "do not become a CUDA graph"),
        (Counting, "do not become a CUDA graph"),
        (DrawingOnTheCpu, "draws random numbers on the CPU"),
    ],
)
def test_what_a_graph_cannot_do_is_said_and_trained_without(
    model: Callable[[], nn.Module], reason: str
) -> None:
    problem = problem_of(model)
    trainer = LocalTrainer(problem, SGD, seed=0, device="cuda")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        got = round_of(trainer)
    assert how(trainer) == "eager"
    assert any(reason in str(warning.message) for warning in said)
    assert apart(got, round_of(LocalTrainer(problem, SGD, seed=0))) < 1e-3


@needs_cuda
def test_trainers_of_one_model_share_its_compiled_step() -> None:
    problem = problem_of(convolutional)
    one = LocalTrainer(problem, SGD, seed=0, device="cuda")
    wanted = round_of(one)
    other = LocalTrainer(problem, SGD, seed=1, device="cuda", steps=one._steps)
    assert not torch.equal(round_of(other), wanted)
    assert torch.equal(round_of(one), wanted)


@needs_cuda
def test_bfloat16_is_near_and_keeps_float32_weights() -> None:
    problem = problem_of(convolutional)
    rounded = SGD.model_copy(update={"precision": "bfloat16"})
    near = LocalTrainer(problem, rounded, seed=0, device="cuda")
    got = whole_round_of(near)
    wanted = whole_round_of(LocalTrainer(problem, SGD, seed=0, device="cuda"))
    assert got.trainable.dtype == torch.float32
    assert 1e-6 < apart(got.trainable, wanted.trainable) < 0.1
