"""Fed-ISIC2019 with the centers and at the resolution that are there."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcompass.data.dataset import Dataset
from fedcompass.data.medical.augmentation import IsicAugment
from fedcompass.data.medical.isic_files import ListedImage, listed_images
from fedcompass.data.medical.pictures import (
    centre_crop,
    fitted,
    picture_size,
    read_picture,
    shades_of_gray,
)
from fedcompass.data.medical.prepared import (
    Preparation,
    Progress,
    RowKind,
    cache_for,
    prepare,
    remembered,
)
from fedcompass.data.medical.sources import ISIC
from fedcompass.training.losses import LOSSES

__all__ = ["SHORT_EDGE", "crop_of", "load_isic"]

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
    return min(SHORT_EDGE, *(min(picture_size(path)) for path in paths))


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
