"""A journal as a timeline: each client's local rounds and waits, the merges and the deadlines."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fedcompass.runs.client_time import ClientTimes, Span
from fedcompass.runs.journal import read_journal
from fedcompass.scheduling.commands import GENERAL
from fedcompass.vocabulary import ClientId, GroupId, ModelVersion, Seconds, Steps, TaskId

__all__ = [
    "Deadline",
    "LocalRound",
    "Merge",
    "Outcome",
    "Timeline",
    "Wait",
    "read_timeline",
    "timeline_of",
]

Outcome: TypeAlias = Literal["arrived", "late", "refused", "lost", "under way"]
"""What became of a local round; a late one came after its group had merged."""


@dataclass(slots=True)
class LocalRound:
    """A client's work on one task."""

    client: ClientId
    task: TaskId
    start: Seconds
    end: Seconds
    steps: Steps
    group: GroupId | None
    outcome: Outcome = "under way"


@dataclass(slots=True, frozen=True)
class Wait:
    """A client was there and had nothing to do; see `fedcompass.runs.client_time`."""

    client: ClientId
    start: Seconds
    end: Seconds


@dataclass(slots=True, frozen=True)
class Merge:
    """A new global model, and who is in it with which staleness."""

    at: Seconds
    version: ModelVersion
    contributions: tuple[tuple[ClientId, int], ...]


@dataclass(slots=True, frozen=True)
class Deadline:
    """Until when a group is waited for."""

    at: Seconds
    group: GroupId


@dataclass(slots=True)
class Timeline:
    """All of a run's rounds, waits, merges and deadlines, in order of time."""

    clients: list[ClientId] = field(default_factory=list)  # in order of joining
    rounds: list[LocalRound] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    deadlines: list[Deadline] = field(default_factory=list)
    end: Seconds = 0.0  # of the run, or its last event so far


def read_timeline(path: Path, until: Seconds | None = None) -> Timeline:
    """The timeline of a journal, finished or not.

    Args:
        path: the journal's file.
        until: when the run ended, if that was after its last event.

    Raises:
        JournalError: it cannot be read.
    """
    lines = read_journal(path)
    next(lines)  # the header
    return timeline_of((record for _, record in lines), until)


def timeline_of(records: Iterable[Mapping[str, Any]], until: Seconds | None = None) -> Timeline:
    """The timeline of a journal's records, without its header."""
    reader = _Reader()
    reader.see(until or 0.0)
    for record in records:
        reader.take(record)
    return reader.finish()


class _Reader:
    def __init__(self) -> None:
        self._timeline = Timeline()
        self._open: dict[ClientId, LocalRound] = {}  # each client's present round
        self._answered: dict[ClientId, LocalRound] = {}  # its last one
        self._times = ClientTimes(on_span=self._spend)

    def see(self, at: Seconds) -> None:
        """The run went on at least until then."""
        self._timeline.end = max(self._timeline.end, at)

    def take(self, record: Mapping[str, Any]) -> None:
        """Take in the next line."""
        if "event" in record:
            self.see(record["at"])
            self._on_event(record)
        else:
            self._on_command(record)
        self._times.take(record)

    def _spend(self, span: Span) -> None:
        if span.doing == "waiting":
            self._timeline.waits.append(Wait(span.client, span.start, span.end))

    def _on_event(self, record: Mapping[str, Any]) -> None:
        match record["event"]:
            case "ClientJoined":
                self._leave(record["client"], record["at"])  # one that is known starts over
                if record["client"] not in self._timeline.clients:
                    self._timeline.clients.append(record["client"])
            case "UpdateArrived":
                self._answer(record, "arrived" if record["steps_done"] else "lost")
            case "UpdateRefused":
                self._answer(record, "refused")
            case "TaskLost":
                self._answer(record, "lost")
            case "ClientLost":
                self._leave(record["client"], record["at"])
            case _:
                pass

    def _on_command(self, record: Mapping[str, Any]) -> None:
        timeline = self._timeline
        match record.get("command"):
            case "StartTraining":
                self._start(record)
            case "Fold":
                self._fold(record)
            case "Commit":
                stale = tuple(
                    (client, staleness) for client, _, staleness in record["contributions"]
                )
                timeline.merges.append(Merge(record["at"], record["version"], stale))
            case "SetDeadline":
                timeline.deadlines.append(Deadline(record["at"], record["group"]))
            case "Quarantine":
                self._leave(record["client"], record["at"])
            case _:
                pass

    def _start(self, record: Mapping[str, Any]) -> None:
        client, at = record["client"], record["at"]
        begun = LocalRound(client, record["task"], at, at, record["steps"], record["group"])
        self._timeline.rounds.append(begun)
        self._open[client] = begun

    def _answer(self, record: Mapping[str, Any], outcome: Outcome) -> None:
        present = self._open.get(record["client"])
        if present is None or present.task != record["task"]:
            return  # a stray answer, which changes nothing
        del self._open[record["client"]]
        present.end, present.outcome = record["at"], outcome
        self._answered[record["client"]] = present

    def _leave(self, client: ClientId, at: Seconds) -> None:
        if (present := self._open.pop(client, None)) is not None:
            present.end, present.outcome = at, "lost"

    def _fold(self, record: Mapping[str, Any]) -> None:
        answered = self._answered.get(record["client"])
        if answered is None or answered.task != record["task"]:
            return
        if answered.group is not None and record["buffer"] == GENERAL:
            answered.outcome = "late"

    def finish(self) -> Timeline:
        """Close what is under way at the end."""
        end = self._timeline.end
        self._times.end(end)
        for present in self._open.values():
            present.end = end
        return self._timeline
