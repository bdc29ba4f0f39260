"""The 3-D U-Net of FLamby's Fed-IXI task: two encoding blocks, a bottom, two decoding blocks."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from fedcompass.errors import SettingsError

__all__ = ["UNet3d", "unet3d"]

_FIRST_CHANNELS = 8
_HALVINGS = 2


class UNet3d(nn.Module):
    """Probabilities [samples, classes, depth, height, width] for one-channel volumes.

    Two 3x3x3 convolutions with PReLU in every block; batch norm after every convolution but the
    very first and the last, which have a bias instead. Encoder 1-8-16 and 16-16-32, bottom
    32-32-64, decoder 96-32-32 and 48-16-16, then 16-classes.
    """

    def __init__(self, channels: int = 1, classes: int = 2) -> None:
        super().__init__()
        first = _FIRST_CHANNELS
        self.encoder1 = _block(channels, first, 2 * first, norm_first=False)
        self.encoder2 = _block(2 * first, 2 * first, 4 * first)
        self.bottom = _block(4 * first, 4 * first, 8 * first)
        self.decoder2 = _block(12 * first, 4 * first, 4 * first)
        self.decoder1 = _block(6 * first, 2 * first, 2 * first)
        self.classifier = nn.Conv3d(2 * first, classes, 1)
        self.pool = nn.MaxPool3d(2)
        self.up = nn.Upsample(scale_factor=2, mode="trilinear", align_corners=False)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, volumes: Tensor) -> Tensor:
        """Each voxel's probability of each class."""
        fine = self.encoder1(volumes)
        coarse = self.encoder2(self.pool(fine))
        deep = self.bottom(self.pool(coarse))
        coarse = self.decoder2(torch.cat((coarse, self.up(deep)), dim=1))
        fine = self.decoder1(torch.cat((fine, self.up(coarse)), dim=1))
        probabilities: Tensor = self.softmax(self.classifier(fine))
        return probabilities


def unet3d(input_shape: tuple[int, ...] = (1, 48, 60, 48), classes: int = 2) -> UNet3d:
    """The network for volumes of that shape; 246,156 parameters for 1 channel and 2 classes.

    Raises:
        SettingsError: the input is not (channels, depth, height, width) in multiples of 4.
    """
    divisor = 2**_HALVINGS
    if len(input_shape) != 4 or any(side < divisor or side % divisor for side in input_shape[1:]):
        raise SettingsError(
            f"model 'unet3d' cannot read inputs of shape {input_shape}; allowed: "
            f"(channels, depth, height, width) with sides in multiples of {divisor}"
        )
    return UNet3d(input_shape[0], classes)


def _block(ins: int, middle: int, outs: int, *, norm_first: bool = True) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv3d(ins, middle, 3, padding=1, bias=not norm_first)
    )
    if norm_first:
        layers["norm1"] = nn.BatchNorm3d(middle)
    layers["act1"] = nn.PReLU()
    layers["conv2"] = nn.Conv3d(middle, outs, 3, padding=1, bias=False)
    layers["norm2"] = nn.BatchNorm3d(outs)
    layers["act2"] = nn.PReLU()
    return nn.Sequential(layers)
