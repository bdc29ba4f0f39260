"""Values of a user's own data that no training can use: NaN and infinite ones."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from fedcompass.errors import DataError
from fedcompass.training.problem import Samples, Transform

__all__ = ["check_finite"]

_TRIED = 64  # rows that a transform is tried on


def check_finite(
    parts: Iterator[tuple[str, Samples]], transform: Transform | None, *, targets: bool
) -> None:
    """Refuse NaN and infinite values in floating-point tensors; each tensor is looked at once.

    Args:
        parts: samples, each with what to call them.
        transform: prepares inputs; values that it mends are right.
        targets: whether to look at the targets, too.

    Raises:
        DataError: saying which part has how many of them, and in which row first.
    """
    fine: dict[int, Tensor] = {}  # kept, so that an identity stays taken
    for where, samples in parts:
        for name, tensor in _tensors(samples, targets=targets):
            if id(tensor) in fine:
                continue
            if _is_finite(tensor):
                fine[id(tensor)] = tensor
            else:
                mends = None if name == "targets" else transform
                _refuse(f"{where}, {name}", tensor, samples.indices, mends)


def _tensors(samples: Samples, *, targets: bool) -> Iterator[tuple[str, Tensor]]:
    inputs = samples.inputs
    if isinstance(inputs, Tensor):
        yield "inputs", inputs
    elif isinstance(inputs, Mapping):
        yield from ((f"inputs {name!r}", tensor) for name, tensor in inputs.items())
    if targets:
        yield "targets", samples.targets


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.dtype.is_floating_point or bool(torch.isfinite(tensor).all())


def _refuse(where: str, tensor: Tensor, rows: Tensor | None, transform: Transform | None) -> None:
    """Refuse a tensor for such values in its rows, unless the transform mends them."""
    held = tensor if rows is None else tensor[rows]
    odd = ~torch.isfinite(held)
    in_rows = odd.flatten(1).any(1) if odd.ndim > 1 else odd
    found = in_rows.nonzero()[:, 0]
    if len(found) == 0 or (transform and _is_mended(held[found[:_TRIED]], transform)):
        return
    is_targets = where.endswith("targets")
    by = (
        "mask them by a loss in the dict"
        if is_targets
        else "replace them by a transform in the dict"
    )
    missing = int(torch.isnan(held).sum())
    raise DataError(
        f"{where} have {missing} NaN and {int(odd.sum()) - missing} infinite of {held.numel()} "
        f"values, in {len(found)} of {len(held)} rows (the first is row {int(found[0])}); allowed: "
        f"finite float32; fill them in, leave these rows out, or {by}"
    )


def _is_mended(rows: Tensor, transform: Transform) -> bool:
    try:
        return _is_finite(transform(rows))
    except Exception:  # a transform of other inputs; training will say what is wrong with it
        return False
