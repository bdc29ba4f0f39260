"""The idx format of MNIST and Fashion-MNIST, read strictly, plain or gzipped.

Header: two zero bytes, a type code, the number of dimensions, then each dimension as a big-endian
32-bit number; the values follow, the last dimension varying fastest, and nothing after them.
"""

import gzip
import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fedcompass.data.places import md5_of
from fedcompass.data.sources import SourceFile
from fedcompass.errors import DataError

__all__ = ["parse_idx", "read_checked", "read_idx"]

_UNSIGNED_BYTE = 0x08
_MOST_DIMENSIONS = 4


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array in an idx file; a name ending in .gz is unpacked on the way.

    Raises:
        DataError: the file cannot be read, or is not an idx file of bytes of that many axes.
    """
    return parse_idx(_read_bytes(path), path, dimensions)


def read_checked(path: Path, dimensions: int, published: SourceFile) -> NDArray[np.uint8]:
    """The array in a published idx file, after its checksum.

    Accepted is a file whose bytes have the published md5, or whose content, unpacked, has the md5
    of the published content (a file that was unpacked, or packed anew).

    Raises:
        DataError: as `read_idx`, and for a file that is not the published one.
    """
    packed = _read_bytes(path)
    if md5_of(packed) == published.md5:
        return parse_idx(packed, path, dimensions)
    values = parse_idx(packed, path, dimensions)
    if published.content_md5 is None or md5_of(_header(values) + values.tobytes()) != (
        published.content_md5
    ):
        raise DataError(
            f"{path} is not the published {published.name}: its md5 is {md5_of(packed)}, "
            f"published is {published.md5}; delete it and fetch it again"
        )
    return values


def parse_idx(packed: bytes, path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array in the bytes of an idx file; `path` names it and says if it is gzipped."""
    stream: IO[bytes] | gzip.GzipFile = BytesIO(packed)
    if path.suffix == ".gz":
        stream = gzip.GzipFile(fileobj=BytesIO(packed))
    try:
        shape = _read_shape(stream, path, dimensions)
        size = int(np.prod(shape, dtype=object))
        # One byte more than there should be: shows what lies beyond, and bounds what is unpacked.
        values = stream.read(size + 1)
    except (OSError, EOFError, zlib.error, OverflowError, MemoryError) as error:
        raise DataError(f"{path} is damaged: {error}; delete it and fetch it again") from error
    if len(values) != size:
        kind = "more" if len(values) > size else f"only {len(values)}"
        raise DataError(
            f"{path} is damaged: its header {list(shape)} announces {size} bytes, "
            f"it holds {kind}; delete it and fetch it again"
        )
    return np.frombuffer(bytearray(values), dtype=np.uint8).reshape(shape)


def _read_shape(stream: IO[bytes] | gzip.GzipFile, path: Path, dimensions: int) -> tuple[int, ...]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or not 1 <= magic[3] <= _MOST_DIMENSIONS:
        raise DataError(f"{path} is not an idx file: it starts with {magic.hex() or 'nothing'}")
    if magic[2] != _UNSIGNED_BYTE:
        raise DataError(f"{path} holds values of type 0x{magic[2]:02x}; bytes (0x08) are expected")
    if magic[3] != dimensions:
        raise DataError(f"{path} has {magic[3]} dimensions; {dimensions} are expected")
    header = stream.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise DataError(f"{path} is damaged: it ends inside its header; fetch it again")
    return struct.unpack(f">{dimensions}I", header)


def _header(values: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">4B{values.ndim}I", 0, 0, _UNSIGNED_BYTE, values.ndim, *values.shape)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
