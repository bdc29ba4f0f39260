"""A disk that fails, or a server that dies, at a chosen write."""

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """As on a disk that is full at this byte: the write up to it comes back short."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Killed(BaseException):
    """The server is gone: nothing after this happens to its files."""


class FaultyDisk:
    """Counts everything that changes files; at one of these moments it does something else.

    Moments: a file is appended to, synced, renamed or removed, tensors are written, a message is
    pushed. What fails while it is written is half written.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.moments = 0
        self.fail_at = 0  # 0: never
        self._sure = 0  # bytes of the journal that are on the disk whatever happens
        self._fault: Callable[[str], None] = lambda _: None
        self._patch(monkeypatch)

    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "fsync", self._sync)
        monkeypatch.setattr(os, "write", self._half_appended(os.write))
        for name in ("replace", "unlink"):
            real = getattr(Path, name)
            monkeypatch.setattr(Path, name, self._wrapped(name, real))
        half_written = self._half_written(save_file)
        monkeypatch.setattr("fedcompass.runs.checkpoint.save_file", half_written)

    def _sync(self, handle: int) -> None:
        self.moment("sync")
        if Path(f"/proc/self/fd/{handle}").readlink().name == "journal.jsonl":
            self._sure = os.fstat(handle).st_size

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self.moment(name)
            return real(*arguments, **options)

        return wrapped

    def _half_written(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(tensors: Any, path: Path, *rest: Any) -> Any:
            if self.moments + 1 == self.fail_at:
                path.write_bytes(b"half of it")
            self.moment("save")
            return real(tensors, path, *rest)

        return wrapped

    def _half_appended(self, real: Callable[[int, Any], int]) -> Callable[[int, Any], int]:
        def wrapped(handle: int, content: Any) -> int:
            if self.moments + 1 == self.fail_at:
                real(handle, memoryview(content)[: len(content) // 2])
            self.moment("write")
            return real(handle, content)

        return wrapped

    def moment(self, what: str) -> None:
        self.moments += 1
        if self.moments == self.fail_at:
            self.fail_at = 0
            self._fault(what)

    def fill_up(self, at: int) -> None:
        """Be full at this moment, and have room again afterwards."""

        def full(what: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        self.moments, self.fail_at, self._fault = 0, at, full

    def kill(self, at: int, folder: Path, left: Path, torn: float = 1.0) -> None:
        """End the server at this moment; `left` is what a restarted machine finds.

        torn: how much of the journal's last lines got to the disk.
        """
        journal = folder / "journal.jsonl"
        self._sure = journal.stat().st_size if journal.exists() else 0

        def die(what: str) -> None:
            shutil.copytree(folder, left)
            torn_journal = left / "journal.jsonl"
            if torn_journal.exists():
                size = torn_journal.stat().st_size
                os.truncate(torn_journal, self._sure + round(torn * (size - self._sure)))
            raise Killed

        self.moments, self.fail_at, self._fault = 0, at, die
