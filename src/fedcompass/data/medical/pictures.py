"""Dermoscopy images as FLamby prepares them: resized, colours made constant, cut to one size."""

from math import sqrt
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from fedcompass.errors import DataError, MissingExtra

__all__ = ["centre_crop", "fitted", "picture_size", "read_picture", "shades_of_gray"]


def picture_size(path: Path) -> tuple[int, int]:
    """Width and height from the file's header.

    Raises:
        DataError: the file is not an image.
    """
    image = _image_module()
    try:
        with image.open(path) as picture:
            width, height = picture.size
            return width, height
    except Exception as error:  # a damaged file can raise anything
        raise _damaged(path, error) from None


def read_picture(path: Path, short_edge: int) -> NDArray[np.uint8]:
    """An image [height, width, 3], resized (bilinear) so that its shorter side is `short_edge`.

    Raises:
        DataError: the file is missing, truncated or not an image.
    """
    image = _image_module()
    try:
        with image.open(path) as picture:
            colours = picture.convert("RGB")
    except Exception as error:
        raise _damaged(path, error) from None
    ratio = short_edge / min(colours.size)
    size = tuple(max(short_edge, int(side * ratio)) for side in colours.size)
    if size != colours.size:
        colours = colours.resize(size, image.Resampling.BILINEAR)
    return np.asarray(colours)


def shades_of_gray(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Colour constancy: channels scaled so that their means of power 6 are equal.

    FLamby's formula; values that it would let wrap around beyond 255 stay at 255.
    """
    values = pixels.astype(np.float32)
    sixth = np.square(values * values * values)
    light = sixth.mean(axis=(0, 1), dtype=np.float64) ** (1 / 6)
    light = np.maximum(light / max(sqrt((light**2).sum()), 1e-12), 1e-12)
    scaled = values * (1 / (light * sqrt(3))).astype(np.float32)
    constant: NDArray[np.uint8] = np.minimum(scaled, 255).astype(np.uint8)
    return constant


def fitted(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """The image's centre on a canvas; where the image is smaller its border is mirrored."""
    top, left = max(0, pixels.shape[0] - height) // 2, max(0, pixels.shape[1] - width) // 2
    pixels = pixels[top : top + height, left : left + width]
    gaps = (height - pixels.shape[0], width - pixels.shape[1], 0)
    if not any(gaps):
        return pixels
    return np.pad(pixels, [(gap // 2, gap - gap // 2) for gap in gaps], mode="reflect")


def centre_crop(pixels: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """The square in the middle."""
    top, left = ((room - side) // 2 for room in pixels.shape[:2])
    return pixels[top : top + side, left : left + side]


def _image_module() -> ModuleType:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("pillow", "medical", "reading images") from None
    return Image


def _damaged(path: Path, error: Exception) -> DataError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return DataError(f"{path} is missing or damaged: {reason}; get it again")
