"""After a crash: repeat what the journal has beyond the checkpoint, and check every command.

The journal is only read here; it is completed when all of it has been repeated, so a crash during a
resume loses nothing either.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedcompass.aggregation import FlatState
from fedcompass.coordinator import Coordinator, DriverCommand
from fedcompass.deployment.server.audit import Audit
from fedcompass.errors import EventRefused, JournalError, ReplayMismatch
from fedcompass.runs.codec import command_to_json, event_from_json
from fedcompass.runs.journal import Line, Tee
from fedcompass.scheduling.commands import Command
from fedcompass.scheduling.events import Event, UpdateArrived

__all__ = ["repeat_journal"]


def repeat_journal(
    coordinator: Coordinator,
    path: Path,
    lines: Sequence[Line],
    update: Callable[[UpdateArrived], FlatState | None],
    audit: Audit,
    carry_out: Callable[[list[DriverCommand]], object],
) -> list[tuple[Command, dict[str, Any]]]:
    """Take a restored coordinator from the checkpoint to where the journal ends.

    Returns the commands that the crash cut off the journal's end, with their notes.

    Args:
        coordinator: as the checkpoint left it.
        path: the journal.
        lines: what it has beyond the checkpoint.
        update: the tensors of an accepted update; None: its site has them.
        audit: gets the lines that are missing in it.
        carry_out: called with each event's commands.

    Raises:
        JournalError: it is damaged, or does not follow from the checkpoint.
        CheckpointError: an accepted update is missing, damaged or another one.
    """
    checking = _Checking(path)
    coordinator.journal = Tee(checking, audit)
    entries = deque(lines)
    while entries:
        line = entries.popleft()
        event = _event_of(path, line)
        while entries and "command" in entries[0].record:
            checking.expected.append(entries.popleft().record)
        tensors = None
        if isinstance(event, UpdateArrived) and event.steps_done > 0:
            tensors = update(event)
        epsilon = line.record.get("privacy", {}).get("epsilon")
        try:
            commands = coordinator.take_in_again(event, tensors, epsilon)
        except EventRefused as error:
            raise ReplayMismatch(f"{path} does not follow from the checkpoint: {error}") from None
        checking.check_complete(last=not entries)
        carry_out(commands)
    return checking.missing


def _event_of(path: Path, line: Line) -> Event:
    try:
        return event_from_json(line.record)
    except JournalError as error:
        raise JournalError(f"{path}: line {line.number} is damaged: {error}") from None


class _Checking:
    """A `Journal` that compares commands with the recorded ones and keeps those beyond them."""

    def __init__(self, path: Path) -> None:
        self.expected: deque[dict[str, Any]] = deque()  # recorded commands of the present event
        self.missing: list[tuple[Command, dict[str, Any]]] = []
        self._path = path

    def event(self, event: Event, **_: Any) -> None:
        """It comes from the journal itself."""

    def command(self, command: Command, **notes: Any) -> None:
        """Compare a command, or keep it if the record ends before it."""
        if not self.expected:
            self.missing.append((command, notes))
            return
        recorded = self.expected.popleft()
        given = json.loads(json.dumps({**command_to_json(command), **notes}))
        if recorded != given:
            raise ReplayMismatch(f"{self._path} has {recorded}, the checkpoint leads to {given}")

    def check_complete(self, *, last: bool) -> None:
        """Only the last event's commands can have been cut off."""
        if self.expected or (self.missing and not last):
            raise ReplayMismatch(f"{self._path} does not follow from the checkpoint")
