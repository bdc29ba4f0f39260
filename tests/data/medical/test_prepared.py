import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcompass.data.medical.prepared import Preparation, RowKind, cache_for, prepare, remembered
from fedcompass.errors import DataError

ROWS = 150


class Maker:
    """Makes row after row, and fails at one if told to."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.made: list[int] = []

    def __call__(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        if row == self.fails_at:
            raise DataError(f"file {row} is damaged")
        self.made.append(row)
        return np.full((2, 3), row, np.uint8), np.array(row * 0.5, np.float32)


def preparation(make: Maker) -> Preparation:
    arrays = {"inputs": RowKind((2, 3), "uint8"), "targets": RowKind((), "float32")}
    return Preparation(name="train", rows=ROWS, arrays=arrays, make=make)


def test_what_is_prepared_once_is_mapped_the_next_time(tmp_path: Path) -> None:
    maker, seen = Maker(), []
    arrays = prepare(tmp_path, preparation(maker), lambda *told: seen.append(told))
    assert arrays["inputs"].shape == (ROWS, 2, 3)
    assert arrays["inputs"][:, 0, 0].tolist() == list(range(ROWS))
    assert arrays["targets"].tolist() == [row * 0.5 for row in range(ROWS)]
    assert seen == [("train", 64, ROWS), ("train", 128, ROWS), ("train", ROWS, ROWS)]
    again = Maker(fails_at=0)
    torch.testing.assert_close(prepare(tmp_path, preparation(again)), arrays)
    assert again.made == []


def test_a_stopped_preparation_goes_on_where_it_was(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="file 100 is damaged"):
        prepare(tmp_path, preparation(Maker(fails_at=100)))
    file = tmp_path / "train-inputs.bin"
    file.write_bytes(file.read_bytes() + b"half")  # as a crash leaves it
    maker = Maker()
    arrays = prepare(tmp_path, preparation(maker))
    assert min(maker.made) == 100
    assert arrays["inputs"][:, 1, 2].tolist() == list(range(ROWS))
    assert arrays["targets"][101] == 50.5


def test_nothing_that_is_written_to_a_mapped_tensor_reaches_the_file(tmp_path: Path) -> None:
    prepare(tmp_path, preparation(Maker()))["inputs"].zero_()
    assert prepare(tmp_path, preparation(Maker()))["inputs"][5, 0, 0] == 5


def test_a_changed_file_or_method_has_a_cache_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "a.jpg"
    file.write_bytes(b"1")
    first = cache_for("x", {"edge": 150}, [file])
    assert first == cache_for("x", {"edge": 150}, [file])
    assert first != cache_for("x", {"edge": 224}, [file])
    os.utime(file, ns=(1, 1))
    assert first != cache_for("x", {"edge": 150}, [file])
    with pytest.raises(DataError, match=r"b\.jpg cannot be read: No such file"):
        cache_for("x", {}, [tmp_path / "b.jpg"])


def test_a_slow_number_is_found_out_once(tmp_path: Path) -> None:
    assert remembered(tmp_path / "new", "edge", lambda: 150) == 150
    assert remembered(tmp_path / "new", "edge", lambda: 1 // 0) == 150


def test_a_cache_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot be written to: Not a directory; free some space"):
        prepare(tmp_path / "file" / "cache", preparation(Maker()))
