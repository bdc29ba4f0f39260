"""The audit log: who joined, what was accepted or refused and why, each merge with its sources.

Lines follow the journal's events, so after a crash exactly the missing ones are added. They hold
no tensors and no secrets.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fedcompass.deployment.wire.short_texts import one_line
from fedcompass.runs.files import LineFile
from fedcompass.scheduling.commands import Command, Commit, Quarantine
from fedcompass.scheduling.events import (
    ClientJoined,
    ClientLost,
    DeadlinePassed,
    Event,
    MergeFailed,
    QuarantineLifted,
    SpoilerFound,
    TaskLost,
    UpdateArrived,
    UpdateRefused,
    UpdateReturned,
)
from fedcompass.vocabulary import ClientId, ModelVersion

__all__ = ["Audit"]


_OF_A_CLIENT: dict[type[Event], str] = {
    ClientLost: "left",
    SpoilerFound: "spoiler found",
}

_PAUSED = (
    "one of them spoils sums, and of three nobody can tell which: their updates wait for another "
    "site's (`fedcompass deploy add-site` if there is none), or until you have found the cause and "
    "`fedcompass deploy readmit` names one of them"
)


class Audit:
    """A `Journal` that keeps people informed; lines of events are written by `flush`.

    It waits for the disk at `sync` alone: after a crash, lines of the journal's events are added.

    Args:
        lines: the file.
        wall: seconds since 1970, for people; nothing is decided by it.
    """

    def __init__(self, lines: LineFile, wall: Callable[[], float]) -> None:
        self.events = 0  # of the journal, so far
        self._lines, self._wall = lines, wall
        known = lines.records()
        self._newest = max((_number(line) for line in known), default=0)  # event with a line
        self._of_newest = [_key(line) for line in known if _number(line) == self._newest]
        self._waiting: list[dict[str, Any]] = []  # lines

    def say(self, what: str, at: float, **facts: Any) -> None:
        """Write a line about something that is no event of the journal.

        Raises:
            RunFolderError: as `flush`.
        """
        self._waiting.append(self._line(what, at, facts))
        self.flush()

    def event(self, event: Event, **notes: Any) -> None:
        """A line about an event, unless a server before this one wrote it."""
        self.events += 1
        if "why" in notes:
            notes["why"] = one_line(notes["why"])  # perhaps a site's own words
        told = _told(event)
        if told is not None:
            what, facts = told
            what = "revoked" if notes.pop("revoked", False) else what
            self._add(what, event.at, {**facts, **notes})

    def command(self, command: Command, **notes: Any) -> None:
        """Lines about a merge, made or not, and who was wrong in it, or about a quarantine."""
        for who, why in notes.get("masked", {}).get("accused", {}).items():
            self._add("accused", command.at, {"who": who, "why": one_line(why)})
        match command:
            case Commit(at=at, version=version, contributions=folds) if "failed" in notes:
                lost = [[f.client, f.task] for f in folds if f.task in notes["lost"]]
                why = {"members": notes["members"], "lost": lost, "why": one_line(notes["failed"])}
                among = {"among": notes["suspects"]} if "suspects" in notes else {}
                self._add("sum failed", at, {"version": version, **why, **among})
                if "untold" in notes:
                    paused = {"sites": notes["untold"], "why": _PAUSED}
                    self._add("paused", at, {"version": version, **paused})
            case Commit(at=at, version=version, contributions=folds):
                left_out = notes.get("left_out", ())
                sources = [[f.client, f.task, f.staleness] for f in folds if f.task not in left_out]
                self._add("merged", at, {"version": version, "contributors": sources})
            case Quarantine(at=at, client=client):
                self._add("quarantined", at, {"who": client})
            case _:
                pass

    def flush(self) -> None:
        """Write what there is to say.

        Raises:
            RunFolderError: the disk is full, or the folder cannot be written to.
        """
        waiting, self._waiting = self._waiting, []
        self._lines.append(waiting)

    def contributors(self, after: ModelVersion, up_to: ModelVersion) -> list[ClientId]:
        """Whose updates are in the versions after one, up to another."""
        merged = (line for line in self._lines.records() if line.get("what") == "merged")
        among = (line["contributors"] for line in merged if after < line["version"] <= up_to)
        return sorted({client for sources in among for client, _, _ in sources})

    def sync(self) -> None:
        """Write what there is to say, and wait for the disk.

        Raises:
            RunFolderError: as `flush`.
        """
        self.flush()
        self._lines.sync()

    def _add(self, what: str, at: float, facts: dict[str, Any]) -> None:
        line = self._line(what, at, {**facts, "event": self.events})
        there_already = self.events == self._newest and _key(line) in self._of_newest
        if self.events >= self._newest and not there_already:
            self._waiting.append(line)

    def _line(self, what: str, at: float, facts: dict[str, Any]) -> dict[str, Any]:
        moment = datetime.fromtimestamp(self._wall(), UTC)
        time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"time": time, "at": round(at, 3), "what": what, **facts}


def _number(record: dict[str, Any]) -> int:
    number = record.get("event", 0)
    return number if isinstance(number, int) else 0


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    """What tells lines of one event apart; who repeats an event does not know of a revocation."""
    what = line.get("what")
    return "left" if what == "revoked" else what, line.get("who"), line.get("version")


def _told(event: Event) -> tuple[str, dict[str, Any]] | None:
    match event:
        case ClientJoined(client=client, samples=samples):
            return "joined", {"who": client, "samples": samples}
        case UpdateArrived(client=client, task=task, steps_done=0):
            return "task lost", {"who": client, "task": task, "why": "no steps were done"}
        case UpdateArrived(client=client, task=task, steps_done=steps, compute_seconds=seconds):
            return "accepted", {"who": client, "task": task, "steps": steps, "seconds": seconds}
        case UpdateRefused(client=client, task=task, reason=reason):
            return "refused", {"who": client, "task": task, "reason": reason}
        case TaskLost(client=client, task=task):
            return "task lost", {"who": client, "task": task}
        case ClientLost(client=client) | SpoilerFound(client=client):
            return _OF_A_CLIENT[type(event)], {"who": client}
        case QuarantineLifted(client=client, by=by):
            return "readmitted", {"who": client, **({} if by is None else {"by": by})}
        case UpdateReturned(client=client, task=task):
            return "waits", {"who": client, "task": task, "why": "it was not in the sum"}
        case DeadlinePassed() | MergeFailed():  # the failed merge has a line of its own
            return None
