"""Build a network by name: one of ours, or a user's `package.module:name`, `FILE.py:name`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fedcompass.errors import SettingsError
from fedcompass.models.cnn import mnist_cnn
from fedcompass.models.efficientnet import efficientnet_b0, quick_efficientnet_b0
from fedcompass.models.factory import call_factory, find_factory
from fedcompass.models.mlp import linear, mlp
from fedcompass.models.resnet import resnet18
from fedcompass.models.unet3d import unet3d
from fedcompass.own_code import FORMS, is_own
from fedcompass.setting_tables import unknown_key

__all__ = ["MEDICAL_NAMES", "NAMES", "build", "build_seeded"]

_KNOWN: dict[str, Callable[..., nn.Module]] = {
    "mnist_cnn": mnist_cnn,
    "resnet18": resnet18,
    "mlp": mlp,
}

_MEDICAL: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "unet3d": unet3d,
    "efficientnet_b0": efficientnet_b0,
    "quick_efficientnet_b0": quick_efficientnet_b0,
}

NAMES: tuple[str, ...] = tuple(_KNOWN)
"""The networks for the paper's classic datasets; they read images of any size."""

MEDICAL_NAMES: tuple[str, ...] = tuple(_MEDICAL)
"""The networks for FLamby's medical datasets."""


def build(name: str, *, input_shape: tuple[int, ...] | None, classes: int | None) -> nn.Module:
    """A freshly initialized network for inputs of that shape.

    A name with a colon is a user's `package.module:name`, looked for in the current directory
    too, or `FILE.py:name`, and called with those of `input_shape` and `classes` that it names.

    Raises:
        SettingsError: the name is unknown, or the factory cannot be imported, called or used.
    """
    arguments: dict[str, Any] = {"input_shape": input_shape, "classes": classes}
    if is_own(name):
        known = {key: value for key, value in arguments.items() if value is not None}
        return call_factory(name, find_factory(name), known)
    if name.endswith(".py"):
        raise SettingsError(f"model {name!r} names a file alone; name what is in it: {name}:NAME")
    ours = {**_KNOWN, **_MEDICAL}
    if name not in ours:
        said = unknown_key(name, ours, "fedcompass", "model")
        raise SettingsError(f"{said}; your own is named {FORMS}")
    return ours[name](**arguments)


def build_seeded(name: str, seed: int, *, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network that this seed initializes; torch's own random state stays as it was.

    The seed rules torch's CPU generator, from which every standard layer is initialized.
    """
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: it would reseed the accelerators, which are not forked here.
        torch.default_generator.manual_seed(seed)
        return build(name, input_shape=input_shape, classes=classes)
