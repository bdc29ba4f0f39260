"""One atomic write and one lock, whoever uses them."""

import ast
import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.deployment.faulty_disk import no_file_longer_than

import fedcompass
from fedcompass.errors import RunFolderError
from fedcompass.runs.files import FolderLock, LineFile, append_whole, move, replacing, write_whole

SOURCE = Path(fedcompass.__file__).parent


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


@pytest.mark.parametrize("durable", [False, True])
def test_lines_that_do_not_fit_are_not_there_at_all(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "audit.jsonl"
    lines = LineFile(path, durable=durable)
    lines.append([{"a": 1}])
    with (
        no_file_longer_than(path.stat().st_size + 5),
        pytest.raises(RunFolderError, match="free some space"),
    ):
        lines.append([{"a": 2}, {"a": 3}])
    assert path.read_text() == '{"a": 1}\n'
    lines.append([{"a": 4}])
    assert lines.records() == [{"a": 1}, {"a": 4}]


@pytest.mark.parametrize("last", [0, None], ids=["nothing more is taken", "an error"])
def test_a_write_that_comes_back_short_goes_on_and_what_is_half_written_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int | None
) -> None:
    path, real, room = tmp_path / "file", os.write, 10

    def short(handle: int, content: memoryview) -> int:
        nonlocal room
        if room == 0 and last is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = min(3, room)
        room -= taken
        return real(handle, content[:taken]) if taken else 0

    monkeypatch.setattr(os, "write", short)
    with path.open("wb") as file:
        append_whole(file.fileno(), b"1234567")
        with pytest.raises(OSError, match="No space left"):
            append_whole(file.fileno(), b"89abcde")
    assert path.read_bytes() == b"1234567"


def test_a_file_is_moved_to_another_disk_whole_or_not_at_all(tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system")
    source, target = tmp_path / "upload", shared / f"fedcompass-{os.getpid()}"
    source.write_bytes(os.urandom(300_000))
    whole = source.read_bytes()
    try:
        with no_file_longer_than(200_001), pytest.raises(OSError, match="File too large"):
            move(source, target)
        assert source.read_bytes() == whole
        move(source, target)
        assert target.read_bytes() == whole
        assert not source.exists()
    finally:
        target.unlink(missing_ok=True)


def calls_that_may_write_by_half(tree: ast.AST) -> Iterator[str]:
    """Writes whose result says how much was written; Python's buffered files write all or raise."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            call = ast.unparse(node)
            raw = call.startswith(("os.write(", "os.pwrite(", "os.writev(", "os.sendfile("))
            copied = call.startswith(("shutil.move(", "os.copy_file_range("))
            unbuffered = "buffering=0" in call and "open('rb'" not in call
            if raw or copied or unbuffered:
                yield call


def test_nothing_else_in_the_tree_writes_without_looking_how_much_was_written() -> None:
    found = {
        (str(path.relative_to(SOURCE)), call)
        for path in SOURCE.rglob("*.py")
        for call in calls_that_may_write_by_half(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == {
        ("runs/files.py", "os.write(handle, rest)"),
        ("cli/interrupts.py", "os.write(2, _STOPPING)"),  # to a terminal, from a signal's handler
    }


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
