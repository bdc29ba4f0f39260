"""New lines and facts in the files of runs, for a page that follows them."""

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcompass.errors import RunFolderError
from fedcompass.report.run_files import RunFiles

__all__ = ["Following", "Message"]

_AT_ONCE = 128 * 1024  # bytes of lines in one message: a page parses that in a few frames
_FILES = ("journal", "metrics")


@dataclass(frozen=True, slots=True)
class Message:
    """One message to a page; `place` says where to continue after it."""

    kind: str  # facts, lines, reset or done
    content: dict[str, Any]
    place: str


@dataclass(slots=True)
class _ReadUpTo:
    """How far a file was read: which file, so many bytes, and what the last ones were."""

    inode: int = 0
    offset: int = 0
    ending: int = 0

    def still_fits(self, path: Path) -> bool:
        """Whether the file still has the bytes read; a resumed run may have cut it."""
        if self.inode == 0:
            return True
        try:
            with path.open("rb") as file:
                same = os.fstat(file.fileno()).st_ino == self.inode
                return same and _ending(file.fileno(), self.offset) == self.ending
        except OSError:
            return False


class Following:
    """Follows the files of some runs from a place on.

    Args:
        runs: whose files.
        place: the `Message.place` of the last message that arrived. Otherwise, or if files were
            replaced or cut since, all messages are sent again.
    """

    def __init__(self, runs: Sequence[RunFiles], place: str | None = None) -> None:
        self._runs = runs
        known = _places(place, 2 * len(runs))
        self._begun = known is not None
        self._places = known or [_ReadUpTo() for _ in range(2 * len(runs))]
        self._stamps: list[tuple[int, ...] | None] = [None] * len(runs)

    def news(self) -> Iterator[Message]:
        """Everything there is by now, in messages of moderate size."""
        finished = all(run.finished for run in self._runs)  # before the lines: none comes after
        fits = (place.still_fits(self._path(i)) for i, place in enumerate(self._places))
        if not self._begun or not all(fits):
            self._places = [_ReadUpTo() for _ in self._places]
            self._begun = True
            yield self._message("reset", {})
        for number, run in enumerate(self._runs):
            yield from self._facts(number, run)
        for index in range(len(self._places)):
            yield from self._lines(index)
        if finished and None not in self._stamps:
            yield self._message("done", {})

    def _facts(self, number: int, run: RunFiles) -> Iterator[Message]:
        stamps = run.stamps()
        if stamps == self._stamps[number]:
            return
        try:
            facts = run.facts()
        except RunFolderError:
            self._stamps[number] = None  # half written by someone else: next time
            return
        self._stamps[number] = stamps
        yield self._message("facts", {"run": number, "facts": facts})

    def _lines(self, index: int) -> Iterator[Message]:
        place = self._places[index]
        try:
            file = self._path(index).open("rb")
        except OSError:
            return
        with file:
            place.inode = os.fstat(file.fileno()).st_ino
            while text := _whole_lines(file.fileno(), place.offset):
                place.offset += len(text)
                place.ending = _ending(file.fileno(), place.offset)
                content = {
                    "run": index // 2,
                    "file": _FILES[index % 2],
                    "text": text.decode("utf-8", errors="replace"),
                }
                yield self._message("lines", content)

    def _path(self, index: int) -> Path:
        run = self._runs[index // 2]
        return run.metrics if index % 2 else run.journal

    def _message(self, kind: str, content: dict[str, Any]) -> Message:
        place = "-".join(f"{place.inode}.{place.offset}.{place.ending}" for place in self._places)
        return Message(kind, content, place)


def _whole_lines(file: int, offset: int) -> bytes:
    """The next lines that are complete; one longer than a message is read whole."""
    size = _AT_ONCE
    while True:
        text = os.pread(file, size, offset)
        whole = text.rfind(b"\n") + 1
        if whole or len(text) < size:
            return text[:whole]
        size *= 2


def _ending(file: int, offset: int) -> int:
    """A check sum of the last bytes before a place; -1 if the file does not reach it."""
    start = max(0, offset - 256)
    last = os.pread(file, offset - start, start)
    return zlib.crc32(last) if len(last) == offset - start else -1


def _places(text: str | None, count: int) -> list[_ReadUpTo] | None:
    try:
        pairs = [part.split(".") for part in (text or "").split("-")]
        places = [_ReadUpTo(int(inode), int(offset), int(crc)) for inode, offset, crc in pairs]
    except ValueError:
        return None
    right = len(places) == count and all(p.inode >= 0 and p.offset >= 0 for p in places)
    return places if right else None
