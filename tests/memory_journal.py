"""A journal in memory, for tests that look at its lines."""

from typing import Any

from fedcompass.runs.codec import command_to_json, event_to_json
from fedcompass.runs.journal import SCHEMA
from fedcompass.scheduling.commands import Command
from fedcompass.scheduling.events import Event

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """Keeps the lines as records."""

    def __init__(self, header: dict[str, Any] | None = None) -> None:
        self.records: list[dict[str, Any]] = [{"journal": SCHEMA, **(header or {})}]

    def event(self, event: Event, **notes: Any) -> None:
        """Keep an event."""
        self.records.append(event_to_json(event, **notes))

    def command(self, command: Command, **notes: Any) -> None:
        """Keep a command."""
        self.records.append({**command_to_json(command), **notes})
