"""MRI volumes from NIfTI files, resized to one shape and normalized."""

import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcompass.errors import DataError, MissingExtra

__all__ = ["COMMON_SHAPE", "normalized", "read_volume", "resized"]

COMMON_SHAPE = (48, 60, 48)
"""What FLamby resizes the volumes of Fed-IXI to."""


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
    return functional.interpolate(volume[None, None], COMMON_SHAPE, mode=mode)[0, 0]


def normalized(volume: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1 over the whole volume; a constant one becomes 0."""
    centred = volume - volume.mean()
    spread = float(centred.square().mean().sqrt())
    return centred / spread if spread > 0 else centred
