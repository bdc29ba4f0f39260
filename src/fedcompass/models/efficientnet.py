"""EfficientNet-B0 as FLamby's Fed-ISIC2019 task uses it, from the package efficientnet-pytorch.

The package takes over 1% of a batch's mean and variance into its running ones at each step, and
starts from mean 0 and variance 1, far from random weights: after 49 layers the signal is zero.
That suits fine-tuning and long training. In a few hundred steps a network that has learned would
still be measured with the statistics of the start, as one that has not. `quick_efficientnet_b0` is
for short runs from random weights: the same network, other batch statistics.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcompass.errors import MissingExtra, SettingsError

__all__ = ["efficientnet_b0", "quick_efficientnet_b0"]

_MOMENTUM = 0.1  # PyTorch's default
_IMAGES, _PATCHES = 8, 5  # of noise, and its patches across


def efficientnet_b0(input_shape: tuple[int, ...] = (3, 200, 200), classes: int = 8) -> nn.Module:
    """The network with random weights; 4,017,796 parameters for 8 classes.

    Raises:
        MissingExtra: efficientnet-pytorch is not installed.
        SettingsError: the input is not (channels, height, width) of at least 32 pixels a side.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < 32:
        raise SettingsError(
            f"model 'efficientnet_b0' cannot read inputs of shape {input_shape}; allowed: "
            "(channels, height, width) with at least 32 pixels a side"
        )
    try:
        from efficientnet_pytorch import EfficientNet
    except ImportError:
        raise MissingExtra("efficientnet-pytorch", "medical", "model 'efficientnet_b0'") from None
    network: nn.Module = EfficientNet.from_name(
        "efficientnet-b0", in_channels=input_shape[0], num_classes=classes
    )
    return network


def quick_efficientnet_b0(
    input_shape: tuple[int, ...] = (3, 200, 200), classes: int = 8
) -> nn.Module:
    """EfficientNet-B0 whose running statistics begin with those of blurred noise and follow fast.

    Raises:
        MissingExtra: efficientnet-pytorch is not installed.
        SettingsError: the input is not (channels, height, width) of at least 32 pixels a side.
    """
    network: Any = efficientnet_b0(input_shape, classes)
    network.set_swish(memory_efficient=False)  # the same function in one kernel instead of several
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        network.train()(_blurred_noise(*input_shape))
    for norm in norms:
        norm.momentum = _MOMENTUM  # its counter stays at 1: these statistics are information
    made: nn.Module = network
    return made


def _blurred_noise(channels: int, height: int, width: int) -> Tensor:
    """Grey patches with some colour and some grain: measured so, photographs come out alike."""

    def patches(channels: int) -> Tensor:
        coarse = torch.randn(_IMAGES, channels, _PATCHES, _PATCHES)
        return functional.interpolate(coarse, (height, width), mode="bilinear")

    grain = torch.randn(_IMAGES, channels, height, width)
    return patches(1) + 0.5 * patches(channels) + 0.1 * grain
