"""Find and load a medical dataset by name; finding it looks at names only, and loads no torch."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedcompass.data.medical.isic_files import images_in, split_of
from fedcompass.data.medical.published import (
    BRCA,
    HEART,
    HIPPOCAMPUS,
    ISIC,
    IXI,
    SOURCES,
    MedicalSource,
)
from fedcompass.data.medical.volume_files import center_of, pairs_in, subjects_in
from fedcompass.data.places import candidates, searched
from fedcompass.errors import DataError

if TYPE_CHECKING:
    from fedcompass.data.dataset import Dataset
    from fedcompass.data.fetch import Progress

__all__ = ["find", "load", "usual_clients"]


def find(source: MedicalSource, root: Path | None = None) -> tuple[Path, list[int]]:
    """The first folder that holds something of a dataset, and the numbers of the centers there.

    Raises:
        DataError: no folder does.
    """
    for folder in candidates(source.folders, root):
        if present := sorted(set(_PRESENT[source.name](folder))):
            return folder, present
    raise DataError(
        f"dataset {source.name!r} was not found in {searched(source.folders, root)}; "
        f"{source.obtain}, then name the folder with --data-root or $FEDCOMPASS_DATA"
    )


def load(name: str, root: Path | None = None, progress: "Progress | None" = None) -> "Dataset":
    """The dataset with the centers that are there, found as `data.catalogue.load` finds others.

    Args:
        name: one of `published.SOURCES`.
        root: folder to look in first.
        progress: told while samples are prepared, which happens once.

    Raises:
        DataError: nothing of it is there, or a file is missing or damaged; it is named.
    """
    from fedcompass.data.medical import isic, segmentation, tabular

    folder, centers = find(SOURCES[name], root)
    match name:
        case HEART.name:
            return tabular.load_heart(folder, centers)
        case BRCA.name:
            return tabular.load_brca(folder, centers)
        case ISIC.name:
            return isic.load_isic(folder, centers, progress)
        case IXI.name:
            return segmentation.load_ixi(folder, centers, progress)
        case HIPPOCAMPUS.name:
            return segmentation.load_hippocampus(folder, progress)
        case _:
            raise KeyError(name)


def usual_clients(name: str, root: Path | None = None) -> int:
    """One client for each center that is there; as many as published if none is."""
    source = SOURCES[name]
    try:
        return len(find(source, root)[1])
    except DataError:
        return len(source.centers)  # what is wrong is said when the data are loaded


def _heart(folder: Path) -> list[int]:
    files = (folder / f"processed.{center}.data" for center in HEART.centers)
    return [number for number, file in enumerate(files) if file.is_file()]


def _brca(folder: Path) -> list[int]:
    return list(range(len(BRCA.centers))) if (folder / "brca.csv").is_file() else []


def _isic(folder: Path) -> list[int]:
    if (split := split_of(folder)) is None:
        return []
    images = images_in(folder)[0]
    return [int(row["center"]) for _, row in split if row["image"] in images]


def _ixi(folder: Path) -> list[int]:
    return [IXI.centers.index(center_of(subject)) for subject in subjects_in(folder)]


def _hippocampus(folder: Path) -> list[int]:
    return list(range(len(HIPPOCAMPUS.centers))) if pairs_in(folder) else []


_PRESENT: dict[str, Callable[[Path], list[int]]] = {
    HEART.name: _heart,
    BRCA.name: _brca,
    ISIC.name: _isic,
    IXI.name: _ixi,
    HIPPOCAMPUS.name: _hippocampus,
}
