"""FLamby's augmentation of dermoscopy images, in one interpolation and without albumentations.

FLamby's list, each with probability 1/2: a scale of 1 ± 0.07, a rotation by up to 50 degrees
(borders mirrored), brightness ± 0.15 and contrast ± 0.1, a flip (horizontal, vertical or both), a
shear by 0.1 degrees, and 1 to 8 black squares of 16 pixels; and always a random crop. FLamby draws
the number of squares once per dataset, we draw it per image; its steps each round to whole
pixels, ours are one matrix and one bilinear look-up.

Nothing here waits for the device: constants are put there once, and a number beside a tensor is
filled in with `masked_fill`, since `where` would send it over.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import radians, tan

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["IsicAugment"]

_SCALE, _ANGLE, _SHEAR = 0.07, 50.0, 0.1
_BRIGHTNESS, _CONTRAST = 0.15, 0.1
_HOLES = 8
_HOLE_SHARE = 16 / 200  # of the crop's side
_CHANCES = 6  # scale, rotation, light, flip, shear, holes
_VALUES = 7  # scale, angle, brightness, contrast, kind of flip, crop's x and y


@dataclass(frozen=True)
class IsicAugment:
    """Varies normalized images [samples, 3, height, width] and cuts them to `crop` pixels a side.

    mean, std: what the images were normalized with; light and black are about pixels.
    """

    crop: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """One random variation of each image, drawn from the generator alone."""
        device, samples = images.device, len(images)
        shape = (samples, _CHANCES + _VALUES + 1 + 2 * _HOLES)
        drawn = torch.rand(shape, generator=generator, device=device)
        happens = drawn[:, :_CHANCES] < 0.5
        values = drawn[:, _CHANCES : _CHANCES + _VALUES]
        holes = drawn[:, _CHANCES + _VALUES :]
        grid = self._looked_up(happens, values, *images.shape[2:])
        # Corners aligned, so that mirroring goes around the outermost pixels, not their edges.
        cut = functional.grid_sample(
            images, grid, mode="bilinear", padding_mode="reflection", align_corners=True
        )
        return self._with_holes(self._relit(cut, happens[:, 2], values), happens[:, 5], holes)

    def _looked_up(self, happens: Tensor, values: Tensor, height: int, width: int) -> Tensor:
        """Where in an image each pixel of its crop is looked up: [samples, crop, crop, 2]."""
        one = torch.ones_like(values[:, 0])
        scale = torch.where(happens[:, 0], 1 + _SCALE * _signed(values[:, 0]), one)
        angle = torch.where(happens[:, 1], radians(_ANGLE) * _signed(values[:, 1]), 0 * one)
        shear = torch.where(happens[:, 4], tan(radians(_SHEAR)) * one, 0 * one)
        kind = (3 * values[:, 4]).long()  # 0: horizontal, 1: vertical, 2: both
        flip_x = torch.where(happens[:, 3] & (kind != 1), -one, one)
        flip_y = torch.where(happens[:, 3] & (kind != 0), -one, one)
        # The crop's pixels relative to the middle of the scaled image.
        steps = torch.arange(self.crop, device=values.device) - (self.crop - 1) / 2
        x = steps + (values[:, 5:6] - 0.5) * (scale[:, None] * width - self.crop)
        y = steps + (values[:, 6:7] - 0.5) * (scale[:, None] * height - self.crop)
        cos, sin = torch.cos(angle) / scale, torch.sin(angle) / scale
        across = torch.stack((flip_x * cos, flip_x * shear * cos - flip_y * sin), dim=1)
        down = torch.stack((flip_x * sin, flip_x * shear * sin + flip_y * cos), dim=1)
        source_x = (
            across[:, 0, None, None] * x[:, None, :] + across[:, 1, None, None] * y[..., None]
        )
        source_y = down[:, 0, None, None] * x[:, None, :] + down[:, 1, None, None] * y[..., None]
        return torch.stack((source_x * 2 / (width - 1), source_y * 2 / (height - 1)), dim=-1)

    def _relit(self, images: Tensor, happens: Tensor, values: Tensor) -> Tensor:
        """Pixels p as (1 + contrast) p + brightness, kept within black and white."""
        mean, std = (_by_channel(v, images.device) for v in (self.mean, self.std))
        brightness = (_BRIGHTNESS * _signed(values[:, 2])).masked_fill(~happens, 0.0)
        contrast = (1 + _CONTRAST * _signed(values[:, 3])).masked_fill(~happens, 1.0)
        brightness, contrast = brightness.view(-1, 1, 1, 1), contrast.view(-1, 1, 1, 1)
        relit = contrast * images + ((contrast - 1) * mean + brightness) / std
        return relit.clamp(-mean / std, (1 - mean) / std)

    def _with_holes(self, images: Tensor, happens: Tensor, drawn: Tensor) -> Tensor:
        """Some squares of each image black."""
        side = max(1, round(_HOLE_SHARE * self.crop))
        number = (1 + (_HOLES * drawn[:, 0]).long()).masked_fill(~happens, 0)
        corners = (drawn[:, 1:].view(-1, _HOLES, 2) * (self.crop - side + 1)).long()
        place = torch.arange(self.crop, device=images.device)
        inside = (place >= corners[..., None]) & (place < corners[..., None] + side)
        inside &= (torch.arange(_HOLES, device=images.device) < number[:, None])[..., None, None]
        hole = (inside[:, :, 1, :, None] & inside[:, :, 0, None, :]).any(dim=1)
        mean, std = (_by_channel(v, images.device) for v in (self.mean, self.std))
        return torch.where(hole[:, None], -mean / std, images)


@lru_cache
def _by_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    """One number per channel, made once on each device."""
    return torch.tensor(values, device=device).view(1, -1, 1, 1)


def _signed(unit: Tensor) -> Tensor:
    """From 0..1 to -1..1."""
    return 2 * unit - 1
