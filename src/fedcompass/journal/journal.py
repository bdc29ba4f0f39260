"""A run's journal: JSON lines, a header and then one line for every event and command.

The lines carry no wall-clock time, so the same run writes the same bytes.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from fedcompass.errors import JournalError
from fedcompass.journal.codec import command_to_json, event_to_json
from fedcompass.scheduling.commands import Command
from fedcompass.scheduling.events import Event

__all__ = ["SCHEMA", "FileJournal", "Journal", "MemoryJournal", "NoJournal", "read_journal"]

SCHEMA = 1
"""Rises when a line's meaning changes."""


class Journal(Protocol):
    """Takes down what happens in a run, in order."""

    def event(self, event: Event) -> None:
        """An event was taken in; its commands follow."""
        ...

    def command(self, command: Command, **notes: Any) -> None:
        """A command was given; notes are facts about carrying it out, such as a weight."""
        ...


class NoJournal:
    """Forgets everything."""

    def event(self, event: Event) -> None:
        """Forget an event."""

    def command(self, command: Command, **notes: Any) -> None:
        """Forget a command."""


class MemoryJournal:
    """Keeps the lines as records."""

    def __init__(self, header: dict[str, Any] | None = None) -> None:
        self.records: list[dict[str, Any]] = [{"journal": SCHEMA, **(header or {})}]

    def event(self, event: Event) -> None:
        """Keep an event."""
        self.records.append(event_to_json(event))

    def command(self, command: Command, **notes: Any) -> None:
        """Keep a command."""
        self.records.append({**command_to_json(command), **notes})


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
        except OSError as error:
            self._file.close()
            raise self._failure(error) from None
        self._file.seek(size)

    def event(self, event: Event) -> None:
        """Append an event."""
        self._write(event_to_json(event))

    def command(self, command: Command, **notes: Any) -> None:
        """Append a command."""
        self._write({**command_to_json(command), **notes})

    def flush(self) -> int:
        """Hand everything to the system (to the disk if durable); returns the size in bytes."""
        try:
            self._file.flush()
            if self._durable:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failure(error) from None
        return self._file.tell()

    def show(self) -> None:
        """Let readers of the file see everything so far; it is not waited for the disk."""
        try:
            self._file.flush()
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
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        try:
            self._file.write(line)
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> JournalError:
        return JournalError(
            f"{self._path} cannot be written: {error.strerror}; "
            "make room or give another folder, then resume"
        )


def read_journal(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and records, the header first. A last line cut off by a crash is left out.

    Raises:
        JournalError: not a journal, another schema, or a damaged line in the middle.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}; give a run's journal.jsonl") from None
    with file:
        number = 0
        for line in file:
            if not line.endswith(b"\n"):
                break
            number += 1
            record = _record(path, number, line)
            if number == 1:
                _check_header(path, record)
            yield number, record
        if number == 0:
            raise JournalError(f"{path} has no header line; give a run's journal.jsonl")


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
        raise JournalError(f"{path}: line {number} is damaged: {error}") from None
    if not isinstance(record, dict):
        raise JournalError(f"{path}: line {number} is not an object: {str(record)[:80]}")
    return record
