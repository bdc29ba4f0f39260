import errno
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fedcompass.errors import CheckpointError
from fedcompass.runs.checkpoint import FORMAT, load_checkpoint, save_checkpoint

TENSORS = {
    "model.trainable": torch.tensor([1.0, -0.0, 1e-40, 3.4e38]),
    "model.averaged": torch.zeros(0),
    "model.counted": torch.tensor([2**62, -1]),
    "buffer.0.trainable": torch.tensor([1.5, 2.5], dtype=torch.float64),
}
FACTS = {"version": 7, "nested": {"times": [0.1, 1 / 3], "name": "é"}, "none": None}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.safetensors"


def test_what_is_saved_comes_back_to_the_bit(path: Path) -> None:
    save_checkpoint(path, TENSORS, FACTS)
    loaded = load_checkpoint(path)
    assert loaded.facts == FACTS
    assert list(loaded.tensors) == sorted(TENSORS)
    for name, tensor in TENSORS.items():
        assert loaded.tensors[name].dtype == tensor.dtype
        assert loaded.tensors[name].numpy().tobytes() == tensor.numpy().tobytes()


def test_the_same_state_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    save_checkpoint(path, TENSORS, FACTS)
    save_checkpoint(tmp_path / "again", TENSORS, FACTS)
    assert path.read_bytes() == (tmp_path / "again").read_bytes()


def test_tensors_that_do_not_lie_in_one_piece_are_saved_as_what_they_show(path: Path) -> None:
    save_checkpoint(path, {"every second": torch.arange(6)[::2]}, {})
    assert load_checkpoint(path).tensors["every second"].tolist() == [0, 2, 4]


def test_a_loaded_checkpoint_does_not_change_when_the_file_is_replaced(path: Path) -> None:
    save_checkpoint(path, {"x": torch.zeros(1000)}, {})
    loaded = load_checkpoint(path)
    save_checkpoint(path, {"x": torch.ones(1000)}, {})
    assert loaded.tensors["x"].sum() == 0
    assert load_checkpoint(path).tensors["x"].sum() == 1000


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_file_and_nothing_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    save_checkpoint(path, TENSORS, FACTS)
    before = path.read_bytes()
    monkeypatch.setattr(os, function, full)
    with pytest.raises(CheckpointError, match=r"could not be written: .*No space left") as caught:
        save_checkpoint(path, {"model.trainable": torch.ones(5)}, {})
    assert "\n" not in str(caught.value)
    assert "The checkpoint before it is untouched" in str(caught.value)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_halfway_through_the_bytes_leaves_nothing_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(path, TENSORS, FACTS)
    before = path.read_bytes()

    def half(_tensors: object, target: Path, _metadata: object) -> None:
        target.write_bytes(b"half of it")
        full()

    monkeypatch.setattr("fedcompass.runs.checkpoint.save_file", half)
    with pytest.raises(CheckpointError, match="No space left"):
        save_checkpoint(path, {}, {})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_even_a_bug_of_ours_leaves_the_old_file_and_nothing_beside_it(path: Path) -> None:
    save_checkpoint(path, TENSORS, FACTS)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save_checkpoint(path, TENSORS, {"not json": object()})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_what_a_killed_process_left_beside_it_is_taken_over(path: Path) -> None:
    leftover = path.with_name(f".{path.name}.partial")
    leftover.write_bytes(b"half of it")
    save_checkpoint(path, TENSORS, FACTS)
    assert load_checkpoint(path).facts == FACTS
    assert list(path.parent.iterdir()) == [path]


def test_a_file_system_that_cannot_sync_a_folder_does_not_matter(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = os.fsync

    def only_files(handle: int) -> None:
        if not Path(f"/proc/self/fd/{handle}").resolve().is_file():
            raise OSError(errno.EINVAL, "Invalid argument")
        synced(handle)

    monkeypatch.setattr(os, "fsync", only_files)
    save_checkpoint(path, TENSORS, FACTS)
    assert load_checkpoint(path).facts == FACTS


def test_a_folder_that_is_not_there_is_one_clear_line(path: Path) -> None:
    for place in (path / "checkpoint", path.parent / "no" / "such"):
        path.touch()
        with pytest.raises(CheckpointError, match="could not be written") as caught:
            save_checkpoint(place, TENSORS, FACTS)
        assert "\n" not in str(caught.value)


def test_a_missing_checkpoint_is_one_clear_line(path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not there; nothing to resume from"):
        load_checkpoint(path)
    with pytest.raises(CheckpointError, match="is not there"):
        load_checkpoint(path.parent)


def test_a_damaged_file_is_one_clear_line(path: Path) -> None:
    save_checkpoint(path, TENSORS, FACTS)
    whole = path.read_bytes()
    for damaged in (b"", b"hello", whole[:50], whole[:-1], whole[8:], b"\xff" * 100):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="cannot be read") as caught:
            load_checkpoint(path)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)


def test_a_foreign_safetensors_file_is_one_clear_line(path: Path) -> None:
    for metadata in (None, {"format": "pt"}):
        save_file({"x": torch.zeros(1)}, path, metadata)
        with pytest.raises(CheckpointError, match="is not a fedcompass checkpoint; give one"):
            load_checkpoint(path)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (json.dumps({"format": FORMAT + 1}), "has checkpoint format 2; this version reads 1"),
        (json.dumps({}), "has checkpoint format None; this version reads 1"),
        ("[1, 2]", "cannot be read"),
        ("17", "cannot be read"),
        ("{broken", "cannot be read"),
    ],
)
def test_facts_of_another_format_or_none_are_one_clear_line(
    path: Path, metadata: str, message: str
) -> None:
    save_file({"x": torch.zeros(1)}, path, {"fedcompass": metadata})
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)


def test_facts_cannot_claim_another_format(path: Path) -> None:
    save_checkpoint(path, {}, {"format": 99})
    assert load_checkpoint(path).facts == {}


def test_any_changed_byte_is_found(path: Path) -> None:
    save_checkpoint(path, TENSORS, FACTS)
    whole = path.read_bytes()
    unnoticed = []
    for place, byte in enumerate(whole):
        path.write_bytes(whole[:place] + bytes([byte ^ 1]) + whole[place + 1 :])
        with suppress(CheckpointError):
            load_checkpoint(path)
            unnoticed.append(place)
    name = whole.index(b"crc")
    assert set(unnoticed) <= set(range(name, name + 3))  # it counts as one from before checksums


def test_a_file_from_before_there_were_checksums_is_read(path: Path) -> None:
    save_file(TENSORS, path, {"fedcompass": json.dumps({**FACTS, "format": FORMAT})})
    assert load_checkpoint(path).facts == FACTS
