"""Fed-IXI and its stand-in: pairs of a volume and a mask become memory-mapped samples."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcompass.data.dataset import Dataset
from fedcompass.data.medical.hippocampus_files import listed_volumes as listed_hippocampi
from fedcompass.data.medical.ixi_files import ListedVolume
from fedcompass.data.medical.ixi_files import listed_volumes as listed_brains
from fedcompass.data.medical.prepared import Preparation, Progress, RowKind, cache_for, prepare
from fedcompass.data.medical.sources import HIPPOCAMPUS, IXI
from fedcompass.data.medical.volumes import COMMON_SHAPE, normalized, read_volume, resized
from fedcompass.errors import DataError
from fedcompass.training.losses import dice_loss

__all__ = ["load_hippocampus", "load_ixi"]

_METHOD = 1  # counted up when the preparation changes
_ARRAYS = {
    "inputs": RowKind((1, *COMMON_SHAPE), "float32"),
    "targets": RowKind(COMMON_SHAPE, "uint8"),
}


def load_ixi(folder: Path, centers: list[int], progress: Progress | None = None) -> Dataset:
    """T1 volumes and brain masks, resized and normalized as in FLamby.

    Raises:
        DataError: a file is missing or damaged; it is named.
    """
    volumes = listed_brains(folder, centers)
    absent = [name for number, name in enumerate(IXI.centers) if number not in centers]
    remarks = (f"{IXI.name}: {len(centers)} centers (without {' and '.join(absent)})",)
    return _load(IXI.name, volumes, _brain_mask, remarks if absent else (), progress)


def load_hippocampus(folder: Path, progress: Progress | None = None) -> Dataset:
    """Cropped MRI volumes and masks of the hippocampus, its two parts taken together.

    Raises:
        DataError: a file is missing or damaged; it is named.
    """
    remark = f"{HIPPOCAMPUS.name}: 3 artificial sites, a stand-in for fed-ixi; not natural centers"
    volumes = listed_hippocampi(folder)
    return _load(HIPPOCAMPUS.name, volumes, _hippocampus_mask, (remark,), progress)


def _brain_mask(labels: Tensor) -> Tensor:
    """FLamby's: averaged like the image, then cut to whole numbers, so only full voxels count."""
    return resized(labels, "area").long()


def _hippocampus_mask(labels: Tensor) -> Tensor:
    return resized((labels > 0).to(labels.dtype), "nearest-exact").long()


@dataclass(frozen=True)
class _Pair:
    """Makes one sample from two files."""

    volumes: list[ListedVolume]
    mask: Callable[[Tensor], Tensor]

    def __call__(self, row: int) -> tuple[NDArray[Any], ...]:
        listed = self.volumes[row]
        image, labels = read_volume(listed.image), read_volume(listed.label)
        if image.shape != labels.shape:
            raise DataError(
                f"{listed.label} has shape {tuple(labels.shape)}, its image {tuple(image.shape)}; "
                "get both again"
            )
        mask = self.mask(labels)
        if int(mask.min()) < 0 or int(mask.max()) > 1:
            raise DataError(f"{listed.label} is no mask of 0 and 1; get it again")
        volume = normalized(resized(image, "area")).to(torch.float32)
        return volume[None].numpy(), mask.to(torch.uint8).numpy()


def _load(
    name: str,
    volumes: list[ListedVolume],
    mask: Callable[[Tensor], Tensor],
    remarks: tuple[str, ...],
    progress: Progress | None,
) -> Dataset:
    files = [file for listed in volumes for file in (listed.image, listed.label)]
    cache = cache_for(name, {"method": _METHOD, "shape": COMMON_SHAPE}, files)
    tensors, centers = {}, {}
    for fold in ("train", "test"):
        chosen = [listed for listed in volumes if listed.fold == fold]
        preparation = Preparation(
            name=fold, rows=len(chosen), arrays=_ARRAYS, make=_Pair(chosen, mask)
        )
        tensors[fold] = prepare(cache, preparation, progress)
        centers[fold] = torch.tensor([listed.center for listed in chosen])
    return Dataset(
        name=name,
        train_inputs=tensors["train"]["inputs"],
        train_targets=tensors["train"]["targets"],
        test_inputs=tensors["test"]["inputs"],
        test_targets=tensors["test"]["targets"],
        classes=2,
        train_centers=centers["train"],
        test_centers=centers["test"],
        loss=dice_loss,
        remarks=remarks,
    )
