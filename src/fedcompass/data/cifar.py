"""CIFAR-10 from either published version, as a folder or as the .tar.gz it came in.

The md5 of each batch file is checked, wherever it was found, so an archive may have been packed
anew. Archives are read member by member in memory: nothing is written to disk.
"""

import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedcompass.data.places import md5_of
from fedcompass.data.restricted_pickle import UnsafePickle, read_byte_arrays
from fedcompass.errors import DataError

__all__ = ["BINARY", "PYTHON", "VERSIONS", "Version", "find", "read"]

Bytes: TypeAlias = NDArray[np.uint8]

_IMAGE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_LARGEST_MEMBER = 64 * 2**20  # a batch is 31 MB; anything larger in an archive is not one


@dataclass(frozen=True)
class Version:
    """One published form of CIFAR-10.

    batches: file name -> md5, the training batches in order, the test batch last.
    parse: turns a batch file's bytes into images and labels.
    """

    folder: str
    archive: str
    batches: dict[str, str]
    parse: Callable[[bytes], tuple[Bytes, Bytes]]


def _parse_binary(content: bytes) -> tuple[Bytes, Bytes]:
    """Records of one label byte and 3,072 pixel bytes: red, green, blue, row by row."""
    if not content or len(content) % (1 + _PIXELS):
        raise ValueError(f"{len(content)} bytes are not whole records of {1 + _PIXELS}")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + _PIXELS)
    return records[:, 1:].reshape(-1, *_IMAGE), records[:, 0]


def _parse_python(content: bytes) -> tuple[Bytes, Bytes]:
    """A pickled dictionary with an array `data` of one row per image and a list `labels`."""
    batch = read_byte_arrays(content)
    images, labels = batch.get("data"), batch.get("labels")
    if not isinstance(images, np.ndarray) or images.shape[1:] != (_PIXELS,):
        raise ValueError(f"'data' is not an array of {_PIXELS} bytes per image")
    if not isinstance(labels, list) or not all(
        type(label) is int and 0 <= label < 256 for label in labels
    ):
        raise ValueError("'labels' is not a list of small numbers")
    return images.reshape(-1, *_IMAGE), np.array(labels, dtype=np.uint8)


BINARY = Version(
    folder="cifar-10-batches-bin",
    archive="cifar-10-binary.tar.gz",
    batches={
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    parse=_parse_binary,
)

PYTHON = Version(
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    batches={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    parse=_parse_python,
)

VERSIONS = (BINARY, PYTHON)


def find(folder: Path) -> tuple[Path, Version] | None:
    """The first version's batch folder or archive in a folder; the folder itself may be it."""
    for version in VERSIONS:
        first = next(iter(version.batches))
        for place in (folder / version.folder, folder):
            if (place / first).is_file():
                return place, version
        if (archive := folder / version.archive).is_file():
            return archive, version
    return None


def read(place: Path, version: Version) -> tuple[Bytes, Bytes, Bytes, Bytes]:
    """Training images and labels, test images and labels, from a batch folder or an archive.

    Raises:
        DataError: a batch is missing, damaged or not the published one.
    """
    contents = _folder(place, version) if place.is_dir() else _archive(place, version)
    parsed = {name: _checked(place, version, name, content) for name, content in contents}
    if missing := [name for name in version.batches if name not in parsed]:
        raise DataError(f"{place} has no {', '.join(missing)}; fetch the dataset again")
    *train, test = (parsed[name] for name in version.batches)
    images = np.concatenate([batch[0] for batch in train])
    labels = np.concatenate([batch[1] for batch in train])
    return images, labels, np.array(test[0]), np.array(test[1])


def _checked(place: Path, version: Version, name: str, content: bytes) -> tuple[Bytes, Bytes]:
    md5 = md5_of(content)
    if md5 != version.batches[name]:
        raise DataError(
            f"{name} in {place} is not the published one: its md5 is {md5}, "
            f"published is {version.batches[name]}; delete it and fetch the dataset again"
        )
    try:
        images, labels = version.parse(content)
    except UnsafePickle as error:
        raise DataError(f"{name} in {place} is not a batch of images: {error}") from error
    except ValueError as error:
        raise DataError(f"{name} in {place} is damaged: {error}") from error
    if len(images) != len(labels):
        raise DataError(f"{name} in {place} has {len(images)} images and {len(labels)} labels")
    return images, labels


def _folder(place: Path, version: Version) -> Iterator[tuple[str, bytes]]:
    for name in version.batches:
        if (path := place / name).is_file():
            try:
                yield name, path.read_bytes()
            except OSError as error:
                raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _archive(place: Path, version: Version) -> Iterator[tuple[str, bytes]]:
    """The batch files of an archive; links, devices and files elsewhere in it are passed over."""
    try:
        with tarfile.open(place, "r|gz") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                wanted = path.parent.name == version.folder and path.name in version.batches
                if not wanted or not member.isreg() or member.size > _LARGEST_MEMBER:
                    continue
                if (stream := archive.extractfile(member)) is not None:
                    yield path.name, stream.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{place} is damaged: {error}; delete it and fetch it again") from error
