"""A file that comes in pieces: goes on after an interruption, whole only with the right digest."""

import asyncio
import hashlib
import os
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from fedcompass.deployment.wire.decoding import PIECE_BYTES
from fedcompass.errors import WireError
from fedcompass.runs.files import append_whole, force

__all__ = ["ArrivingFile", "OneBehind", "Pieces", "digest_of", "write_hashed"]

Pieces: TypeAlias = Iterable[bytes | memoryview]
"""The bytes of a file, one after the other; of any length each."""


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_hashed(path: Path, pieces: Pieces) -> tuple[str, int]:
    """Write a file, and find its SHA-256 at the same time in a second thread; and its size.

    Raises:
        OSError: the disk.
    """
    found = hashlib.sha256()
    with path.open("wb") as file, ThreadPoolExecutor(1) as beside:
        for piece in pieces:
            beside.submit(found.update, piece)
            file.write(piece)
        size = file.tell()
    return found.hexdigest(), size  # the second thread has ended


class ArrivingFile:
    """The part of a file that is here; what a crash or a broken connection left is kept.

    Blocks on the disk: call it in a thread.

    `part` is where it is until it is whole.

    Args:
        path: where the whole file will be.
        size: of the whole file.
        digest: its SHA-256.

    Raises:
        OSError: the disk.
    """

    def __init__(self, path: Path, size: int, digest: str) -> None:
        self.path, self.size, self.digest = path, size, digest
        self.part = path.with_name(f"{path.name}.{digest[:16]}.part")
        self._hash = hashlib.sha256()
        self.offset = 0  # bytes that are here
        if path.exists() and not self.part.exists():
            path.replace(self.part)  # it was whole once: whoever wanted it has not used it
        self._take_up()

    def _take_up(self) -> None:
        with self.part.open("a+b") as file:
            if os.fstat(file.fileno()).st_size > self.size:
                file.truncate(0)
            file.seek(0)
            while piece := file.read(PIECE_BYTES):
                self._hash.update(piece)
                self.offset += len(piece)

    def add(self, piece: bytes) -> None:
        """Append a piece.

        Raises:
            WireError: there is more than the whole; nothing of it was written.
        """
        if self.offset + len(piece) > self.size:
            raise WireError(f"more than the {self.size} bytes that were announced came")
        with self.part.open("r+b") as file:  # none is left open when a call is cancelled
            file.seek(self.offset)
            append_whole(file.fileno(), piece)
        self._hash.update(piece)
        self.offset += len(piece)

    def force(self) -> None:
        """Wait until what has been added is on the disk."""
        force(self.part)

    def finish(self) -> Path:
        """The whole file, in its place.

        Raises:
            WireError: it is not whole (then it can go on), or is not what was announced (then
                nothing of it is kept).
        """
        if self.offset < self.size:
            raise WireError(f"{self.offset} of {self.size} bytes came; send the rest")
        if self._hash.hexdigest() != self.digest:
            self.part.unlink()
            raise WireError("the bytes that came do not have the digest that was announced")
        return self.part.replace(self.path)


class OneBehind:
    """Does one work after the other beside the caller: a piece is written while the next comes in.

    The caller is at most one piece ahead. Where the block raises or is cancelled, the work under
    way is waited for, and its own error gives way to that one.
    """

    def __init__(self) -> None:
        self._under_way: asyncio.Task[None] | None = None

    async def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin a work once the one before it is done, whose error is raised."""
        before, self._under_way = self._under_way, None
        try:
            if before is not None:
                await before
        except BaseException:
            work.close()
            raise
        self._under_way = asyncio.create_task(work)

    async def __aenter__(self) -> "OneBehind":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._under_way is None:
            return
        await asyncio.wait([self._under_way])
        if error is None:
            self._under_way.result()
        else:
            self._under_way.exception()  # it is known: nobody asks for it
