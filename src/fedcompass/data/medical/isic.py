"""Fed-ISIC2019 with the centers and at the resolution that are there."""

from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcompass.data.dataset import Dataset
from fedcompass.data.fetch import Progress
from fedcompass.data.medical.augmentation import IsicAugment
from fedcompass.data.medical.isic_files import ListedImage, listed_images
from fedcompass.data.medical.prepared import (
    Preparation,
    RowKind,
    cache_for,
    prepare,
    remembered,
)
from fedcompass.data.medical.published import ISIC
from fedcompass.errors import DataError, MissingExtra
from fedcompass.training.losses import LOSSES

__all__ = [
    "SHORT_EDGE",
    "centre_crop",
    "crop_of",
    "fitted",
    "load_isic",
    "read_picture",
    "shades_of_gray",
]

SHORT_EDGE, _CROP = 224, 200  # FLamby's
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as in FLamby
_METHOD = 1  # counted up when the preparation changes


def load_isic(folder: Path, centers: list[int], progress: Progress | None = None) -> Dataset:
    """Training images whole, test images cut to their centre; prepared once, then memory-mapped.

    Images smaller than FLamby's short edge of 224 keep their size, and crops shrink in proportion.
    Training images share one canvas, 4:3 as most of them are; narrower ones are mirrored at the
    border, which is how FLamby's rotation fills it too.

    Raises:
        DataError: an image is missing or damaged; it is named.
    """
    images, preprocessed = listed_images(folder, centers)
    paths = [image.path for image in images]
    cache = cache_for(ISIC.name, {"method": _METHOD, "preprocessed": preprocessed}, paths)
    edge = remembered(cache, "short_edge", lambda: _common_edge(paths))
    train = [image for image in images if image.fold == "train"]
    test = [image for image in images if image.fold == "test"]
    whole = _Cut(train, edge, preprocessed, whole=True)
    middle = _Cut(test, edge, preprocessed, whole=False)
    return Dataset(
        name=ISIC.name,
        train_inputs=_prepared(cache, "train", whole, progress),
        train_targets=torch.tensor([image.label for image in train]),
        test_inputs=_prepared(cache, "test", middle, progress),
        test_targets=torch.tensor([image.label for image in test]),
        classes=len(ISIC.labels),
        mean=_MEAN,
        std=_STD,
        train_centers=torch.tensor([image.center for image in train]),
        test_centers=torch.tensor([image.center for image in test]),
        loss=LOSSES["focal"],
        augment=IsicAugment(crop_of(edge), _MEAN, _STD),
        remarks=_remarks(centers, edge),
    )


def crop_of(short_edge: int) -> int:
    """The side of a crop: 200 of 224 pixels, and in proportion."""
    return round(_CROP * short_edge / SHORT_EDGE)


@dataclass(frozen=True)
class _Cut:
    """Makes one sample from a file: the whole image on its canvas, or the crop in the middle."""

    images: list[ListedImage]
    edge: int
    preprocessed: bool
    whole: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        crop = crop_of(self.edge)
        return (3, self.edge, self.edge * 4 // 3) if self.whole else (3, crop, crop)

    def __call__(self, row: int) -> tuple[NDArray[np.uint8]]:
        pixels = read_picture(self.images[row].path, self.edge)
        if not self.preprocessed:
            pixels = shades_of_gray(pixels)
        _, height, width = self.shape
        cut = fitted(pixels, height, width) if self.whole else centre_crop(pixels, height)
        return (cut.transpose(2, 0, 1),)


def _prepared(cache: Path, fold: str, cut: _Cut, progress: Progress | None) -> Tensor:
    arrays = {"inputs": RowKind(cut.shape, "uint8")}
    preparation = Preparation(name=fold, rows=len(cut.images), arrays=arrays, make=cut)
    return prepare(cache, preparation, progress)["inputs"]


def _common_edge(paths: list[Path]) -> int:
    """The short edge all images can have without being enlarged, at most FLamby's."""
    return min(SHORT_EDGE, *map(_short_edge, paths))


def _remarks(centers: list[int], edge: int) -> tuple[str, ...]:
    absent = [name for number, name in enumerate(ISIC.centers) if number not in centers]
    reduced = edge < SHORT_EDGE
    if not absent and not reduced:
        return ()
    what = f"{len(centers)} centers" + (", reduced resolution" if reduced else "")
    why = [f"without {' and '.join(absent)}"] if absent else []
    if reduced:
        why.append(f"short edge {edge} instead of {SHORT_EDGE}, crops of {crop_of(edge)}")
    return (f"{ISIC.name}: {what} ({'; '.join(why)})",)


def _short_edge(path: Path) -> int:
    """The shorter side of an image, from the file's header."""
    try:
        with _image_module().open(path) as picture:
            return int(min(picture.size))
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
