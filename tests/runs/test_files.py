"""One atomic write and one lock, whoever uses them."""

from contextlib import suppress
from pathlib import Path

import pytest

from fedcompass.errors import RunFolderError
from fedcompass.runs.files import FolderLock, LineFile, replacing, write_whole


def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_whole(path, "old")
    with suppress(ZeroDivisionError), replacing(path) as beside:
        beside.write_text("half of")
        assert path.read_text() == "old"
        raise ZeroDivisionError
    assert path.read_text() == "old"
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"a/b cannot be written: No such file .*; free some"):
        write_whole(tmp_path / "a" / "b", "text")


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    first = FolderLock(tmp_path)
    with pytest.raises(BlockingIOError):
        FolderLock(tmp_path)
    first.release()
    first.release()  # no harm
    with FolderLock(tmp_path, wait=True), pytest.raises(BlockingIOError):
        FolderLock(tmp_path)
    FolderLock(tmp_path).release()
    with pytest.raises(FileNotFoundError):
        FolderLock(tmp_path / "nowhere")


def test_a_last_line_that_a_crash_cut_off_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"a": 1}\n{"a": 2')
    lines = LineFile(path)
    lines.append([{"a": 3}])
    assert lines.records() == [{"a": 1}, {"a": 3}]
