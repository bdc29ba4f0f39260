"""What a stack of models gives for a stack of batches: converted layer by layer, or by vmap."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from fedcompass.training.problem import Loss

__all__ = ["CannotStack", "Forward", "by_vmap", "stacked_loss", "with_frozen"]


class CannotStack(Exception):
    """This module has no stacked form of this kind; the message says why."""


class Forward(Protocol):
    """(tensors by name, inputs [clients, batch, ...], training) -> merged outputs, new buffers.

    Outputs are [clients * batch, ...]; new buffers are [clients, ...] by name.
    """

    def __call__(
        self, tensors: dict[str, Tensor], inputs: Tensor, training: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Apply each model to its own batch."""
        ...


def by_vmap(module: nn.Module) -> Forward:
    """Any module that `torch.func.vmap` can take through; nothing random, no hidden state."""
    buffers = {name for name, _ in module.named_buffers()}

    def one(tensors: dict[str, Tensor], inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        changed = {name: t.clone() for name, t in tensors.items() if name in buffers}
        return functional_call(module, {**tensors, **changed}, (inputs,)), changed

    def forward(
        tensors: dict[str, Tensor], inputs: Tensor, training: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        module.train(training)
        outputs, changed = vmap(one)(tensors, inputs)
        return outputs.flatten(0, 1), changed if training else {}

    return forward


def with_frozen(forward: Forward, frozen: dict[str, Tensor]) -> Forward:
    """The same with parameters that do not train, which are one for all models of a stack."""
    if not frozen:
        return forward

    def forward_with(
        tensors: dict[str, Tensor], inputs: Tensor, training: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        shared = {name: t.expand(len(inputs), *t.shape) for name, t in frozen.items()}
        return forward({**tensors, **shared}, inputs, training)

    return forward_with


def stacked_loss(loss: Loss) -> Callable[[Tensor, Tensor], Tensor]:
    """(merged outputs, targets [clients, batch, ...]) -> the sum of the clients' mean losses.

    No weight is shared, so the sum's gradient holds each client's own.
    """
    if loss is functional.cross_entropy:
        return _cross_entropies
    each = vmap(loss)

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        total: Tensor = each(outputs.view(*targets.shape[:2], *outputs.shape[1:]), targets).sum()
        return total

    return losses


def _cross_entropies(outputs: Tensor, targets: Tensor) -> Tensor:
    each = functional.cross_entropy(outputs, targets.flatten(0, 1), reduction="none")
    return torch.sum(each.reshape(len(targets), -1).mean(1))
