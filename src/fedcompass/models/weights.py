"""Start a network from saved weights: a safetensors file, or a PyTorch one read without code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedcompass.errors import SettingsError
from fedcompass.models.networks import build

__all__ = ["build_from", "load_weights"]


def build_from(
    weights: Path, name: str, *, input_shape: tuple[int, ...] | None, classes: int | None
) -> nn.Module:
    """The network of that name with the file's weights.

    Raises:
        SettingsError: the network is unknown, or the file cannot be read or is another network's.
    """
    network = build(name, input_shape=input_shape, classes=classes)
    load_weights(network, weights)
    return network


def load_weights(network: nn.Module, path: Path) -> tuple[str, ...]:
    """Copy a file's tensors into a network; gives the names that stay as they were.

    Only the last layer may be absent from the file or have another shape there: a network trained
    on other classes lends all but its head.

    Raises:
        SettingsError: the file cannot be read, or its other tensors do not fit.
    """
    own = network.state_dict()
    given = _read(path)
    head = _head(network)
    fits = {k: value for k, value in given.items() if k in own and own[k].shape == value.shape}
    kept = tuple(key for key in own if key not in fits)
    wrong = [key for key in kept if not key.startswith(head)]
    wrong += [key for key in given if key not in own]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise SettingsError(
            f"weights {path} do not fit the model: they lack, misshape or add "
            f"{', '.join(wrong[:3])}{more}; give a file saved from the same network"
        )
    network.load_state_dict(fits, strict=False)
    return kept


def _head(network: nn.Module) -> str:
    """The prefix of the tensors of the last layer that has any."""
    *_, last = (name for name, _ in network.named_parameters())
    return last.rpartition(".")[0] + "."


def _read(path: Path) -> dict[str, Tensor]:
    try:
        loaded: Any = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except FileNotFoundError:
        raise SettingsError(f"weights {path} is not there; name a file that exists") from None
    except (SafetensorError, OSError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise SettingsError(f"weights {path} cannot be read: {_line(error)}") from None
    except Exception as error:  # what weights_only refuses raises pickle.UnpicklingError
        raise SettingsError(
            f"weights {path} hold more than tensors: {_line(error)}; save a plain state_dict"
        ) from None
    if not isinstance(loaded, Mapping) or not all(isinstance(v, Tensor) for v in loaded.values()):
        raise SettingsError(f"weights {path} are not tensors by name; save a plain state_dict")
    return {str(key): value for key, value in loaded.items()}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
