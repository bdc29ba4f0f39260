"""Fed-IXI and its stand-in: pairs of a volume and a mask become memory-mapped samples."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcompass.data.dataset import Dataset
from fedcompass.data.fetch import Progress
from fedcompass.data.medical.prepared import Preparation, RowKind, cache_for, prepare
from fedcompass.data.medical.published import HIPPOCAMPUS, IXI
from fedcompass.data.medical.volume_files import ListedVolume, listed_brains, listed_hippocampi
from fedcompass.errors import DataError, MissingExtra
from fedcompass.training.losses import dice_loss

__all__ = ["load_hippocampus", "load_ixi", "normalized", "read_volume", "resized"]

_SHAPE = (48, 60, 48)  # what FLamby resizes the volumes of Fed-IXI to

_METHOD = 1  # counted up when the preparation changes
_ARRAYS = {
    "inputs": RowKind((1, *_SHAPE), "float32"),
    "targets": RowKind(_SHAPE, "uint8"),
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
    cache = cache_for(name, {"method": _METHOD, "shape": _SHAPE}, files)
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


def read_volume(path: Path) -> Tensor:
    """A volume's voxels as float64 [depth, height, width].

    Raises:
        MissingExtra: nibabel is not installed.
        DataError: the file is missing, truncated, not NIfTI, or not a volume of finite numbers.
    """
    try:
        import nibabel
    except ImportError:
        raise MissingExtra("nibabel", "medical", "reading MRI volumes") from None
    try:
        volume: Any = nibabel.load(path)
        voxels: NDArray[np.float64] = volume.get_fdata(caching="unchanged")
    except (OSError, EOFError, zlib.error, ValueError, nibabel.filebasedimages.ImageFileError) as e:
        reason = " ".join(str(e).split()) or type(e).__name__
        raise DataError(f"{path} is missing or damaged: {reason}; get it again") from None
    if voxels.ndim != 3 or not np.isfinite(voxels).all():
        raise DataError(f"{path} is not a volume of finite numbers: its shape is {voxels.shape}")
    return torch.from_numpy(np.ascontiguousarray(voxels))


def resized(volume: Tensor, mode: Literal["area", "nearest-exact"]) -> Tensor:
    """The volume in the common shape: `area` averages what falls into a voxel, as FLamby does."""
    return functional.interpolate(volume[None, None], _SHAPE, mode=mode)[0, 0]


def normalized(volume: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1 over the whole volume; a constant one becomes 0."""
    centred = volume - volume.mean()
    spread = float(centred.square().mean().sqrt())
    return centred / spread if spread > 0 else centred
