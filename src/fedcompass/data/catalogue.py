"""Load a dataset by name: found, checked against its published checksums, in memory."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedcompass.data import cifar
from fedcompass.data.dataset import Dataset
from fedcompass.data.idx import read_checked, read_idx
from fedcompass.data.places import candidates, files_in, not_found, stored_files
from fedcompass.data.sources import BUNDLED, CIFAR10, MEDICAL, MNIST, NAMES, Source, source

__all__ = ["NAMES", "load"]


def load(name: str, root: Path | None = None) -> Dataset:
    """The dataset of that name, found below `root`, `$FEDCOMPASS_DATA` or the cache folder.

    Raises:
        SettingsError: the name is unknown.
        DataError: the dataset is nowhere, incomplete, damaged or not the published one.
    """
    if name in MEDICAL:
        from fedcompass.data.medical import loading  # needs the extra only for images and volumes

        return loading.load(name, root)
    if name == BUNDLED:
        return _assemble(BUNDLED, MNIST, *_read_bundled())
    known = source(name)
    arrays = _read_cifar(known, root) if known is CIFAR10 else _read_idx_files(known, root)
    return _assemble(name, known, *arrays)


def _assemble(
    name: str,
    known: Source,
    train_images: NDArray[np.uint8],
    train_labels: NDArray[np.uint8],
    test_images: NDArray[np.uint8],
    test_labels: NDArray[np.uint8],
) -> Dataset:
    return Dataset(
        name=name,
        train_inputs=torch.from_numpy(train_images),
        train_targets=torch.from_numpy(train_labels).long(),
        test_inputs=torch.from_numpy(test_images),
        test_targets=torch.from_numpy(test_labels).long(),
        classes=known.classes,
        mean=known.mean,
        std=known.std,
    )


def _read_bundled() -> list[NDArray[np.uint8]]:
    # No checksum here: the files are part of the package, and a test compares them with MNIST.
    return [_with_channel(read_idx(p, _dimensions(p.name))) for p in stored_files(BUNDLED)]


def _read_idx_files(known: Source, root: Path | None) -> list[NDArray[np.uint8]]:
    closest = ""
    for folder in candidates(known.folders, root):
        paths = files_in(folder, known)
        if all(paths):
            return [
                _with_channel(read_checked(path, _dimensions(file.name), file))
                for path, file in zip(paths, known.files, strict=True)
                if path is not None
            ]
        if any(paths):
            absent = [f.name for f, path in zip(known.files, paths, strict=True) if path is None]
            closest = closest or f"; {folder} lacks {', '.join(absent)}"
    wanted = f"{known.files[0].name} and {len(known.files) - 1} more files"
    raise not_found(known, wanted, root, closest)


def _dimensions(file_name: str) -> int:
    return 3 if "idx3" in file_name else 1


def _with_channel(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Grey images as NCHW; labels as they are."""
    return values[:, None] if values.ndim == 3 else values


def _read_cifar(known: Source, root: Path | None) -> tuple[NDArray[np.uint8], ...]:
    for folder in candidates(known.folders, root):
        if (found := cifar.find(folder)) is not None:
            return cifar.read(*found)
    names = [name for version in cifar.VERSIONS for name in (version.folder, version.archive)]
    raise not_found(known, " or ".join(names), root)
