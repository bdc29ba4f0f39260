"""DP-SGD by Opacus: what a step is, what it refuses, and that it can be repeated."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcompass.aggregation.layout import FlatState
from fedcompass.errors import SettingsError, TaskFailed
from fedcompass.privacy.account import PrivacyPlan
from fedcompass.privacy.secret_draws import SecretDraws
from fedcompass.settings.training import LocalSettings
from fedcompass.training import Problem, Samples
from fedcompass.training.local import LocalTrainer
from fedcompass.training.losses import LOSSES
from fedcompass.training.private_steps import (
    PrivateSteps,
    check_loss,
    check_problem,
    simulated_draws,
)

SGD = LocalSettings(optimizer="sgd", learning_rate=0.5, batch_size=8)
PLAN = PrivacyPlan(epsilon=8.0, delta=1e-5, clip=0.1, noise=1.0, sample_rate=0.2, batch_size=8.0)
ALL = replace(PLAN, sample_rate=1.0, batch_size=40.0, noise=1e-9)  # nearly no noise
TORCH = torch.Generator().manual_seed(0)
INPUTS = torch.randn(40, 6, generator=TORCH)
TARGETS = torch.randint(0, 3, (40,), generator=TORCH)


def linear() -> nn.Module:
    return nn.Linear(6, 3)


def problem_of(model: type[nn.Module] | object = linear) -> Problem:
    samples = Samples(INPUTS, TARGETS)
    return Problem(model=model, clients=[samples, samples], test=samples)  # type: ignore[arg-type]


def trained(
    trainer: LocalTrainer, plan: PrivacyPlan | None = PLAN, *, steps: int = 3, local_round: int = 0
) -> FlatState:
    start = trainer.initial_state()
    return trainer.train(
        start, client=0, local_round=local_round, steps=steps, payload="delta", privacy=plan
    )


def test_a_step_is_the_mean_of_the_samples_clipped_gradients() -> None:
    trainer = LocalTrainer(problem_of(), SGD, seed=0)
    changed = trained(trainer, ALL, steps=1).trainable
    module = trainer.model.module
    trainer.model.load(trainer.initial_state())
    total = torch.zeros_like(changed)
    for inputs, target in zip(INPUTS, TARGETS, strict=True):
        module.zero_grad()
        functional.cross_entropy(module(inputs[None]), target[None]).backward()  # type: ignore[no-untyped-call]
        gradient = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
        total += gradient * min(1.0, 0.1 / float(gradient.norm()))
    assert torch.allclose(changed, 0.5 * total / 40, atol=1e-6)


def test_noise_has_the_size_that_the_plan_says() -> None:
    wide = Problem(
        model=lambda: nn.Linear(6, 5000),
        clients=[Samples(INPUTS, TARGETS)],
        test=Samples(INPUTS, TARGETS),
    )
    trainer = LocalTrainer(wide, SGD, seed=0)
    loud = replace(PLAN, noise=50.0)
    noise = trained(trainer, loud, steps=1).trainable * 8.0 / 0.5  # of the sum of gradients
    assert noise.std() == pytest.approx(50.0 * 0.1, rel=0.03)
    assert abs(float(noise.mean())) < 0.2


def test_a_task_gives_the_same_bits_whatever_was_trained_before() -> None:
    used, fresh = (LocalTrainer(problem_of(), SGD, seed=0) for _ in range(2))
    trained(used, local_round=7)
    trained(used, None)
    first, again = trained(used), trained(fresh)
    assert torch.equal(first.trainable, again.trainable)
    assert not torch.equal(first.trainable, trained(fresh, local_round=1).trainable)
    other_seed = trained(LocalTrainer(problem_of(), SGD, seed=1))
    assert not torch.equal(first.trainable, other_seed.trainable)


def test_an_empty_batch_is_a_step_of_noise_alone() -> None:
    rare = replace(PLAN, sample_rate=1e-9)
    assert len(simulated_draws(0, 0, 0).rows(40, 1e-9)) == 0
    changed = trained(LocalTrainer(problem_of(), SGD, seed=0), rare, steps=2)
    assert 0 < float(changed.trainable.norm()) < 1.0


def test_a_batch_takes_each_sample_on_its_own() -> None:
    draws = SecretDraws(b"secret")
    batches = [draws.rows(40, 0.25) for _ in range(800)]
    taken = torch.zeros(40)
    for rows in batches:
        taken[rows] += 1
    assert len({len(rows) for rows in batches}) > 8  # its size varies
    assert taken.mean() / 800 == pytest.approx(0.25, abs=0.01)
    assert float((taken / 800 - 0.25).abs().max()) < 0.08
    assert draws.rows(5, 1.0).tolist() == [0, 1, 2, 3, 4]


def test_the_draws_of_a_site_cannot_be_repeated_and_those_of_a_simulated_client_can() -> None:
    like = torch.zeros(1000)
    one, other = SecretDraws.fresh(), SecretDraws.fresh()
    assert not torch.equal(one.normal(like), other.normal(like))
    assert not torch.equal(one.normal(like), one.normal(like))
    assert torch.equal(simulated_draws(3, 1, 2).normal(like), simulated_draws(3, 1, 2).normal(like))
    drawn = simulated_draws(3, 1, 2).normal(torch.zeros(200_000))
    assert drawn.dtype == torch.float64
    assert drawn.mean() == pytest.approx(0.0, abs=0.01)
    assert drawn.std() == pytest.approx(1.0, abs=0.01)
    share = (drawn.abs() > 2).double().mean()
    assert share == pytest.approx(0.0455, abs=0.002)


class Normed(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm, self.last = norm, nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.last(self.norm(inputs))
        return out


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_is_refused_with_what_to_use_instead(affine: bool) -> None:
    module = Normed(nn.BatchNorm1d(6, affine=affine))
    with pytest.raises(SettingsError) as caught:
        check_problem(problem_of(), SGD, module)
    assert str(caught.value) == (
        "layer 'norm' is a BatchNorm1d, which mixes the samples of a batch: no step of it is "
        "private; use nn.GroupNorm (opacus.validators.ModuleValidator.fix puts it in)"
    )


def test_group_norm_is_trained_privately() -> None:
    problem = problem_of(lambda: Normed(nn.GroupNorm(2, 6)))
    check_problem(problem, SGD, problem.model())
    assert trained(LocalTrainer(problem, SGD, seed=0)).trainable.norm() > 0


def test_a_layer_that_opacus_cannot_train_is_refused_in_one_line() -> None:
    with pytest.raises(SettingsError, match="cannot be trained privately: We do not support nn"):
        check_problem(problem_of(), SGD, nn.LSTM(6, 3))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, inputs: Tensor) -> Tensor:
        self.mean = self.mean + inputs.detach().mean(0)
        out: Tensor = self.last(inputs)
        return out


def test_a_model_whose_buffers_learn_from_the_samples_sends_nothing() -> None:
    with pytest.raises((TaskFailed, SettingsError), match="buffer"):
        trained(LocalTrainer(problem_of(Counting), SGD, seed=0))


class Folded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        rows: Tensor = self.last(inputs.reshape(-1, 3))
        return rows.reshape(len(inputs), 2, 3).sum(1)


def test_a_model_that_does_not_keep_samples_apart_is_noticed() -> None:
    with pytest.raises(TaskFailed, match="does not keep them apart"):
        trained(LocalTrainer(problem_of(Folded), SGD, seed=0), ALL)


def test_a_loss_that_compares_samples_is_refused() -> None:
    events = torch.stack([(TARGETS > 0).float(), INPUTS[:, 0].exp()], 1)
    with pytest.raises(SettingsError, match="it compares samples, so no step of it is private"):
        check_loss(nn.Linear(6, 1), LOSSES["cox"], INPUTS, events)
    check_loss(nn.Linear(6, 1), LOSSES["logistic"], INPUTS, TARGETS > 0)
    check_loss(linear(), LOSSES["cross_entropy"], INPUTS, TARGETS)


def test_half_precision_is_refused() -> None:
    with pytest.raises(SettingsError, match="allowed with privacy: float32"):
        PrivateSteps(
            linear(),
            SGD.model_copy(update={"precision": "bfloat16"}),
            functional.cross_entropy,
            torch.device("cpu"),
        )
