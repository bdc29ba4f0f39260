"""Layers with weights of their own for every client of a stack.

Activations keep clients and samples merged in their first axis, [clients * batch, ...], so that
whatever works sample by sample works on them as it is; weights are [clients, ...].
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from fedcompass.training.stacked import windows

__all__ = ["BatchNorm", "Conv2d", "Linear", "Stack"]

_FEW = 128  # numbers in a window, up to which it is not worth writing down


@dataclass(slots=True)
class Stack:
    """What the layers of one pass share.

    tensors: every saved tensor of the model by name, [clients, ...].
    clients: how many models are in the stack.
    training: as `nn.Module.training`.
    changed: buffers that this pass gives new values, by name.
    """

    tensors: dict[str, Tensor]
    clients: int
    training: bool
    changed: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Linear:
    """`nn.Linear` as one batched matrix product."""

    name: str
    bias: bool

    def __call__(self, stack: Stack, x: Tensor) -> Tensor:
        """Apply each client's weights to its samples."""
        weight = stack.tensors[f"{self.name}.weight"].transpose(1, 2)
        rows = x.reshape(stack.clients, -1, x.shape[-1])
        if self.bias:
            y = torch.baddbmm(stack.tensors[f"{self.name}.bias"].unsqueeze(1), rows, weight)
        else:
            y = torch.bmm(rows, weight)
        return y.reshape(*x.shape[:-1], y.shape[-1])


@dataclass(frozen=True, slots=True)
class Conv2d:
    """`nn.Conv2d` as one batched product of windows and filters."""

    name: str
    bias: bool
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    def __call__(self, stack: Stack, x: Tensor) -> Tensor:
        """Apply each client's filters to its samples."""
        high, wide = self.padding
        if high or wide:
            x = functional.pad(x, (wide, wide, high, high))
        filters = stack.tensors[f"{self.name}.weight"].permute(0, 3, 4, 2, 1)
        bias = stack.tensors[f"{self.name}.bias"] if self.bias else None
        x = x.permute(0, 2, 3, 1)  # channels last: a window is a few runs of neighbours
        how = list(self.stride), list(self.dilation)
        if not windows.available(x):
            y = _product(self._spread(x), filters, bias)
        elif filters[0, ..., 0].numel() < _FEW or not torch.is_grad_enabled():
            y = windows.convolution(x, filters, bias, *how)
        else:
            y = _product(windows.spread(x, list(self.kernel), *how), filters, bias)
        return y.permute(0, 3, 1, 2)

    def _spread(self, x: Tensor) -> Tensor:
        """All windows (im2col): first their columns, then their rows."""
        return self._slices(self._slices(x, 1), 0).flatten(3)

    def _slices(self, x: Tensor, axis: int) -> Tensor:
        """The windows' positions along one axis, stacked in front of what a window has so far."""
        size, stride, apart = self.kernel[axis], self.stride[axis], self.dilation[axis]
        reach = x.shape[1 + axis] - apart * (size - 1)
        firsts = range(0, apart * size, apart)
        if axis == 0:
            return torch.stack([x[:, i : i + reach : stride] for i in firsts], dim=3)
        return torch.stack([x[:, :, i : i + reach : stride] for i in firsts], dim=3)


def _product(spread: Tensor, filters: Tensor, bias: Tensor | None) -> Tensor:
    """Windows [samples, rows, columns, size] times each client's own filters."""
    clients, outs = len(filters), filters.shape[-1]
    rows = spread.reshape(clients, -1, spread.shape[3])
    matrices = filters.reshape(clients, -1, outs)
    if bias is None:
        y = torch.bmm(rows, matrices)
    else:
        y = torch.baddbmm(bias.unsqueeze(1), rows, matrices)
    return y.reshape(*spread.shape[:3], outs)


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """`nn.BatchNorm1d` and `2d`: each client's own statistics over its own batch."""

    name: str
    eps: float
    momentum: float | None
    affine: bool
    tracked: bool

    def __call__(self, stack: Stack, x: Tensor) -> Tensor:
        """Normalize by the batch in training, by the running statistics otherwise."""
        grouped = x.reshape(stack.clients, -1, *x.shape[1:])
        axes = [axis for axis in range(grouped.ndim) if axis not in (0, 2)]
        shape = [stack.clients, 1, x.shape[1]] + [1] * (grouped.ndim - 3)
        if stack.training or not self.tracked:
            variance, mean = torch.var_mean(grouped, axes, correction=0)
            if self.tracked:
                samples = grouped.numel() // (stack.clients * x.shape[1])
                self._track(stack, mean.detach(), variance.detach(), samples)
        else:
            mean, variance = self._get(stack, "running_mean"), self._get(stack, "running_var")
        scale = torch.rsqrt(variance + self.eps)
        if self.affine:
            scale = scale * self._get(stack, "weight")
        y = (grouped - mean.reshape(shape)) * scale.reshape(shape)
        if self.affine:
            y = y + self._get(stack, "bias").reshape(shape)
        return y.reshape(x.shape)

    def _get(self, stack: Stack, name: str) -> Tensor:
        return stack.tensors[f"{self.name}.{name}"]

    def _track(self, stack: Stack, mean: Tensor, variance: Tensor, samples: int) -> None:
        batches = self._get(stack, "num_batches_tracked") + 1
        share: float | Tensor = self.momentum if self.momentum is not None else 1 / batches[:, None]
        unbiased = variance * (samples / (samples - 1))
        for name, value in (("running_mean", mean), ("running_var", unbiased)):
            stack.changed[f"{self.name}.{name}"] = (
                self._get(stack, name) * (1 - share) + value * share
            )
        stack.changed[f"{self.name}.num_batches_tracked"] = batches
