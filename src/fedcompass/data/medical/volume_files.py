"""Files of volumes and masks: Fed-IXI's subjects, and the stand-in in three artificial sites.

`fed_ixi_split.csv` has FLamby's metadata_tiny.csv (MIT licence) as subject, center, fold.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedcompass.data.medical.csv_table import csv_rows
from fedcompass.data.medical.published import IXI
from fedcompass.errors import DataError

__all__ = [
    "ListedVolume",
    "center_of",
    "listed_brains",
    "listed_hippocampi",
    "pairs_in",
    "site_and_fold",
    "split_by_subject",
    "subjects_in",
]

_SPLIT = Path(__file__).with_name("fed_ixi_split.csv")
_LAYOUTS = (("images", "labels"), ("imagesTr", "labelsTr"))  # of the hippocampi
_TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class ListedVolume:
    """A volume and its mask, not read yet."""

    image: Path
    label: Path
    center: int
    fold: str


@cache
def split_by_subject() -> dict[int, tuple[int, str]]:
    """Center and fold of each of the 566 subjects, by their number."""
    columns = ("subject", "center", "fold")
    return {
        int(row["subject"]): (int(row["center"]), row["fold"])
        for _, row in csv_rows(_SPLIT, columns)
    }


def subjects_in(folder: Path) -> list[Path]:
    """The subjects' folders (IXI002-Guys-0828), in FLamby's place or in any folder below."""
    for place in (folder / "IXI_sample", *sorted(folder.glob("*/IXI_sample")), folder):
        if found := sorted(path for path in place.glob("IXI*-*-*") if _is_subject(path)):
            return found
    return []


def center_of(subject: Path) -> str:
    """The center in a subject folder's name."""
    return subject.name.split("-")[1]


def listed_brains(folder: Path, centers: list[int]) -> list[ListedVolume]:
    """Every subject of the centers, by number.

    Raises:
        DataError: a subject of FLamby's split, its volume or its mask is not there.
    """
    subjects = {_number(path): path for path in subjects_in(folder)}
    volumes = []
    for number, (center, fold) in sorted(split_by_subject().items()):
        if center not in centers:
            continue
        if number not in subjects:
            raise DataError(
                f"{folder} lacks subject IXI{number:03d} of center {IXI.centers[center]}; "
                "unpack FLamby's archive again"
            )
        path = subjects[number]
        volumes.append(ListedVolume(_only(path / "T1"), _only(path / "label"), center, fold))
    return volumes


def _number(subject: Path) -> int:
    return int(subject.name.split("-")[0].removeprefix("IXI"))


def _is_subject(path: Path) -> bool:
    digits = path.name.split("-")[0].removeprefix("IXI")
    return path.is_dir() and digits.isdecimal() and center_of(path) in IXI.centers


def _only(folder: Path) -> Path:
    files = sorted(folder.glob("*.nii.gz"))
    if len(files) != 1:
        raise DataError(f"{folder} has {len(files)} .nii.gz files; it should have one")
    return files[0]


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


def listed_hippocampi(folder: Path) -> list[ListedVolume]:
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
