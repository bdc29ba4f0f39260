"""Fed-IXI's files: subject folders as FLamby unpacks them, and its split by subject.

`fed_ixi_split.csv` has FLamby's metadata_tiny.csv (MIT licence) as subject, center, fold.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedcompass.data.medical.csv_table import csv_rows
from fedcompass.data.medical.sources import IXI
from fedcompass.errors import DataError

__all__ = ["ListedVolume", "center_of", "listed_volumes", "split_by_subject", "subjects_in"]

_SPLIT = Path(__file__).with_name("fed_ixi_split.csv")


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


def listed_volumes(folder: Path, centers: list[int]) -> list[ListedVolume]:
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
