"""Where datasets are looked for and found: a given root, `$FEDCOMPASS_DATA`, the cache folder."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedcompass.data.sources import BUNDLED, CIFAR10, MNIST, SOURCES, Source, SourceFile
from fedcompass.errors import DataError

__all__ = [
    "cache_folder",
    "candidates",
    "files_in",
    "md5_of",
    "not_found",
    "roots",
    "searched",
    "stored_files",
]


def cache_folder() -> Path:
    """Where downloads go: `$XDG_CACHE_HOME/fedcompass`, else `~/.cache/fedcompass`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fedcompass"


def roots(root: Path | None = None) -> list[Path]:
    """The data roots in the order searched, each once."""
    given = os.environ.get("FEDCOMPASS_DATA")
    places = [root, Path(given) if given else None, cache_folder()]
    return list(dict.fromkeys(place.expanduser() for place in places if place is not None))


def candidates(folders: Iterable[str], root: Path | None = None) -> Iterator[Path]:
    """Those of a dataset's folders that are there, in the order searched."""
    for place in roots(root):
        for folder in folders:
            if (path := place / folder).is_dir():
                yield path


def not_found(source: Source, wanted: str, root: Path | None = None, also: str = "") -> DataError:
    """The one line for a dataset that is nowhere: what, where, and what to do."""
    return DataError(
        f"dataset {source.name!r} was not found: looked for {wanted} in "
        f"{searched(source.folders, root)}{also}; run `fedcompass data fetch {source.name}`, "
        "or name the folder that holds it with --data-root or $FEDCOMPASS_DATA"
    )


def searched(folders: Iterable[str], root: Path | None) -> str:
    """Where a dataset was looked for, in words."""
    places = ", ".join(map(str, roots(root)))
    return f"{places} (and there in {', '.join(folder for folder in folders if folder != '.')})"


def stored_files(name: str, root: Path | None = None) -> list[Path]:
    """The files of a dataset that would be read, none if it is nowhere; they are not checked."""
    if name == BUNDLED:
        folder = Path(__file__).parent / "bundled" / BUNDLED
        return [folder / file.name for file in MNIST.files]
    known = SOURCES[name]
    for folder in candidates(known.folders, root):
        files = _cifar_files(folder) if known is CIFAR10 else files_in(folder, known)
        present = [path for path in files if path is not None]
        if present and len(present) == len(files):
            return present
    return []


def files_in(folder: Path, source: Source) -> list[Path | None]:
    """A dataset's files in a folder, None for each that is not there or another dataset's."""
    paths = [_stored(folder, file) for file in source.files]
    smallest = paths[-1]  # labels: MNIST's and Fashion-MNIST's files have the same names
    others = {f.md5 for other in SOURCES.values() if other is not source for f in other.files}
    if smallest is not None and md5_of(smallest.read_bytes()) in others:
        return [None] * len(paths)
    return paths


def _stored(folder: Path, file: SourceFile) -> Path | None:
    """The file as published, or unpacked if its content can be checked."""
    if (path := folder / file.name).is_file():
        return path
    unpacked = folder / file.name.removesuffix(".gz")
    return unpacked if file.content_md5 and unpacked.is_file() else None


def _cifar_files(folder: Path) -> list[Path | None]:
    from fedcompass.data.cifar import find

    if (found := find(folder)) is None:
        return []
    place, version = found
    batches = [place / name for name in version.batches] if place.is_dir() else [place]
    return [batch for batch in batches if batch.is_file()]


def md5_of(content: bytes) -> str:
    """The checksum by which published files are known."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
