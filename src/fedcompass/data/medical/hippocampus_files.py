"""The Medical Segmentation Decathlon's hippocampus volumes, dealt to three artificial sites."""

import hashlib
from pathlib import Path

from fedcompass.data.medical.ixi_files import ListedVolume
from fedcompass.data.medical.sources import IXI
from fedcompass.errors import DataError

__all__ = ["listed_volumes", "pairs_in", "site_and_fold"]

_LAYOUTS = (("images", "labels"), ("imagesTr", "labelsTr"))
_TEST_SHARE = 0.2


def pairs_in(folder: Path) -> list[tuple[Path, Path]]:
    """Each volume's image and where its mask should be, by name; hidden files are passed over."""
    for images, labels in _LAYOUTS:
        found = sorted((folder / images).glob("[!.]*.nii.gz"))
        if found:
            return [(image, folder / labels / image.name) for image in found]
    return []


def site_and_fold(name: str) -> tuple[int, str]:
    """A volume's site and fold: by its name alone, sites in proportion to Fed-IXI's centers."""
    digest = hashlib.sha256(name.encode()).digest()
    place, chance = (int.from_bytes(digest[at : at + 8], "little") / 2**64 for at in (0, 8))
    sizes = [train + test for train, test in zip(IXI.train, IXI.test, strict=True)]
    first, second = sizes[0] / sum(sizes), (sizes[0] + sizes[1]) / sum(sizes)
    site = (place >= first) + (place >= second)
    return site, "test" if chance < _TEST_SHARE else "train"


def listed_volumes(folder: Path) -> list[ListedVolume]:
    """Every volume with its site and fold.

    Raises:
        DataError: a mask is not there, or a site would have nothing to train or test on.
    """
    volumes = []
    for image, label in pairs_in(folder):
        if not label.is_file():
            raise DataError(f"{label} is missing, the mask of {image}; get it again")
        volumes.append(ListedVolume(image, label, *site_and_fold(image.name)))
    if len({(v.center, v.fold) for v in volumes}) < 6:
        raise DataError(f"{folder} has too few volumes ({len(volumes)}) for three sites")
    return volumes
