"""Where a medical dataset lies, and which of its centers are there; nothing is read but names."""

from collections.abc import Callable, Iterator
from pathlib import Path

from fedcompass.data.medical.hippocampus_files import pairs_in
from fedcompass.data.medical.isic_files import images_in, split_of
from fedcompass.data.medical.ixi_files import center_of, subjects_in
from fedcompass.data.medical.sources import (
    BRCA,
    HEART,
    HIPPOCAMPUS,
    ISIC,
    IXI,
    SOURCES,
    MedicalSource,
)
from fedcompass.data.places import roots
from fedcompass.errors import DataError

__all__ = ["centers_at", "find", "usual_clients"]


def find(source: MedicalSource, root: Path | None = None) -> tuple[Path, list[int]]:
    """The first folder that holds something of a dataset, and the numbers of the centers there.

    Raises:
        DataError: no folder does.
    """
    for folder in _folders(source, root):
        if present := centers_at(source, folder):
            return folder, present
    places = ", ".join(str(place) for place in roots(root))
    folders = ", ".join(folder for folder in source.folders if folder != ".")
    raise DataError(
        f"dataset {source.name!r} was not found in {places} (and there in {folders}); "
        f"{source.obtain}, then name the folder with --data-root or $FEDCOMPASS_DATA"
    )


def usual_clients(name: str, root: Path | None = None) -> int:
    """One client for each center that is there; as many as published if none is."""
    source = SOURCES[name]
    try:
        return len(find(source, root)[1])
    except DataError:
        return len(source.centers)  # what is wrong is said when the data are loaded


def centers_at(source: MedicalSource, folder: Path) -> list[int]:
    """The centers of which a folder holds anything, by number."""
    return sorted(set(_PRESENT[source.name](folder)))


def _folders(source: MedicalSource, root: Path | None) -> Iterator[Path]:
    for place in roots(root):
        for folder in source.folders:
            if (path := place / folder).is_dir():
                yield path


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
