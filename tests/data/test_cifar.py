import dataclasses
import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcompass.data import cifar
from fedcompass.data.cifar import BINARY, PYTHON, Version
from fedcompass.data.restricted_pickle import UnsafePickle, read_byte_arrays
from fedcompass.errors import DataError

RECORDS = 3


def pixels(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).integers(0, 256, (RECORDS, 3072), dtype=np.uint8)


def labels(batch: int) -> list[int]:
    return [(batch + i) % 10 for i in range(RECORDS)]


def binary_batch(batch: int) -> bytes:
    records = np.concatenate([np.array(labels(batch), np.uint8)[:, None], pixels(batch)], axis=1)
    return records.tobytes()


def python_batch(batch: int) -> bytes:
    """A pickle opcode by opcode as Python 2 wrote the published ones (protocol 2, byte strings)."""
    values = pixels(batch).tobytes()
    listed = b"".join(b"K" + bytes([label]) for label in labels(batch))
    return (
        b"\x80\x02}("
        + (b"U\x06labels](" + listed + b"e")
        + b"U\x04data"
        + b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        + (b"(K\x01K" + bytes([RECORDS]) + b"M\x00\x0c\x86")
        + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        + b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + (b"\x89T" + struct.pack("<i", len(values)) + values + b"tb")
        + b"u."
    )


def with_md5s(version: Version, contents: dict[str, bytes]) -> Version:
    """The version as if these contents were the published ones."""
    sums = {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}
    return dataclasses.replace(version, batches=sums)


def contents_of(version: Version) -> dict[str, bytes]:
    make = binary_batch if version is BINARY else python_batch
    return {name: make(number) for number, name in enumerate(version.batches)}


def as_folder(place: Path, version: Version, contents: dict[str, bytes]) -> Path:
    folder = place / version.folder
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def as_archive(place: Path, version: Version, contents: dict[str, bytes]) -> Path:
    path = place / version.archive
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{version.folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("lay_out", [as_folder, as_archive])
@pytest.mark.parametrize("version", [BINARY, PYTHON], ids=["binary", "python"])
def test_both_versions_as_folder_or_archive_give_the_same_arrays(
    tmp_path: Path,
    version: Version,
    lay_out: Callable[[Path, Version, dict[str, bytes]], Path],
) -> None:
    contents = contents_of(version)
    lay_out(tmp_path, version, contents)
    found = cifar.find(tmp_path)
    assert found is not None
    assert found[1] is version
    images, train_labels, test_images, test_labels = cifar.read(
        found[0], with_md5s(version, contents)
    )
    expected = np.concatenate([pixels(batch) for batch in range(5)]).reshape(-1, 3, 32, 32)
    assert np.array_equal(images, expected)
    assert train_labels.tolist() == [label for batch in range(5) for label in labels(batch)]
    assert np.array_equal(test_images, pixels(5).reshape(-1, 3, 32, 32))
    assert test_labels.tolist() == labels(5)


def test_a_batch_that_is_not_the_published_one_is_refused(tmp_path: Path) -> None:
    place = as_folder(tmp_path, BINARY, contents_of(BINARY))
    with pytest.raises(
        DataError, match=r"data_batch_1.bin in .* is not the published one: its md5"
    ):
        cifar.read(place, BINARY)


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    contents = contents_of(BINARY)
    version = with_md5s(BINARY, contents)
    del contents["test_batch.bin"]
    place = as_folder(tmp_path, BINARY, contents)
    with pytest.raises(DataError, match=r"has no test_batch.bin; fetch the dataset again"):
        cifar.read(place, version)


@pytest.mark.parametrize("keep", [0, 100, 0.5])
def test_a_cut_or_empty_archive_is_damaged(tmp_path: Path, keep: float) -> None:
    contents = contents_of(BINARY)
    path = as_archive(tmp_path, BINARY, contents)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if keep < 1 else int(keep)])
    with pytest.raises(DataError, match=r"is damaged: .*fetch it again"):
        cifar.read(path, with_md5s(BINARY, contents))


def test_links_and_paths_that_lead_outside_an_archive_are_never_followed(tmp_path: Path) -> None:
    contents = contents_of(BINARY)
    secret = tmp_path / "secret"
    secret.write_bytes(contents["data_batch_1.bin"])
    path = tmp_path / BINARY.archive
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        archive.addfile(link)
        outside = tarfile.TarInfo("../../escaped")
        outside.size = 4
        archive.addfile(outside, io.BytesIO(b"evil"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=r"has no data_batch_1.bin"):
        cifar.read(path, with_md5s(BINARY, contents))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("version", "content", "message"),
    [
        (BINARY, b"x" * 3072, "3072 bytes are not whole records of 3073"),
        (BINARY, b"", "0 bytes are not whole records"),
        (
            PYTHON,
            pickle.dumps({"labels": [1]}, 2),
            "'data' is not an array of 3072 bytes per image",
        ),
        (PYTHON, python_batch(0).replace(b"labels", b"Labels"), "'labels' is not a list"),
        (PYTHON, python_batch(0).replace(b"](K\x00", b"](N", 1), "'labels' is not a list"),
        (PYTHON, python_batch(0).replace(b"](K\x00", b"](", 1), "has 3 images and 2 labels"),
        (PYTHON, b"cos\nsystem\n(S'true'\ntR.", r"it names (os|posix|nt)\.system"),
    ],
)
def test_a_batch_that_is_no_batch_is_one_clear_line(
    tmp_path: Path, version: Version, content: bytes, message: str
) -> None:
    contents = contents_of(version)
    contents[next(iter(contents))] = content
    place = as_folder(tmp_path, version, contents)
    with pytest.raises(DataError, match=message):
        cifar.read(place, with_md5s(version, contents))


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(print),
        pickle.dumps(np.dtype),
        pickle.dumps({"x": Path("x")}),
        pickle.dumps({"data": np.zeros(2, dtype=np.float32)}, 2),
        pickle.dumps({"data": np.array([print], dtype=object)}, 2),
        pickle.dumps([1, 2]),
        b"\x80\x04P1\n.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"garbage",
        b"",
        python_batch(0)[:-4],
        python_batch(0).replace(b"K\x03M\x00\x0c", b"K\x04M\x00\x0c"),
    ],
)
def test_a_pickle_that_holds_more_than_byte_arrays_is_refused_unrun(content: bytes) -> None:
    with pytest.raises(UnsafePickle):
        read_byte_arrays(content)


def test_a_pickle_written_by_todays_numpy_is_read_too() -> None:
    values = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert np.array_equal(read_byte_arrays(pickle.dumps({"data": values}, 3))["data"], values)


def test_the_real_cifar_10_has_its_published_counts(real_cifar: Path) -> None:
    from fedcompass.data.catalogue import load

    dataset = load("cifar10", real_cifar)
    assert dataset.train_inputs.shape == (50_000, 3, 32, 32)
    assert dataset.test_inputs.shape == (10_000, 3, 32, 32)
    assert torch.bincount(dataset.train_targets).tolist() == [5_000] * 10
    assert torch.bincount(dataset.test_targets).tolist() == [1_000] * 10
    pixel_mean = dataset.train_inputs.float().mean((0, 2, 3)) / 255
    torch.testing.assert_close(pixel_mean, torch.tensor(dataset.mean), rtol=0, atol=5e-4)
