"""EfficientNet-B0 for short runs from random weights: the same network, other batch statistics.

The package takes over 1% of a batch's mean and variance into its running ones at each step, and
starts from mean 0 and variance 1, which random weights are far from: in 49 layers the signal dies.
That suits fine-tuning and long training. In a few hundred steps a network that has learned would
still be measured with the statistics of the start, as one that has not.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcompass.models.efficientnet import efficientnet_b0

__all__ = ["quick_efficientnet_b0"]

_MOMENTUM = 0.1  # PyTorch's default
_IMAGES, _PATCHES = 8, 5  # of noise, and its patches across


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
        norm.momentum = _MOMENTUM
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.zero_()
    made: nn.Module = network
    return made


def _blurred_noise(channels: int, height: int, width: int) -> Tensor:
    """Grey patches with some colour and some grain: measured so, photographs come out alike."""

    def patches(channels: int) -> Tensor:
        coarse = torch.randn(_IMAGES, channels, _PATCHES, _PATCHES)
        return functional.interpolate(coarse, (height, width), mode="bilinear")

    grain = torch.randn(_IMAGES, channels, height, width)
    return patches(1) + 0.5 * patches(channels) + 0.1 * grain
