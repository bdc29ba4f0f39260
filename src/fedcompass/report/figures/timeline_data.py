"""A journal as a timeline: each client's local rounds and waits, the merges and the deadlines."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcompass.runs.journal import read_journal
from fedcompass.runs.tally import LocalRound, Span, Tally, is_made, merged_in
from fedcompass.vocabulary import ClientId, GroupId, ModelVersion, Seconds

__all__ = ["Deadline", "MergeMark", "Timeline", "read_timeline", "timeline_of"]


@dataclass(slots=True, frozen=True)
class MergeMark:
    """A new global model, and who is in it with which staleness."""

    at: Seconds
    version: ModelVersion
    contributions: tuple[tuple[ClientId, int], ...]


@dataclass(slots=True, frozen=True)
class Deadline:
    """The time until which a group may answer."""

    at: Seconds
    group: GroupId


@dataclass(slots=True)
class Timeline:
    """All of a run's rounds, waits, merges and deadlines, in order of time."""

    clients: list[ClientId] = field(default_factory=list)  # in order of joining
    rounds: list[LocalRound] = field(default_factory=list)
    waits: list[Span] = field(default_factory=list)
    merges: list[MergeMark] = field(default_factory=list)
    deadlines: list[Deadline] = field(default_factory=list)
    end: Seconds = 0.0  # of the run, or its last event so far

    def take_span(self, span: Span) -> None:
        """A client did something until now; waits are drawn."""
        if span.doing == "waiting":
            self.waits.append(span)

    def take_line(self, record: Mapping[str, Any]) -> None:
        """Take in the next line's merge or deadline."""
        match record.get("command"):
            case "Commit" if is_made(record):
                stale = tuple((client, u) for client, _, u in merged_in(record))
                self.merges.append(MergeMark(record["at"], record["version"], stale))
            case "SetDeadline":
                self.deadlines.append(Deadline(record["at"], record["group"]))
            case _:
                pass


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
    timeline = Timeline()
    tally = Tally(on_round=timeline.rounds.append, on_span=timeline.take_span)
    for record in records:
        tally.take(record)
        timeline.take_line(record)
    timeline.clients = list(tally.clients)
    timeline.end = max(tally.now, until or 0.0)
    tally.end(timeline.end)
    return timeline
