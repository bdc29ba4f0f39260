"""Load a medical dataset by name: found, checked, prepared if need be."""

from pathlib import Path

from fedcompass.data.dataset import Dataset
from fedcompass.data.medical import isic, segmentation, tabular
from fedcompass.data.medical.finding import find
from fedcompass.data.medical.prepared import Progress
from fedcompass.data.medical.sources import BRCA, HEART, HIPPOCAMPUS, ISIC, IXI, SOURCES

__all__ = ["load"]


def load(name: str, root: Path | None = None, progress: Progress | None = None) -> Dataset:
    """The dataset with the centers that are there, found as `data.catalogue.load` finds others.

    Args:
        name: one of `sources.SOURCES`.
        root: folder to look in first.
        progress: told while samples are prepared, which happens once.

    Raises:
        DataError: nothing of it is there, or a file is missing or damaged; it is named.
    """
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
