"""Two records of a run kept at once: the journal for programs, the audit log for people."""

from typing import Any

from fedcompass.deployment.audit import Audit
from fedcompass.runs.journal import Journal
from fedcompass.scheduling.commands import Command
from fedcompass.scheduling.events import Event

__all__ = ["Records"]


class Records:
    """A `Journal` that hands everything to both."""

    def __init__(self, journal: Journal, audit: Audit) -> None:
        self._journal, self._audit = journal, audit

    def event(self, event: Event) -> None:
        """Hand an event on."""
        self._journal.event(event)
        self._audit.event(event)

    def command(self, command: Command, **notes: Any) -> None:
        """Hand a command on."""
        self._journal.command(command, **notes)
        self._audit.command(command, **notes)
