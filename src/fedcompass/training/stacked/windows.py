"""Windows of a stack's pictures on a GPU, for convolutions.

Two ways, each the fastest where it is used (on an H200, for a stack of 200 MNIST CNNs):

- `spread` writes the windows out for a batched matrix product (im2col) and `collect`, its gradient,
  sums them up again, each in one pass at the memory's speed;
- `convolution` reads each window where it lies and writes only the result. Best where windows are
  small, as in a first layer, or need not be kept for a gradient.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["available", "convolution", "spread"]

_HAS_TRITON = find_spec("triton") is not None


def available(x: Tensor) -> bool:
    """Whether the kernels can work on a tensor."""
    return x.is_cuda and _HAS_TRITON


def spread(x: Tensor, kernel: list[int], stride: list[int], dilation: list[int]) -> Tensor:
    """All windows of `x` [samples, height, width, in], padded already.

    Returns:
        [samples, rows of windows, columns of windows, rows * columns * in of a window]
    """
    windows: Tensor = _spread(x.contiguous(), kernel, stride, dilation)
    return windows


def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], dilation: list[int]
) -> Tensor:
    """Each client's filters over its own samples.

    Args:
        x: [clients * batch, height, width, in], padded already.
        weight: [clients, rows, columns, in, out].
        bias: [clients, out].
        stride: of rows and columns.
        dilation: likewise.

    Returns:
        [clients * batch, rows of windows, columns of windows, out]
    """
    y: Tensor = _products(x.contiguous(), weight.contiguous(), bias, stride, dilation)
    return y


def _sides(x: Tensor, kernel: list[int], stride: list[int], dilation: list[int]) -> list[int]:
    """How many windows there are from top to bottom and from left to right."""
    return [
        (x.shape[1 + axis] - dilation[axis] * (kernel[axis] - 1) - 1) // stride[axis] + 1
        for axis in (0, 1)
    ]


def _spread_like(x: Tensor, kernel: list[int], stride: list[int], dilation: list[int]) -> Tensor:
    size = kernel[0] * kernel[1] * x.shape[3]
    return x.new_empty(x.shape[0], *_sides(x, kernel, stride, dilation), size)


def _spread_on_gpu(x: Tensor, kernel: list[int], stride: list[int], dilation: list[int]) -> Tensor:
    from fedcompass.training.stacked import window_kernels

    windows = _spread_like(x, kernel, stride, dilation)
    window_kernels.launch_spread(x, windows, kernel, stride, dilation)
    return windows


def _collect_like(
    windows: Tensor,
    sides: list[int],
    kernel: list[int],
    stride: list[int],  # noqa: ARG001  (the operator's own arguments)
    dilation: list[int],  # noqa: ARG001
) -> Tensor:
    channels = windows.shape[3] // (kernel[0] * kernel[1])
    return windows.new_empty(windows.shape[0], *sides, channels)


def _collect_on_gpu(
    windows: Tensor, sides: list[int], kernel: list[int], stride: list[int], dilation: list[int]
) -> Tensor:
    from fedcompass.training.stacked import window_kernels

    x = _collect_like(windows, sides, kernel, stride, dilation)
    window_kernels.launch_collect(windows, x, kernel, stride, dilation)
    return x


def _products_like(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,  # noqa: ARG001
    stride: list[int],
    dilation: list[int],
) -> Tensor:
    sides = _sides(x, list(weight.shape[1:3]), stride, dilation)
    return x.new_empty(x.shape[0], *sides, weight.shape[4])


def _products_on_gpu(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], dilation: list[int]
) -> Tensor:
    from fedcompass.training.stacked import window_kernels

    y = _products_like(x, weight, bias, stride, dilation)
    window_kernels.launch_products(x, weight, bias, y, stride, dilation)
    return y


def _gradients_like(
    x: Tensor,
    dy: Tensor,
    clients: int,
    kernel: list[int],
    stride: list[int],  # noqa: ARG001
    dilation: list[int],  # noqa: ARG001
) -> Tensor:
    return x.new_empty(clients, *kernel, x.shape[3], dy.shape[3])


def _gradients_on_gpu(
    x: Tensor, dy: Tensor, clients: int, kernel: list[int], stride: list[int], dilation: list[int]
) -> Tensor:
    from fedcompass.training.stacked import window_kernels

    return window_kernels.launch_gradients(x, dy, clients, kernel, stride, dilation)


def _operator(name: str, on_gpu: Callable[..., Tensor], like: Callable[..., Tensor]) -> Any:
    """A function the compiler leaves alone; `like` tells it the result's shape."""
    made = torch.library.custom_op(
        f"fedcompass::{name}", on_gpu, mutates_args=(), device_types="cuda"
    )
    made.register_fake(like)
    return made


_spread = _operator("spread_windows", _spread_on_gpu, _spread_like)
_collect = _operator("collect_windows", _collect_on_gpu, _collect_like)
_products = _operator("windows_times_filters", _products_on_gpu, _products_like)
_gradients = _operator("windows_times_gradients", _gradients_on_gpu, _gradients_like)


def _keep_shapes(ctx, inputs, output):  # type: ignore[no-untyped-def]  # noqa: ARG001
    x, *ctx.how = inputs
    ctx.sides = list(x.shape[1:3])


def _spread_backward(ctx, gradient):  # type: ignore[no-untyped-def]
    return _collect(gradient.contiguous(), ctx.sides, *ctx.how), None, None, None


def _keep_inputs(ctx, inputs, output):  # type: ignore[no-untyped-def]  # noqa: ARG001
    x, weight, _, ctx.stride, ctx.dilation = inputs
    ctx.save_for_backward(x, weight)


def _products_backward(ctx, dy):  # type: ignore[no-untyped-def]
    x, weight = ctx.saved_tensors
    dy = dy.contiguous()
    how = list(weight.shape[1:3]), ctx.stride, ctx.dilation
    dx = dw = db = None
    if ctx.needs_input_grad[0]:
        dx = _input_gradient(x, weight, dy, ctx.stride, ctx.dilation)
    if ctx.needs_input_grad[1]:
        dw = _gradients(x, dy, weight.shape[0], *how)
    if ctx.needs_input_grad[2]:
        db = dy.view(weight.shape[0], -1, dy.shape[3]).sum(1)
    return dx, dw, db, None, None


def _input_gradient(
    x: Tensor, weight: Tensor, dy: Tensor, stride: list[int], dilation: list[int]
) -> Tensor:
    """Again a convolution: of the padded gradient, with the filters flipped."""
    for axis in (0, 1):  # zeros between the gradients of windows that lie apart
        if stride[axis] > 1:
            dy = _apart(dy, 1 + axis, stride[axis])
    pads = []
    for axis in (1, 0):
        reach = dilation[axis] * (weight.shape[1 + axis] - 1)
        rest = x.shape[1 + axis] - dy.shape[1 + axis]  # of the input behind the last window
        pads += [reach, rest]
    flipped = weight.flip(1, 2).transpose(3, 4)
    return convolution(functional.pad(dy, [0, 0, *pads]), flipped, None, [1, 1], dilation)


def _apart(dy: Tensor, axis: int, stride: int) -> Tensor:
    apart = torch.stack([dy, *[torch.zeros_like(dy)] * (stride - 1)], dim=axis + 1)
    return apart.flatten(axis, axis + 1).narrow(axis, 0, (dy.shape[axis] - 1) * stride + 1)


_spread.register_autograd(_spread_backward, setup_context=_keep_shapes)
_products.register_autograd(_products_backward, setup_context=_keep_inputs)
