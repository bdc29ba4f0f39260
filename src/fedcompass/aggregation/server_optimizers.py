"""What the server does with a merged step: plain, momentum, Adam, Yogi, Adagrad.

The adaptive ones follow Reddi et al., "Adaptive Federated Optimization" (ICLR 2021), Algorithm 2:
no bias correction, the second moment starts at τ². Their Δ is minus our step.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, assert_never

import torch
from torch import Tensor

from fedcompass.errors import CheckpointError
from fedcompass.settings.aggregation import ServerSettings

__all__ = ["ServerOptimizer", "build"]

_CHUNK = 1 << 18  # elements; a temporary of this size stays in the cache


class ServerOptimizer(Protocol):
    """Applies merged steps to the global weights; its state is empty until the first step."""

    def apply(self, weights: Tensor, step: Tensor, *, rate_factor: float = 1.0) -> None:
        """Move the weights in place, against the step; the step's values may be destroyed.

        `rate_factor` multiplies the learning rate, this time only.
        """
        ...

    def state(self) -> dict[str, Tensor]:
        """The live state tensors by name: save or copy them before the next step."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over copies of saved state tensors.

        Raises:
            CheckpointError: they are another optimizer's.
        """
        ...


def build(settings: ServerSettings) -> ServerOptimizer:
    """Make the optimizer these settings describe."""
    match settings.optimizer:
        case "plain":
            return _Plain(settings)
        case "momentum":
            return _Momentum(settings)
        case "adam":
            return _Adaptive(settings, _adam, beta1=0.9)
        case "yogi":
            return _Adaptive(settings, _yogi, beta1=0.9)
        case "adagrad":
            return _Adaptive(settings, _adagrad, beta1=0.0)
        case _:
            assert_never(settings.optimizer)


class _Plain:
    """w -= η step."""

    def __init__(self, settings: ServerSettings) -> None:
        self._learning_rate = settings.learning_rate

    def apply(self, weights: Tensor, step: Tensor, *, rate_factor: float = 1.0) -> None:
        weights.sub_(step, alpha=self._learning_rate * rate_factor)

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        _check_names(tensors, ())


class _Momentum:
    """v = β v + step; w -= η v."""

    def __init__(self, settings: ServerSettings) -> None:
        self._learning_rate, self._beta = settings.learning_rate, settings.beta
        self._velocity: Tensor | None = None

    def apply(self, weights: Tensor, step: Tensor, *, rate_factor: float = 1.0) -> None:
        if self._velocity is None:
            self._velocity = step.clone()
        else:
            self._velocity.mul_(self._beta).add_(step)
        weights.sub_(self._velocity, alpha=self._learning_rate * rate_factor)

    def state(self) -> dict[str, Tensor]:
        return {} if self._velocity is None else {"velocity": self._velocity}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        _check_names(tensors, ("velocity",))
        self._velocity = tensors["velocity"].clone() if tensors else None


class _Adaptive:
    """m = β₁ m + (1-β₁) step; v by the given rule; w -= η m / (√v + τ)."""

    def __init__(
        self,
        settings: ServerSettings,
        update_second: Callable[[Tensor, Tensor, float], None],
        beta1: float,
    ) -> None:
        self._learning_rate, self._tau = settings.learning_rate, settings.tau
        self._beta1 = beta1 if settings.beta1 is None else settings.beta1
        self._beta2 = settings.beta2
        self._update_second = update_second
        self._first: Tensor | None = None
        self._second: Tensor | None = None

    def apply(self, weights: Tensor, step: Tensor, *, rate_factor: float = 1.0) -> None:
        if self._first is None or self._second is None:
            self._first = torch.zeros_like(step)
            self._second = torch.full_like(step, self._tau**2)
        self._first.lerp_(step, 1 - self._beta1)
        self._update_second(self._second, step.square_(), self._beta2)
        # The step is used up: its memory takes the denominator, so nothing is allocated.
        denominator = torch.sqrt(self._second, out=step).add_(self._tau)
        weights.addcdiv_(self._first, denominator, value=-self._learning_rate * rate_factor)

    def state(self) -> dict[str, Tensor]:
        if self._first is None or self._second is None:
            return {}
        return {"first": self._first, "second": self._second}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        _check_names(tensors, ("first", "second"))
        self._first = tensors["first"].clone() if tensors else None
        self._second = tensors["second"].clone() if tensors else None


def _adam(second: Tensor, squared: Tensor, beta2: float) -> None:
    second.lerp_(squared, 1 - beta2)


def _yogi(second: Tensor, squared: Tensor, beta2: float) -> None:
    for start in range(0, second.numel(), _CHUNK):
        v, s = second[start : start + _CHUNK], squared[start : start + _CHUNK]
        v.addcmul_((v - s).sign_(), s, value=beta2 - 1)


def _adagrad(second: Tensor, squared: Tensor, _beta2: float) -> None:
    second.add_(squared)


def _check_names(tensors: Mapping[str, Tensor], own: Iterable[str]) -> None:
    """Allow an optimizer's own tensors, or none (saved before its first step)."""
    if tensors and set(tensors) != set(own):
        raise CheckpointError(
            f"the checkpoint's server optimizer keeps {sorted(tensors)}, this one keeps "
            f"{sorted(own)}; restore with the optimizer the checkpoint was made with"
        )
