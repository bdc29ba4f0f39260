"""A run's journal: JSON lines, a header and then one line for every event and command.

The lines carry no wall-clock time, so the same run writes the same bytes. Each ends with "crc", the
CRC-32 of everything in the file before it: a line that was changed, lost or moved is noticed.
"""

import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from fedcompass.errors import JournalError
from fedcompass.runs.codec import command_to_json, event_to_json
from fedcompass.scheduling.commands import Command
from fedcompass.scheduling.events import Event
from fedcompass.vocabulary import Seconds

__all__ = [
    "SCHEMA",
    "FileJournal",
    "Journal",
    "Line",
    "NoJournal",
    "Tee",
    "holds_events",
    "latest_time",
    "lines_after",
    "read_journal",
    "read_lines",
]

SCHEMA = 1
"""Rises when a line's meaning changes."""

_CRC = re.compile(rb',"crc":(\d+)}\n\Z')
_AT = re.compile(rb'"at":([0-9.e+-]+)[,}]')
_AT_ONCE = 1 << 20  # bytes
_TAIL = 1 << 14  # bytes that surely hold the latest time


class Journal(Protocol):
    """Takes down what happens in a run, in order."""

    def event(self, event: Event, **notes: Any) -> None:
        """An event was taken in; its commands follow.

        Notes are facts about how it came, for people; what is kept to be replayed has none but
        `privacy`: what the client says of its privacy budget (epsilon, delta, why it left).
        """
        ...

    def command(self, command: Command, **notes: Any) -> None:
        """A command was given; notes are facts about carrying it out, such as a weight."""
        ...


class NoJournal:
    """Forgets everything."""

    def event(self, event: Event, **_: Any) -> None:
        """Forget an event."""

    def command(self, command: Command, **notes: Any) -> None:
        """Forget a command."""


class Tee:
    """Hands everything on to several journals."""

    def __init__(self, *journals: Journal) -> None:
        self._journals = journals

    def event(self, event: Event, **notes: Any) -> None:
        """Hand an event on."""
        for journal in self._journals:
            journal.event(event, **notes)

    def command(self, command: Command, **notes: Any) -> None:
        """Hand a command on."""
        for journal in self._journals:
            journal.command(command, **notes)


class FileJournal:
    """Appends lines to a file.

    Args:
        path: the file; a new one gets the header first.
        header: facts about the run, such as the strategy's settings.
        resume_at: keep so many bytes of an existing file and go on after them.
        durable: wait for the disk after every `flush`.

    Raises:
        JournalError: it cannot be written (it is there already, no permission, a full disk), or it
            is shorter than `resume_at`.
    """

    def __init__(
        self,
        path: Path,
        header: dict[str, Any],
        *,
        resume_at: int | None = None,
        durable: bool = False,
    ) -> None:
        self._path, self._durable = path, durable
        self.crc = 0  # of all bytes written so far
        self._file: BinaryIO
        try:
            self._file = path.open("xb" if resume_at is None else "r+b")
        except OSError as error:
            raise self._failure(error) from None
        if resume_at is None:
            self._write({"journal": SCHEMA, **header})
        else:
            self._go_on_after(resume_at)

    def _go_on_after(self, size: int) -> None:
        present = self._file.seek(0, os.SEEK_END)
        if present < size:  # truncating to more than there is would fill up with zeros
            self._file.close()
            raise JournalError(
                f"{self._path} has {present} bytes, the checkpoint was made at {size}; "
                "resume from an older checkpoint or start over"
            )
        try:
            self._file.truncate(size)
            self._file.seek(0)
            while self._file.tell() < size:
                self.crc = zlib.crc32(self._file.read(_AT_ONCE), self.crc)
        except OSError as error:
            self._file.close()
            raise self._failure(error) from None

    def event(self, event: Event, **notes: Any) -> None:
        """Append an event."""
        self._write(event_to_json(event, **notes))

    def command(self, command: Command, **notes: Any) -> None:
        """Append a command."""
        self._write({**command_to_json(command), **notes})

    def flush(self) -> int:
        """Hand everything to the system (to the disk if durable); returns the size in bytes."""
        self.show(wait=self._durable)
        return self._file.tell()

    def show(self, *, wait: bool = False) -> None:
        """Let readers of the file see everything so far, and wait for the disk if asked to."""
        try:
            self._file.flush()
            if wait:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failure(error) from None

    def close(self) -> None:
        """Flush and close."""
        if self._file.closed:
            return
        try:
            self.flush()
        finally:
            with suppress(OSError):  # the flush has said so
                self._file.close()

    def _write(self, record: dict[str, Any]) -> None:
        body = json.dumps(record, separators=(",", ":")).encode()[:-1]
        before = zlib.crc32(body, self.crc)
        ending = b',"crc":%d}\n' % before
        self.crc = zlib.crc32(ending, before)
        try:
            self._file.write(body + ending)
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> JournalError:
        return JournalError(
            f"{self._path} cannot be written: {error.strerror}; "
            "make room or give another folder, then resume"
        )


class Line(NamedTuple):
    """A whole line of a journal."""

    number: int
    record: dict[str, Any]  # without "crc"
    size: int  # bytes of the file up to its end
    crc: int  # of these bytes


def read_journal(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and records, the header first. A last line cut off by a crash is left out.

    Raises:
        JournalError: not a journal, another schema, or a damaged line in the middle.
    """
    for line in read_lines(path):
        yield line.number, line.record


def read_lines(path: Path) -> Iterator[Line]:
    """As `read_journal`, with the place of each line in the file.

    Journals from before lines had a "crc" are read too; once a line has one, all that follow must.

    Raises:
        JournalError: not a journal, another schema, or a damaged line in the middle.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}; give a run's journal.jsonl") from None
    with file:
        number = size = crc = 0
        checked = False  # whether lines have a "crc" by now
        for line in file:
            if not line.endswith(b"\n"):
                break
            number += 1
            record = _record(path, number, line)
            if number == 1:
                _check_header(path, record)
            checked = _check_crc(path, number, line, crc, must_be_there=checked)
            record.pop("crc", None)
            size, crc = size + len(line), zlib.crc32(line, crc)
            yield Line(number, record, size, crc)
        if number == 0:
            raise JournalError(f"{path} has no header line; give a run's journal.jsonl")


def lines_after(path: Path, size: int, crc: int | None) -> list[Line]:
    """The lines that a journal has beyond a checkpoint; all of it is checked.

    Args:
        path: the journal.
        size: its bytes when the checkpoint was made.
        crc: their checksum; None: the checkpoint does not know it (from before there was one).

    Raises:
        JournalError: it is damaged, or is not the journal that the checkpoint was made with.
    """
    present = path.stat().st_size if path.is_file() else None
    if present is not None and present < size:
        raise JournalError(
            f"{path} has {present} bytes, the checkpoint was made at {size}; "
            "restore both from the same backup"
        )
    lines, fits = [], False
    for line in read_lines(path):
        fits = fits or (line.size == size and crc in (None, line.crc))
        if line.size > size:
            lines.append(line)
    if not fits:
        raise JournalError(
            f"{path} is not the journal that the checkpoint beside it was made with (its first "
            f"{size} bytes differ); restore both from the same backup"
        )
    return lines


def holds_events(path: Path) -> bool:
    """Whether anything happened by this journal; one that is not there or cut in its header is new.

    Raises:
        JournalError: it is damaged, so nobody can tell.
    """
    try:
        with path.open("rb") as file:
            begun = file.readline().endswith(b"\n")
    except FileNotFoundError:
        return False
    return begun and any("event" in record for _, record in read_journal(path))


def latest_time(path: Path) -> Seconds:
    """The time of the last line of a journal that is being written; 0 if there is none yet."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            times = _AT.findall(file.read(_TAIL))
    except OSError:
        return 0.0
    return float(times[-1]) if times else 0.0


def _check_crc(path: Path, number: int, line: bytes, crc: int, *, must_be_there: bool) -> bool:
    """Compare a line's checksum; whether it has one."""
    found = _CRC.search(line)
    if found is None:
        if must_be_there:
            raise JournalError(
                f"{path}: line {number} is damaged: it has no checksum; "
                "restore the file from a backup"
            )
        return False
    if int(found[1]) != zlib.crc32(line[: found.start()], crc):
        raise JournalError(
            f"{path}: line {number} is damaged, or one right before it changed or missing: its "
            "checksum differs; restore the file from a backup"
        )
    return True


def _check_header(path: Path, header: dict[str, Any]) -> None:
    if "journal" not in header:
        raise JournalError(f"{path}: line 1 is not a journal's header; give a run's journal.jsonl")
    if header["journal"] != SCHEMA:
        raise JournalError(
            f"{path}: line 1 says schema {header['journal']!r}; this version reads schema {SCHEMA}"
        )


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise JournalError(
            f"{path}: line {number} is damaged: {error}; restore the file from a backup"
        ) from None
    if not isinstance(record, dict):
        raise JournalError(f"{path}: line {number} is not an object: {str(record)[:80]}")
    return record
