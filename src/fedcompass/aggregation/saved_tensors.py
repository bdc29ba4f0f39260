"""Naming tensors for a checkpoint, and reading them back checked against what they stand for."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedcompass.aggregation.layout import FlatState
from fedcompass.errors import CheckpointError

__all__ = ["named_state", "named_tensors", "restored_state", "restored_tensor", "restored_tensors"]


def named_tensors(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, their names prefixed: {"server.velocity": …}."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def named_state(prefix: str, state: FlatState) -> dict[str, Tensor]:
    """A state's three vectors, their names prefixed: {"model.trainable": …}."""
    return {f"{prefix}.{segment}": vector for segment, vector in state.tensors().items()}


def restored_tensor(tensors: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    """A copy of the named tensor, on the device of `like`.

    Raises:
        CheckpointError: it is missing, or its shape or dtype is not that of `like`.
    """
    if name not in tensors:
        raise CheckpointError(f"the checkpoint has no tensor {name!r}; use one of this experiment")
    saved = tensors[name]
    if saved.shape != like.shape or saved.dtype != like.dtype:
        raise CheckpointError(
            f"the checkpoint's tensor {name!r} is {saved.dtype}{list(saved.shape)}, this model "
            f"needs {like.dtype}{list(like.shape)}; use a checkpoint of this experiment"
        )
    return torch.empty_like(like).copy_(saved)


def restored_tensors(tensors: Mapping[str, Tensor], prefix: str, like: Tensor) -> dict[str, Tensor]:
    """Copies of all tensors saved under a prefix, by their bare names.

    Raises:
        CheckpointError: one does not have the shape or dtype of `like`.
    """
    names = [name for name in tensors if name.startswith(f"{prefix}.")]
    return {name.removeprefix(f"{prefix}."): restored_tensor(tensors, name, like) for name in names}


def restored_state(tensors: Mapping[str, Tensor], prefix: str, like: FlatState) -> FlatState:
    """Copies of the three vectors saved under a prefix.

    Raises:
        CheckpointError: one is missing or does not fit.
    """
    return FlatState(
        *(
            restored_tensor(tensors, f"{prefix}.{segment}", vector)
            for segment, vector in like.tensors().items()
        )
    )
