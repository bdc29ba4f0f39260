"""A run's journal: JSON lines, a header and then one line for every event and command.

The lines carry no wall-clock time, so the same run writes the same bytes.
"""

import json
import os
from collections.abc import Iterator
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
        """An event is about to be handled."""
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
    """

    def __init__(
        self,
        path: Path,
        header: dict[str, Any],
        *,
        resume_at: int | None = None,
        durable: bool = False,
    ) -> None:
        self._durable = durable
        self._file: BinaryIO
        if resume_at is None:
            self._file = path.open("xb")
            self._write({"journal": SCHEMA, **header})
        else:
            self._file = path.open("r+b")
            self._file.truncate(resume_at)
            self._file.seek(resume_at)

    def event(self, event: Event) -> None:
        """Append an event."""
        self._write(event_to_json(event))

    def command(self, command: Command, **notes: Any) -> None:
        """Append a command."""
        self._write({**command_to_json(command), **notes})

    def flush(self) -> int:
        """Hand everything to the system (to the disk if durable); returns the size in bytes."""
        self._file.flush()
        if self._durable:
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Flush and close."""
        if not self._file.closed:
            self.flush()
            self._file.close()

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")


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
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            record = _record(path, number, line)
            if number == 1 and record.get("journal") != SCHEMA:
                raise JournalError(
                    f"{path}: line 1 says schema {record.get('journal')!r}; "
                    f"this version reads schema {SCHEMA}"
                )
            yield number, record
        if number == 0:
            raise JournalError(f"{path} is empty; give a run's journal.jsonl")


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise JournalError(f"{path}: line {number} is damaged: {error}") from None
    if not isinstance(record, dict):
        raise JournalError(f"{path}: line {number} is not an object: {record!r}")
    return record
