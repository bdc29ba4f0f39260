"""Files that a crash leaves whole: written beside and renamed, or appended by lines; a lock."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from fedcompass.errors import RunFolderError
from fedcompass.finite_json import json_text

__all__ = [
    "FolderLock",
    "GrowingFile",
    "LineFile",
    "append_whole",
    "force",
    "in_use",
    "locked",
    "make_folder",
    "move",
    "replacing",
    "write_whole",
]


class FolderLock:
    """Keeps other processes out of a folder until `release`; a process that dies lets go.

    Args:
        folder: which is there.
        wait: for another process that has it.

    Raises:
        BlockingIOError: another process has it.
        OSError: it is not there, or is another user's.
    """

    def __init__(self, folder: Path, *, wait: bool = False) -> None:
        self._handle: int | None = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let others have the folder."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> "FolderLock":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def in_use(folder: Path) -> bool:
    """Whether a process has a folder's lock now."""
    try:
        FolderLock(folder).release()
    except BlockingIOError:
        return True
    return False


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """Make a run's folder and those above it.

    Raises:
        RunFolderError: it cannot be made, or is there already.
    """
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be made: {error.strerror}; choose another folder"
        ) from None


@contextmanager
def locked(handle: int) -> Iterator[None]:
    """Wait until no other process has an open file to itself, and keep it so meanwhile."""
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file that is, after a crash, absent, the old one or the whole new one.

    It is in place when the block ends; where that raises, the old file stays.
    """
    beside = path.with_name(f".{path.name}.partial")  # one name, so that crashes leave one at most
    try:
        yield beside
        force(beside)
        beside.replace(path)
    finally:
        with suppress(OSError):  # where there is no such folder there is nothing to remove
            beside.unlink(missing_ok=True)
    with suppress(OSError):  # some file systems cannot sync a folder; the file is in place
        force(path.parent)


def write_whole(path: Path, text: str) -> None:
    """Replace a text file by `replacing`.

    Raises:
        RunFolderError: it cannot be written; an old one is still there.
    """
    try:
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _failure(path, error) from None


def append_whole(handle: int, content: bytes, *, durable: bool = False) -> None:
    """Add bytes to the end of an open file: all of them, or none and an error.

    A raw write may come back short, above all on a disk that has just become full, and says so by
    nothing but its result. What was half written is cut off.

    Args:
        handle: of a file at whose end the next write goes.
        content: what to add.
        durable: wait for the disk.

    Raises:
        OSError: the disk; the file is as it was.
    """
    before, rest = os.fstat(handle).st_size, memoryview(content)
    try:
        while rest:
            written = os.write(handle, rest)
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            rest = rest[written:]
        if durable:
            os.fsync(handle)
    except BaseException:
        with suppress(OSError):
            os.ftruncate(handle, before)
        raise


def move(source: Path, target: Path) -> None:
    """Give a file another name, or on another disk copy it; never by half.

    Raises:
        OSError: the disk; `source` is still there.
    """
    try:
        source.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # Not shutil.move: its sendfile takes a call that moved nothing for the end of the file.
        with source.open("rb") as whole, target.open("wb") as copy:
            shutil.copyfileobj(whole, copy)
        source.unlink()


def force(path: Path) -> None:
    """Wait until a file's content, or a folder's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class LineFile:
    """A file of JSON lines that grows; a last line that a crash cut off is removed when opened.

    Args:
        path: the file, made when it is not there.
        durable: wait for the disk after every `append`.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self._path, self._durable = path, durable
        try:
            path.touch()
            whole = path.read_bytes()
            if not whole.endswith(b"\n"):
                os.truncate(path, whole.rfind(b"\n") + 1)
        except OSError as error:
            raise _failure(path, error) from None

    def records(self) -> list[dict[str, Any]]:
        """All lines; one that is damaged is left out."""
        return list(_records(self._path.read_bytes()))

    def append(self, records: list[dict[str, Any]]) -> None:
        """Add lines, all or none.

        Raises:
            RunFolderError: they cannot be written (a full disk, no permission).
        """
        if not records:
            return
        lines = "".join(json_text(record) + "\n" for record in records).encode()
        try:
            with self._path.open("ab") as file:
                append_whole(file.fileno(), lines, durable=self._durable)
        except OSError as error:
            raise _failure(self._path, error) from None

    def sync(self) -> None:
        """Wait until all lines are on the disk.

        Raises:
            RunFolderError: they cannot be written.
        """
        try:
            force(self._path)
        except OSError as error:
            raise _failure(self._path, error) from None


class GrowingFile:
    """Reads JSON lines that another process appends; a line cut off so far is left for later."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def new_records(self) -> list[dict[str, Any]]:
        """Whole lines that were not read before; one that is damaged is left out."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except OSError:  # not there yet
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return list(_records(whole))


def _records(lines: bytes) -> Iterator[dict[str, Any]]:
    for line in lines.splitlines():
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict):
                yield record


def _failure(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"{path} cannot be written: {error.strerror}; free some space or mend its permissions, "
        "then resume"
    )
