"""Samples prepared once, kept in the cache folder, then memory-mapped.

Rows are appended to plain binary files, so what is done is what is there: a preparation that was
stopped goes on where it was, and a full disk is an error, not a crash. The folder's name has a
hash of the source files' names, sizes and times; it may be deleted at any time.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcompass.data.fetch import Progress
from fedcompass.data.places import cache_folder
from fedcompass.errors import DataError
from fedcompass.runs.files import FolderLock, replacing

__all__ = ["Preparation", "RowKind", "cache_for", "prepare", "remembered"]

_AT_ONCE = 64  # rows prepared by the threads before they are written
_THREADS = 16  # at most: more would wait for each other


@dataclass(frozen=True, slots=True)
class RowKind:
    """What one sample of an array is: its shape and numpy's name of its type."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Arrays to be made row by row.

    name: for the files and the progress.
    rows: how many.
    arrays: what a row of each array is.
    make: one row of each array, in that order; called from several threads.
    """

    name: str
    rows: int
    arrays: Mapping[str, RowKind]
    make: Callable[[int], tuple[NDArray[Any], ...]]


def cache_for(name: str, facts: Mapping[str, Any], files: Iterable[Path]) -> Path:
    """The folder for what is prepared from these files in this way.

    Raises:
        DataError: a file is not there.
    """
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for file in files:
        try:
            stat = file.stat()
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}; get it again") from None
        digest.update(f"{file.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return cache_folder() / "prepared" / f"{name}-{digest.hexdigest()[:16]}"


def remembered(folder: Path, key: str, find_out: Callable[[], int]) -> int:
    """A number that is slow to find out, kept in a prepared folder."""
    note = folder / f"{key}.json"
    if note.is_file():
        return int(json.loads(note.read_text(encoding="utf-8")))
    value = find_out()
    with _writable(folder), FolderLock(folder, wait=True), replacing(note) as beside:
        beside.write_text(json.dumps(value), encoding="utf-8")
    return value


def prepare(
    folder: Path, preparation: Preparation, progress: Progress | None = None
) -> dict[str, Tensor]:
    """The arrays as memory-mapped tensors, after making the rows that are not there yet.

    Raises:
        DataError: a source file is damaged (its name is in the message), or the disk is full.
    """
    files = {key: folder / f"{preparation.name}-{key}.bin" for key in preparation.arrays}
    if _rows_there(files, preparation) < preparation.rows:
        with _writable(folder), FolderLock(folder, wait=True):
            _append_missing(files, preparation, progress)
    return {
        key: _mapped(files[key], preparation.rows, kind) for key, kind in preparation.arrays.items()
    }


def _rows_there(files: Mapping[str, Path], preparation: Preparation) -> int:
    sizes = {key: path.stat().st_size if path.is_file() else 0 for key, path in files.items()}
    return min(sizes[key] // kind.nbytes for key, kind in preparation.arrays.items())


def _append_missing(
    files: Mapping[str, Path], preparation: Preparation, progress: Progress | None
) -> None:
    done = _rows_there(files, preparation)  # another process may just have made them
    with ExitStack() as stack, ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads:
        outputs = []
        for key, kind in preparation.arrays.items():
            output = stack.enter_context(files[key].open("ab"))
            output.truncate(done * kind.nbytes)  # a row may be half written
            outputs.append(output)
        for first in range(done, preparation.rows, _AT_ONCE):
            rows = range(first, min(first + _AT_ONCE, preparation.rows))
            for made in threads.map(preparation.make, rows):
                for output, kind, row in zip(
                    outputs, preparation.arrays.values(), made, strict=True
                ):
                    output.write(_checked(row, kind))
            if progress is not None:
                progress(preparation.name, rows.stop, preparation.rows)


def _checked(row: NDArray[Any], kind: RowKind) -> bytes:
    assert row.shape == kind.shape, f"{row.shape} is not {kind.shape}"
    return np.ascontiguousarray(row, dtype=kind.dtype).tobytes()


def _mapped(path: Path, rows: int, kind: RowKind) -> Tensor:
    # Copy on write: PyTorch wants writable memory, and nothing may ever reach the file.
    array = np.memmap(path, dtype=kind.dtype, mode="c", shape=(rows, *kind.shape))
    return torch.from_numpy(array)


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written to: {error.strerror}; free some space, or name another "
            "cache folder with $XDG_CACHE_HOME"
        ) from None
