"""One step of SGD, Adam or AdamW for a whole stack, with each task's own end.

The formulas are PyTorch's. A task that has done its steps keeps its weights; its moments may go on,
since nobody reads them again.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from fedcompass.settings.training import LocalSettings

__all__ = ["StackedStep", "moments_needed", "stacked_step"]

StackedStep: TypeAlias = Callable[
    [Sequence[Tensor], Sequence[Tensor], Sequence[Sequence[Tensor]], Tensor, Tensor, Tensor], None
]
"""(weights, gradients, moments, steps done before: float64 [], still training: bool [clients],
factors on the learning rate: float32 [clients])"""

_BETAS, _EPS = (0.9, 0.999), 1e-8  # PyTorch's defaults, which the serial trainer uses


def moments_needed(settings: LocalSettings) -> int:
    """How many vectors of the weights' size a task's optimizer keeps."""
    if settings.optimizer == "sgd":
        return 1 if settings.momentum else 0
    return 2


def stacked_step(settings: LocalSettings) -> StackedStep:
    """A function that changes weights and moments, all [clients, ...], in place."""
    return _sgd(settings) if settings.optimizer == "sgd" else _adam(settings)


def _sgd(settings: LocalSettings) -> StackedStep:
    rate, momentum, decay = settings.learning_rate, settings.momentum, settings.weight_decay

    def step(
        weights: Sequence[Tensor],
        gradients: Sequence[Tensor],
        moments: Sequence[Sequence[Tensor]],
        _done: Tensor,
        live: Tensor,
        scale: Tensor,
    ) -> None:
        for number, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            if decay:
                gradient = gradient + decay * weight
            if momentum:
                gradient = moments[0][number].mul_(momentum).add_(gradient)
            _write(weight, weight - rate * _along(scale, weight) * gradient, live)

    return step


def _adam(settings: LocalSettings) -> StackedStep:
    rate, decay = settings.learning_rate, settings.weight_decay
    decoupled = settings.optimizer == "adamw"

    def step(
        weights: Sequence[Tensor],
        gradients: Sequence[Tensor],
        moments: Sequence[Sequence[Tensor]],
        done: Tensor,
        live: Tensor,
        scale: Tensor,
    ) -> None:
        # In float64, as PyTorch does: 1 - 0.999 in float32 is off by 5e-5.
        size = (rate / (1 - _BETAS[0] ** (done + 1))).float()
        root = torch.sqrt(1 - _BETAS[1] ** (done + 1)).float()
        for weight, gradient, mean, square in zip(weights, gradients, *moments, strict=True):
            start, factor = weight, _along(scale, weight)
            if decay and decoupled:
                start = weight * (1 - factor * rate * decay)
            elif decay:
                gradient = gradient + decay * weight
            mean.lerp_(gradient, 1 - _BETAS[0])
            square.mul_(_BETAS[1]).add_((1 - _BETAS[1]) * gradient * gradient)
            _write(weight, start - factor * size * mean / (square.sqrt() / root + _EPS), live)

    return step


def _write(weight: Tensor, value: Tensor, live: Tensor) -> None:
    weight.copy_(torch.where(_along(live, weight), value, weight))


def _along(values: Tensor, weight: Tensor) -> Tensor:
    """One value per client, shaped to go with a weight of all clients."""
    return values.view(-1, *[1] * (weight.ndim - 1))
