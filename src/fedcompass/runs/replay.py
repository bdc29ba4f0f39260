"""Feed a journal's events to a fresh scheduler: it must ask for the same commands."""

import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcompass.errors import EventRefused, JournalError, ReplayMismatch, SettingsError
from fedcompass.runs.codec import command_to_json, event_from_json
from fedcompass.runs.journal import read_journal
from fedcompass.scheduling.registry import new_scheduler, policy_kind
from fedcompass.scheduling.scheduler import Scheduler

__all__ = ["Replayed", "replay"]

_LATER = ("due", "steps_before")
"""What journals of earlier versions do not have."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay saw; `scheduler` stands where the run stood at the journal's end."""

    events: int
    commands: int
    scheduler: Scheduler


def replay(path: Path) -> Replayed:
    """Replay a journal and compare every command.

    Commands of the last event may be missing: a crash came between.

    Raises:
        JournalError: it cannot be read.
        ReplayMismatch: naming the first line that differs.
    """
    lines = read_journal(path)
    _, header = next(lines)
    scheduler = _scheduler(path, header)
    events = commands = 0
    expected: deque[dict[str, Any]] = deque()  # commands the replay gave and the journal must show
    for number, record in lines:
        if "event" in record:
            if expected:
                raise _mismatch(path, number, record, expected[0])
            expected.extend(_given(scheduler, path, number, record))
            events += 1
        else:
            if not expected or not _covers(record, expected[0]):
                raise _mismatch(path, number, record, expected[0] if expected else None)
            expected.popleft()
            commands += 1
    return Replayed(events, commands, scheduler)


def _scheduler(path: Path, header: dict[str, Any]) -> Scheduler:
    try:
        strategy = header["strategy"]
        settings = policy_kind(strategy["scheduler"]).settings(**strategy["scheduling"])
        return new_scheduler(strategy["scheduler"], settings)
    except (KeyError, TypeError, SettingsError) as error:
        raise JournalError(f"{path}: line 1 does not say which scheduler ran: {error!r}") from None


def _given(
    scheduler: Scheduler, path: Path, number: int, record: dict[str, Any]
) -> list[dict[str, Any]]:
    """The commands that follow from an event's line, as a journal writes them."""
    try:
        commands = scheduler.handle(event_from_json(record))
    except EventRefused as error:
        raise ReplayMismatch(f"{path}: line {number} cannot have happened: {error}") from None
    except (JournalError, TypeError, ValueError) as error:  # fields of the wrong kind
        raise JournalError(f"{path}: line {number} is damaged: {error}") from None
    return [json.loads(json.dumps(command_to_json(command))) for command in commands]


def _covers(record: dict[str, Any], command: dict[str, Any]) -> bool:
    """Whether a line has all of a command; notes about carrying it out may stand beside it."""
    known = {key: value for key, value in command.items() if key in record or key not in _LATER}
    return all(key in record and record[key] == value for key, value in known.items())


def _mismatch(
    path: Path, number: int, record: dict[str, Any], given: dict[str, Any] | None
) -> ReplayMismatch:
    return ReplayMismatch(f"{path}: line {number} has {record}, the replay gives {given}")
