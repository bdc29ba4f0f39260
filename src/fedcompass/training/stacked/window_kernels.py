"""The kernels behind `windows`, in Triton; imported only where there is a GPU.

The place of a number of a window is the place of the window plus the place in the window, so
reading windows where they lie costs one addition per number.
"""

import importlib
from typing import Any

import torch
from torch import Tensor

__all__ = ["launch_collect", "launch_gradients", "launch_products", "launch_spread"]

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")

_ROWS_IN_A_PIECE = 2304  # of a gradient's sum; pieces are added up afterwards, in fixed order


def _window_places(  # type: ignore[no-untyped-def]
    r, high: tl.constexpr, wide: tl.constexpr, step_row: tl.constexpr, step_column: tl.constexpr,
    sample: tl.constexpr
):  # fmt: skip
    place = r % (high * wide)
    return (r // (high * wide)) * sample + (place // wide) * step_row + (place % wide) * step_column


def _spread(  # type: ignore[no-untyped-def]
    x, windows, rows,
    high: tl.constexpr, wide: tl.constexpr, step_row: tl.constexpr, step_column: tl.constexpr,
    sample: tl.constexpr, apart_row: tl.constexpr, apart_column: tl.constexpr,
    columns: tl.constexpr, channels: tl.constexpr, size: tl.constexpr,
    block_r: tl.constexpr, block_k: tl.constexpr
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * block_r + tl.arange(0, block_r)
    k = tl.program_id(1) * block_k + tl.arange(0, block_k)
    at = window_places(r, high, wide, step_row, step_column, sample)
    spot = k // channels
    place = (spot // columns) * apart_row + (spot % columns) * apart_column + k % channels
    mask = (r < rows)[:, None] & (k < size)[None, :]
    value = tl.load(x + at[:, None] + place[None, :], mask=mask)
    tl.store(windows + r[:, None] * size + k[None, :], value, mask=mask)


def _collect(  # type: ignore[no-untyped-def]
    windows, x, pixels,
    high: tl.constexpr, wide: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, channels: tl.constexpr,
    stride_row: tl.constexpr, stride_column: tl.constexpr,
    apart_row: tl.constexpr, apart_column: tl.constexpr,
    block_p: tl.constexpr, block_c: tl.constexpr
):  # fmt: skip
    p = tl.program_id(0).to(tl.int64) * block_p + tl.arange(0, block_p)
    c = tl.program_id(1) * block_c + tl.arange(0, block_c)
    sample, place = p // (height * width), p % (height * width)
    total = tl.zeros((block_p, block_c), dtype=tl.float32)
    for i in tl.static_range(rows):
        for j in tl.static_range(columns):
            down = place // width - i * apart_row
            along = place % width - j * apart_column
            meets = (down >= 0) & (along >= 0) & (down % stride_row == 0)
            meets = meets & (along % stride_column == 0) & (p < pixels)
            down, along = down // stride_row, along // stride_column
            meets = meets & (down < high) & (along < wide)
            at = ((sample * high + down) * wide + along) * (rows * columns * channels)
            total += tl.load(
                windows + at[:, None] + ((i * columns + j) * channels + c)[None, :],
                mask=meets[:, None] & (c < channels)[None, :],
                other=0.0,
            )
    mask = (p < pixels)[:, None] & (c < channels)[None, :]
    tl.store(x + p[:, None] * channels + c[None, :], total, mask=mask)


def _products(  # type: ignore[no-untyped-def]
    x, w, bias, y, rows, batch_size, biased: tl.constexpr,
    high: tl.constexpr, wide: tl.constexpr, step_row: tl.constexpr, step_column: tl.constexpr,
    sample: tl.constexpr, apart_row: tl.constexpr, apart_column: tl.constexpr,
    columns: tl.constexpr, channels: tl.constexpr, size: tl.constexpr, outs: tl.constexpr,
    block_r: tl.constexpr, block_o: tl.constexpr, block_k: tl.constexpr, precision: tl.constexpr
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    r = tl.program_id(0) * block_r + tl.arange(0, block_r)
    o = tl.program_id(1) * block_o + tl.arange(0, block_o)
    inside = r < rows
    x += client * batch_size * sample
    w += client * size * outs
    at = window_places(tl.where(inside, r, 0), high, wide, step_row, step_column, sample)
    total = tl.zeros((block_r, block_o), dtype=tl.float32)
    for first in range(0, size, block_k):
        k = first + tl.arange(0, block_k)
        if channels % block_k == 0:  # one position of the window: neighbouring channels
            spot = first // channels
            c = first % channels + tl.arange(0, block_k)
            place = (spot // columns) * apart_row + (spot % columns) * apart_column + c
        else:
            spot = k // channels
            place = (spot // columns) * apart_row + (spot % columns) * apart_column + k % channels
        if size % block_k == 0:
            a = tl.load(x + at[:, None] + place[None, :])
            b = tl.load(w + k[:, None] * outs + o[None, :], mask=(o < outs)[None, :], other=0.0)
        else:
            real = k < size
            a = tl.load(x + at[:, None] + place[None, :], mask=real[None, :], other=0.0)
            mask = real[:, None] & (o < outs)[None, :]
            b = tl.load(w + k[:, None] * outs + o[None, :], mask=mask, other=0.0)
        total = tl.dot(a, b, total, input_precision=precision)
    if biased:
        total += tl.load(bias + client * outs + o, mask=o < outs, other=0.0)[None, :]
    y += client * rows * outs
    mask = inside[:, None] & (o < outs)[None, :]
    tl.store(y + r[:, None] * outs + o[None, :], total, mask=mask)


def _gradients(  # type: ignore[no-untyped-def]
    x, dy, dw, rows, batch_size, clients,
    high: tl.constexpr, wide: tl.constexpr, step_row: tl.constexpr, step_column: tl.constexpr,
    sample: tl.constexpr, apart_row: tl.constexpr, apart_column: tl.constexpr,
    columns: tl.constexpr, channels: tl.constexpr, size: tl.constexpr, outs: tl.constexpr,
    piece: tl.constexpr, blocks_o: tl.constexpr,
    block_r: tl.constexpr, block_o: tl.constexpr, block_k: tl.constexpr, precision: tl.constexpr
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    part = tl.program_id(1)
    k = (tl.program_id(0) // blocks_o) * block_k + tl.arange(0, block_k)
    o = (tl.program_id(0) % blocks_o) * block_o + tl.arange(0, block_o)
    x += client * batch_size * sample
    dy += client * rows * outs
    real = k < size
    spot = k // channels
    place = (spot // columns) * apart_row + (spot % columns) * apart_column + k % channels
    place = tl.where(real, place, 0)  # sums of what is not there are not written
    total = tl.zeros((block_k, block_o), dtype=tl.float32)
    for first in range(part * piece, tl.minimum(rows, (part + 1) * piece), block_r):
        r = first + tl.arange(0, block_r)
        inside = r < rows
        at = window_places(tl.where(inside, r, 0), high, wide, step_row, step_column, sample)
        a = tl.load(x + at[:, None] + place[None, :])
        mask = inside[:, None] & (o < outs)[None, :]
        d = tl.load(dy + r[:, None] * outs + o[None, :], mask=mask, other=0.0)
        total = tl.dot(tl.trans(a), d, total, input_precision=precision)
    dw += (part.to(tl.int64) * clients + client) * size * outs
    tl.store(dw + k[:, None] * outs + o[None, :], total, mask=real[:, None] & (o < outs)[None, :])


window_places = triton.jit(_window_places)
spread_kernel = triton.jit(_spread)
collect_kernel = triton.jit(_collect)
products_kernel = triton.jit(_products)
gradients_kernel = triton.jit(_gradients)


def _geometry(
    x: Tensor, y: Tensor, kernel: list[int], stride: list[int], dilation: list[int]
) -> dict[str, int]:
    _, height, width, channels = x.shape
    line = width * channels
    return {
        "high": y.shape[1],
        "wide": y.shape[2],
        "step_row": stride[0] * line,
        "step_column": stride[1] * channels,
        "sample": height * line,
        "apart_row": dilation[0] * line,
        "apart_column": dilation[1] * channels,
        "columns": kernel[1],
        "channels": channels,
        "size": kernel[0] * kernel[1] * channels,
        "outs": y.shape[3],
    }


def _precision() -> str:
    """TF32 unless the user forbade it for convolutions."""
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"


def _block(size: int, most: int) -> int:
    """A power of 2 that holds `size`, from 16 (the least a product takes) to `most`."""
    return max(16, min(most, 1 << (size - 1).bit_length()))


def launch_spread(
    x: Tensor, windows: Tensor, kernel: list[int], stride: list[int], dilation: list[int]
) -> None:
    """Windows of `x`, one after the other."""
    geometry = _geometry(x, windows, kernel, stride, dilation)
    rows = windows.shape[0] * windows.shape[1] * windows.shape[2]
    block_k = _block(geometry["size"], 256)
    block_r = 4096 // block_k
    grid = (-(-rows // block_r), -(-geometry["size"] // block_k))
    del geometry["outs"]
    spread_kernel[grid](x, windows, rows, **geometry, block_r=block_r, block_k=block_k)


def launch_collect(
    windows: Tensor, x: Tensor, kernel: list[int], stride: list[int], dilation: list[int]
) -> None:
    """Sum up what windows say about each pixel, in fixed order."""
    samples, height, width, channels = x.shape
    block_c = _block(channels, 64)
    block_p = 2048 // block_c
    pixels = samples * height * width
    grid = (-(-pixels // block_p), -(-channels // block_c))
    collect_kernel[grid](
        windows, x, pixels,
        high=windows.shape[1], wide=windows.shape[2], height=height, width=width,
        rows=kernel[0], columns=kernel[1], channels=channels,
        stride_row=stride[0], stride_column=stride[1],
        apart_row=dilation[0], apart_column=dilation[1],
        block_p=block_p, block_c=block_c
    )  # fmt: skip


def launch_products(
    x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor, stride: list[int],
    dilation: list[int]
) -> None:  # fmt: skip
    """Windows of `x` times filters, plus bias, into `y`."""
    geometry = _geometry(x, y, list(weight.shape[1:3]), stride, dilation)
    clients = weight.shape[0]
    batch_size = x.shape[0] // clients
    rows = batch_size * y.shape[1] * y.shape[2]
    block_r, block_o = 256, _block(y.shape[3], 64)
    warps, stages = (4, 2) if geometry["size"] < 256 else (8, 3)  # the fastest of those tried
    grid = (-(-rows // block_r), -(-y.shape[3] // block_o), clients)
    products_kernel[grid](
        x, weight, weight if bias is None else bias.contiguous(), y, rows, batch_size,
        biased=bias is not None, **geometry,
        block_r=block_r, block_o=block_o, block_k=32, precision=_precision(),
        num_warps=warps, num_stages=stages
    )  # fmt: skip


def launch_gradients(
    x: Tensor, dy: Tensor, clients: int, kernel: list[int], stride: list[int], dilation: list[int]
) -> Tensor:
    """Windows of `x` times the gradients of their outputs: the filters' gradients."""
    geometry = _geometry(x, dy, kernel, stride, dilation)
    batch_size = x.shape[0] // clients
    rows = batch_size * dy.shape[1] * dy.shape[2]
    pieces = -(-rows // _ROWS_IN_A_PIECE)
    size, outs = geometry["size"], geometry["outs"]
    block_k, block_o = _block(size, 32), _block(outs, 64)
    parts = x.new_empty(pieces, clients, *kernel, x.shape[3], outs)
    blocks_o = -(-outs // block_o)
    grid = (-(-size // block_k) * blocks_o, pieces, clients)
    gradients_kernel[grid](
        x, dy, parts, rows, batch_size, clients, **geometry,
        piece=_ROWS_IN_A_PIECE, blocks_o=blocks_o,
        block_r=32, block_o=block_o, block_k=block_k, precision=_precision(),
        num_warps=2, num_stages=3
    )  # fmt: skip
    return parts[0] if pieces == 1 else parts.sum(0)
