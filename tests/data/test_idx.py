import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from fedcompass.data.idx import read_checked, read_idx
from fedcompass.data.sources import SourceFile
from fedcompass.errors import DataError

HEADER = struct.pack(">4B3I", 0, 0, 8, 3, 2, 2, 3)
PLAIN = HEADER + bytes(range(12))
PACKED = gzip.compress(PLAIN, mtime=0)


def stored(folder: Path, content: bytes, name: str = "images-idx3-ubyte") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("name", "content"), [("plain", PLAIN), ("packed.gz", PACKED)])
def test_an_idx_file_is_read_plain_or_gzipped(tmp_path: Path, name: str, content: bytes) -> None:
    values = read_idx(stored(tmp_path, content, name), dimensions=3)
    assert np.array_equal(values, np.arange(12, dtype=np.uint8).reshape(2, 2, 3))
    assert values.flags.writeable


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an idx file: it starts with nothing"),
        (b"\x1f\x8b\x08\x00", "is not an idx file: it starts with 1f8b0800"),
        (b"\0\0\x0d\x03" + PLAIN[4:], "holds values of type 0x0d"),
        (struct.pack(">4BI", 0, 0, 8, 1, 1) + b"\0", "has 1 dimensions; 3 are expected"),
        (HEADER[:9], "ends inside its header"),
        (PLAIN[:-1], r"\[2, 2, 3\] announces 12 bytes, it holds only 11"),
        (PLAIN + b"\0", "announces 12 bytes, it holds more"),
        (HEADER[:4] + b"\xff" * 12, "is damaged"),
    ],
)
def test_a_defect_is_one_line_that_names_the_file(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = stored(tmp_path, content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path, dimensions=3)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        PACKED[:-6],
        PACKED[:12],
        PACKED[:-8] + b"\0" * 8,
        PACKED[:12] + b"\xff" + PACKED[13:],
        PACKED + b"tail",
    ],
    ids=["not-gzip", "cut", "cut-early", "wrong-crc", "flipped", "tail"],
)
def test_a_damaged_gzip_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = stored(tmp_path, content, "images-idx3-ubyte.gz")
    with pytest.raises(DataError, match="is damaged"):
        read_idx(path, dimensions=3)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent.gz cannot be read: No such file"):
        read_idx(tmp_path / "absent.gz", dimensions=3)


def test_a_published_file_packed_anew_or_unpacked_is_known_by_its_content(tmp_path: Path) -> None:
    published = SourceFile("x.gz", md5(PACKED), md5(PLAIN))
    anew = gzip.compress(PLAIN, compresslevel=1, mtime=99)
    for name, content in (("x.gz", PACKED), ("y.gz", anew), ("x", PLAIN)):
        assert read_checked(stored(tmp_path, content, name), 3, published).shape == (2, 2, 3)


@pytest.mark.parametrize("content_md5", [None, "0" * 32])
def test_a_file_with_another_checksum_is_refused(tmp_path: Path, content_md5: str | None) -> None:
    published = SourceFile("x.gz", "1" * 32, content_md5)
    with pytest.raises(DataError, match=r"is not the published x.gz: its md5 is .*fetch it again"):
        read_checked(stored(tmp_path, PACKED, "x.gz"), 3, published)


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()
