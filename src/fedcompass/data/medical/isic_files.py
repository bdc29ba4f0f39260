"""Fed-ISIC2019's files: FLamby's split, and the images it lists, wherever below the folder."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fedcompass.data.medical.csv_table import csv_rows
from fedcompass.data.medical.published import ISIC
from fedcompass.errors import DataError

__all__ = ["ListedImage", "images_in", "listed_images", "split_of"]

_SPLITS = ("train_test_split", "train_test_split.csv", "split.csv")
_PREPROCESSED = "ISIC_2019_Training_Input_preprocessed"


@dataclass(frozen=True, slots=True)
class ListedImage:
    """An image of FLamby's split, not read yet."""

    path: Path
    label: int
    center: int
    fold: str


def split_of(folder: Path) -> list[tuple[int, dict[str, str]]] | None:
    """FLamby's split with its line numbers, None if it is not there.

    Raises:
        DataError: naming the file and the line that is wrong.
    """
    path = next((folder / name for name in _SPLITS if (folder / name).is_file()), None)
    if path is None:
        return None
    stat = path.stat()
    return _checked_split(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4)  # 23,247 rows, asked for by every experiment; a changed file is read anew
def _checked_split(path: Path, _changed: int, _size: int) -> list[tuple[int, dict[str, str]]]:
    rows = list(csv_rows(path, ("image", "target", "center", "fold")))
    targets, centers = set(map(str, range(len(ISIC.labels)))), set(map(str, range(6)))
    for line, row in rows:
        sound = row["target"] in targets and row["center"] in centers
        if not sound or row["fold"] not in ("train", "test"):
            raise DataError(
                f"{path}, line {line}, is not image, target 0-7, center 0-5 and train or test"
            )
    return rows


def images_in(folder: Path) -> tuple[dict[str, Path], bool]:
    """Images by name, and whether FLamby's preprocessing (size, colour) was done to them.

    FLamby's preprocessed folder is taken if it is there, else the images in the folder itself and
    in the folders right below it.
    """
    done = folder / _PREPROCESSED
    if done.is_dir() and (images := _jpegs(done)):
        return images, True
    images = _jpegs(folder)
    for below in sorted(path for path in folder.iterdir() if path.is_dir()):
        images |= _jpegs(below)
    return images, False


def listed_images(folder: Path, centers: list[int]) -> tuple[list[ListedImage], bool]:
    """Every image of the centers, and whether FLamby's preprocessing was done to them.

    Raises:
        DataError: an image of these centers is not there; the first is named.
    """
    split = split_of(folder)
    images, preprocessed = images_in(folder)
    wanted = [row for _, row in split or () if int(row["center"]) in centers]
    if missing := [row for row in wanted if row["image"] not in images]:
        first = missing[0]
        center = ISIC.centers[int(first["center"])]
        more = f", and {len(missing) - 1} more images" if len(missing) > 1 else ""
        raise DataError(
            f"{folder} lacks {first['image']}.jpg of center {center}{more}; get them again, or "
            "take all images of that center away to train without it"
        )
    found = [
        ListedImage(images[row["image"]], int(row["target"]), int(row["center"]), row["fold"])
        for row in wanted
    ]
    return found, preprocessed


def _jpegs(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in folder.glob("*.jpg")}
