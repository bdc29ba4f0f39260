"""Steps of DP-SGD: Poisson batches, each sample's gradient clipped, noise on their sum, by Opacus.

Abadi et al. 2016. Loaded only where training is private: Opacus takes seconds to import.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fedcompass.aggregation.layout import FlatState
from fedcompass.errors import MissingExtra, SettingsError, TaskFailed
from fedcompass.privacy.account import PrivacyPlan
from fedcompass.privacy.secret_draws import SecretDraws
from fedcompass.settings.training import LocalSettings
from fedcompass.training.model_steps import ModelSteps
from fedcompass.training.problem import Inputs, Loss, Problem, Samples, checked_loss
from fedcompass.training.streams import stream_key

try:
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.validators import ModuleValidator
except ImportError:
    raise MissingExtra("opacus", "privacy", "a privacy budget") from None

__all__ = [
    "PrivateOptimizer",
    "PrivateSteps",
    "check_buffers",
    "check_loss",
    "check_problem",
    "made_private",
    "poisson_batches",
    "simulated_draws",
]

_PROBED = 64  # samples that a loss is tried on


class PrivateOptimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus's, with noise that cannot be guessed: torch's generators can (see `SecretDraws`)."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, plan: PrivacyPlan, draws: SecretDraws
    ) -> None:
        super().__init__(
            optimizer,
            noise_multiplier=plan.noise,
            max_grad_norm=plan.clip,
            expected_batch_size=plan.batch_size,
        )
        self._draws = draws

    def add_noise(self) -> None:
        """Put noise on the clipped sums, in double precision."""
        std = self.noise_multiplier * self.max_grad_norm
        for p in self.params:
            noise = self._draws.normal(p.summed_grad).to(p.summed_grad.device)
            p.grad = (p.summed_grad.double() + std * noise).to(p.dtype).view_as(p)

    def step_on(self, samples: int, backward: Callable[[], Any]) -> Any:
        """Take one step on so many samples, whose mean loss `backward` differentiates.

        A step on none is noise alone; leaving it out would tell that there was none.
        """
        self.zero_grad(set_to_none=True)
        with warnings.catch_warnings():  # the first layer's input needs no gradient: that is right
            warnings.filterwarnings("ignore", "Full backward hook is firing")
            told = backward() if samples else None
        for p in self.params:
            if samples == 0:
                p.grad_sample = p.new_zeros((0, *p.shape))
            elif not isinstance(p.grad_sample, Tensor) or len(p.grad_sample) != samples:
                raise TaskFailed(
                    f"a layer's weight of shape {list(p.shape)} has no gradient for each of "
                    f"{samples} samples: the model does not keep them apart, or does not use it"
                )
            # One that is not finite cannot be clipped: it would be more than the clip.
            torch.nan_to_num_(p.grad_sample, nan=0.0, posinf=0.0, neginf=0.0)
        self.step()
        return told


class PrivateSteps(ModelSteps):
    """Steps that are private; a round begins with `begin_private`."""

    def __init__(
        self, module: nn.Module, settings: LocalSettings, loss: Loss, device: torch.device
    ) -> None:
        if settings.precision != "float32":
            raise SettingsError(
                f"local.precision is {settings.precision!r}; allowed with privacy: float32"
            )
        super().__init__(module, settings, loss, device)
        self._hooked = made_private(self.model.module)
        self._private: PrivateOptimizer | None = None

    def begin_private(
        self, start: FlatState, rate: float, plan: PrivacyPlan, draws: SecretDraws
    ) -> None:
        """Start a round."""
        self.begin(start, rate)
        self._private = PrivateOptimizer(self._optimizer, plan, draws)

    def step(self, inputs: Inputs, targets: Tensor) -> None:
        """Take one step on a batch, which may be empty."""
        assert self._private is not None

        def backward() -> None:
            self._checked_loss(inputs, targets).backward()  # type: ignore[no-untyped-call]

        self._private.step_on(len(targets), backward)

    def end(self) -> None:
        """Let go of the gradients."""
        if self._private is not None:
            self._private.zero_grad(set_to_none=True)


def made_private(module: nn.Module) -> Any:
    """Let a module's backward passes keep each sample's gradients; give back what does so.

    Raises:
        SettingsError: a layer does not allow it; the message says which, and what to use instead.
    """
    module.train()
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise SettingsError(
                f"layer {name!r} is a {type(layer).__name__}, which mixes the samples of a batch: "
                "no step of it is private; use nn.GroupNorm (opacus.validators.ModuleValidator.fix "
                "puts it in)"
            )
    for error in (*ModuleValidator.validate(module), *GradSampleModule.validate(module)):
        reason = str(error).split(". ")[0]
        raise SettingsError(
            f"the model cannot be trained privately: {reason}; change that layer "
            "(opacus.validators.ModuleValidator.fix replaces some)"
        )
    return GradSampleModule(module)


def check_loss(module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> None:
    """Refuse a loss that is not the mean over single samples: clipping would bound nothing.

    Raises:
        SettingsError: it compares the samples of a batch, as Cox's does.
    """
    inputs, targets = inputs[:_PROBED], targets[:_PROBED]
    before = module.training
    with torch.no_grad():
        outputs = module.eval()(inputs)
        whole = checked_loss(loss, loss(outputs, targets), trains=False)
        rows = range(len(inputs))
        single = torch.stack([loss(outputs[i : i + 1], targets[i : i + 1]) for i in rows]).mean()
    module.train(before)
    if not torch.isclose(whole, single, rtol=1e-3, atol=1e-5):
        raise SettingsError(
            f"the loss of {len(inputs)} samples is {whole:.4g}, the mean of theirs {single:.4g}: "
            "it compares samples, so no step of it is private; use one that is a mean over them"
        )


def check_buffers(start: FlatState, end: FlatState) -> None:
    """Refuse a model whose buffers training changed: they would leave without noise.

    Raises:
        TaskFailed: they have.
    """
    same = torch.equal(start.averaged.cpu(), end.averaged.cpu())
    if not (same and torch.equal(start.counted.cpu(), end.counted.cpu())):
        raise TaskFailed(
            "training changed a buffer of the model (a running statistic?), which would be sent "
            "without noise; use layers without, such as nn.GroupNorm"
        )


def check_problem(problem: Problem, settings: LocalSettings, module: nn.Module) -> None:
    """Refuse what cannot be trained privately, before anything has begun.

    Raises:
        SettingsError: the model or the loss does not allow it.
    """
    PrivateSteps(module, settings, problem.loss, torch.device("cpu"))
    first = problem.clients[0]
    rows = torch.arange(min(_PROBED, len(first)))
    inputs, targets = first.batch(rows)
    check_loss(module, problem.loss, problem.prepared(inputs), targets)


def poisson_batches(
    samples: Samples, rate: float, draws: SecretDraws, steps: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """So many batches; each takes every sample with probability `rate`, and may be empty."""
    for _ in range(steps):
        yield samples.batch(draws.rows(len(samples), rate).to(samples.device))


def simulated_draws(seed: int, client: int, local_round: int) -> SecretDraws:
    """A simulated client's draws in a local round: the same for the same seed."""
    key = stream_key(seed, "private steps", client, local_round)
    return SecretDraws(key.to_bytes(8, "little", signed=True))
