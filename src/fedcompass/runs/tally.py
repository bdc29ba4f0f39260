"""What a journal says of a run and its clients: the one count that every reader uses.

A client's time:

busy          from a task's dispatch to its answer, its loss or the client's departure, whatever
              became of the update. Of that, computing is what the client reports; the rest of an
              answered task is overhead.
waiting       present and without a task: from an answer, from joining or from the end of a
              quarantine to the next task. Before the run's first task nobody waits. Of that, a
              client is ahead while its group or beat is not due yet: it waits by plan, since more
              steps were not wanted or did not fit. The rest it waits for others: for late ones of
              its group, for slower ones where there are no groups.
quarantined   from a quarantine until it is lifted or the client leaves, and from its return on.
away          all other time: before it joined and after it left.

The idle share is waiting / (busy + waiting): the part of the time that a client could have trained
in. Who is away or in quarantine could not have.

`report/page/run_model.js` counts the same in a browser; a test compares the two by every number.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from fedcompass.runs.codec import command_to_json, event_to_json
from fedcompass.scheduling.commands import GENERAL, Command
from fedcompass.scheduling.events import Event
from fedcompass.vocabulary import (
    ClientId,
    GroupId,
    ModelVersion,
    Refusal,
    Seconds,
    Steps,
    TaskId,
)

__all__ = [
    "ClientTally",
    "Doing",
    "LocalRound",
    "Outcome",
    "Span",
    "Tally",
    "idle_share",
    "is_made",
    "merged_in",
]

Doing: TypeAlias = Literal["busy", "waiting", "quarantined", "away"]
"""What a client is doing at a moment."""

Outcome: TypeAlias = Literal["arrived", "late", "discarded", "refused", "lost", "under way"]
"""What became of a local round; a late one came after its group had merged, a discarded one was
for the pace alone."""


class Span(NamedTuple):
    """What a client did from one moment to another; of a wait, up to when it was ahead."""

    client: ClientId
    doing: Doing
    start: Seconds
    end: Seconds
    ahead_until: Seconds | None = None


@dataclass(slots=True)
class LocalRound:
    """A client's work on one task."""

    client: ClientId
    task: TaskId
    start: Seconds
    end: Seconds  # so far
    steps: Steps
    group: GroupId | None
    outcome: Outcome = "under way"
    steps_done: Steps = 0  # of an answer
    computing: Seconds | None = None  # of an answer, as the client reports it


@dataclass(slots=True)
class ClientTally:
    """One client's part in a run."""

    samples: int = 0
    tasks: int = 0
    updates: int = 0  # accepted, and not discarded
    late: int = 0  # of those: their group had merged
    refused: int = 0
    not_finite: int = 0  # of the refused: they held NaN or infinity
    lost: int = 0  # tasks that failed
    left: int = 0  # how often it left or was given up
    versions: float = 0.0  # that it made; one of several clients counts in equal parts
    steps: Steps = 0  # of accepted updates and of discarded ones
    weight: float = 0.0  # sum of its updates' weights, each as often as it counted
    busy: Seconds = 0.0
    computing: Seconds = 0.0  # of that, as the client reports it
    overhead: Seconds = 0.0  # the rest of the tasks that it reports it of
    waiting: Seconds = 0.0
    ahead: Seconds = 0.0  # of that, its group was not due yet
    quarantined: Seconds = 0.0
    doing: Doing = "away"
    since: Seconds | None = None  # when it began that; None: does not count (yet)
    task: TaskId | None = None  # the one it is busy with
    due: Seconds | None = None  # when the group is that it waits with
    epsilon: float | None = None  # what it has spent of its privacy budget, if it has one
    delta: float | None = None  # with which that holds, where the journal says so
    budget_spent: bool = False  # it has left because nothing is left of that

    def until(self, now: Seconds) -> "ClientTally":
        """The same with what is under way counted up to now, and nothing under way."""
        ended = replace(self)
        ended.switch("away", now)
        return ended

    def switch(self, doing: Doing, at: Seconds) -> Seconds:
        """Do something else from now on; says for how long it did what it did before."""
        # Commands of an overdue deadline are older than the event they were given at.
        elapsed = 0.0 if self.since is None else max(0.0, at - self.since)
        match self.doing:
            case "busy":
                self.busy += elapsed
            case "waiting":
                self.waiting += elapsed
                if self.since is not None and (until := self.ahead_until(at)) is not None:
                    self.ahead += until - self.since
            case "quarantined":
                self.quarantined += elapsed
            case "away":
                pass
        self.doing, self.since, self.task, self.due = doing, at, None, None
        return elapsed

    def ahead_until(self, at: Seconds) -> Seconds | None:
        """Up to when, in its wait that ends now, its group was not due; None: it was all along."""
        if self.since is None or self.due is None or min(self.due, at) <= self.since:
            return None
        return min(self.due, at)


def idle_share(clients: Iterable[ClientTally]) -> float:
    """The waiting part of the time in which these had work or waited for it."""
    return _share(list(clients), "waiting")


def _share(ended: list[ClientTally], of: Literal["waiting", "ahead"]) -> float:
    whole = sum(c.busy + c.waiting for c in ended)
    return sum(getattr(c, of) for c in ended) / whole if whole > 0 else 0.0


def is_made(commit: Mapping[str, Any]) -> bool:
    """Whether a `Commit` line is of a merge that was made: its sum, if it was one, was opened."""
    return "failed" not in commit


def merged_in(commit: Mapping[str, Any]) -> list[tuple[ClientId, TaskId, int]]:
    """The updates of a `Commit` line, each with its staleness; not what a secure sum left out."""
    left_out = commit.get("left_out", ())
    return [
        (client, task, u) for client, task, u in commit["contributions"] if task not in left_out
    ]


@dataclass(slots=True)
class Tally:
    """Follows a journal line by line; as a `Journal` it counts what happens.

    rounds: at work, or accepted and not merged yet.
    merged: client updates in all merges.
    failed_merges: sums that could not be opened; they are not among the merges.
    lost_updates: accepted ones that no merge will have, since a sum with them failed.
    uploads: answers that came, accepted or not.
    uploads_by_version: how many had come when each version was made, version 1 first.
    spreads: of every group that merged with two answers or more, last minus first arrival over the
        round's length.
    due: when each group that has not merged is planned to be complete.
    now: the last event's time.
    begun: the run has given its first task.
    on_round: called with each local round at its start; it is the one that is kept up to date.
    on_span: called with each span of more than no time when it ends.
    """

    clients: dict[ClientId, ClientTally] = field(default_factory=dict)
    rounds: dict[TaskId, LocalRound] = field(default_factory=dict)
    staleness: Counter[int] = field(default_factory=Counter)
    merges: int = 0
    merged: int = 0
    failed_merges: int = 0
    lost_updates: int = 0
    uploads: int = 0
    uploads_by_version: list[int] = field(default_factory=list)
    version: ModelVersion = 0
    spreads: list[float] = field(default_factory=list)
    due: dict[GroupId, Seconds] = field(default_factory=dict)
    now: Seconds = 0.0
    begun: bool = False
    on_round: Callable[[LocalRound], None] | None = field(default=None, compare=False)
    on_span: Callable[[Span], None] | None = field(default=None, compare=False)

    def event(self, event: Event, **notes: Any) -> None:
        """Count an event."""
        self.take(event_to_json(event, **notes))

    def command(self, command: Command, **notes: Any) -> None:
        """Count a command."""
        self.take({**command_to_json(command), **notes})

    def take(self, record: Mapping[str, Any]) -> None:
        """Take in a journal's next line; its header and what nobody counts change nothing."""
        if "event" in record:
            self.now = max(self.now, record["at"])
            self._take_event(record)
            if "privacy" in record:
                self._spend(record)
        else:
            self._take_command(record)

    def _take_event(self, record: Mapping[str, Any]) -> None:
        match record["event"]:
            case "ClientJoined":
                self._end_round(record, "lost")  # one that is known starts over
                tally = self._of(record)
                tally.samples, tally.budget_spent = record["samples"], False
                self._wait(record)
            case "UpdateArrived":
                self._arrive(record)
            case "UpdateRefused":
                self._refuse(record)
            case "TaskLost":
                self._of(record).lost += 1
                self._answer(record, "lost")
            case "ClientLost":
                self._of(record).left += 1
                self._leave(record, "away")
            case "MergeFailed" if self.version >= record["version"]:
                self.version -= 1  # a merge of the same event was made after it
            case "QuarantineLifted" if self._of(record).doing == "quarantined":
                self._wait(record)
            case _:
                pass

    def _take_command(self, record: Mapping[str, Any]) -> None:
        match record.get("command"):
            case "StartTraining":
                self._start(record)
            case "Fold":
                self._fold(record)
            case "FoldAgain":  # no answer of its own, but it weighs
                self._of(record).weight += record.get("weight", 0.0)
            case "Discard":
                self._discard(record)
            case "Commit":
                self._commit(record)
            case "SetDeadline" if "due" in record:
                self.due[record["group"]] = record["due"]
            case "Quarantine":
                self._leave(record, "quarantined")
            case _:
                pass

    def end(self, now: Seconds) -> None:
        """The run is over: count what is under way."""
        for client, tally in self.clients.items():
            if tally.task in self.rounds:
                self.rounds[tally.task].end = now
            self._switch(client, "away", now)

    def _of(self, record: Mapping[str, Any]) -> ClientTally:
        return self.clients.setdefault(record["client"], ClientTally())

    def _start(self, record: Mapping[str, Any]) -> None:
        client, task, at = record["client"], record["task"], record["at"]
        if not self.begun:
            self.begun = True
            for tally in self.clients.values():
                if tally.doing == "waiting":
                    tally.since = at
        self._of(record).tasks += 1
        self._switch(client, "busy", at)
        self.clients[client].task = task
        begun = LocalRound(client, task, at, at, record["steps"], record["group"])
        self.rounds[task] = begun
        if self.on_round is not None:
            self.on_round(begun)

    def _arrive(self, record: Mapping[str, Any]) -> None:
        self.uploads += 1
        ended = self._answer(record, "arrived" if record["steps_done"] else "lost")
        if ended is None:
            return
        ended.steps_done, ended.computing = record["steps_done"], record.get("compute_seconds")
        if ended.computing is not None:
            tally = self._of(record)
            tally.computing += ended.computing
            tally.overhead += max(0.0, ended.end - ended.start - ended.computing)

    def _refuse(self, record: Mapping[str, Any]) -> None:
        self.uploads += 1
        tally = self._of(record)
        tally.refused += 1
        tally.not_finite += record["reason"] == Refusal.NOT_FINITE
        self._answer(record, "refused")

    def _answer(self, record: Mapping[str, Any], outcome: Outcome) -> LocalRound | None:
        """A client's task ended; an answer to another task changes nothing."""
        tally = self._of(record)
        if tally.task is None or tally.task != record["task"]:
            return None
        ended = self._end_round(record, outcome)
        self._wait(record)
        if ended is not None and ended.group is not None:
            tally.due = self.due.get(ended.group)
        return ended

    def _leave(self, record: Mapping[str, Any], doing: Doing) -> None:
        self._end_round(record, "lost")
        self._switch(record["client"], doing, record["at"])

    def _end_round(self, record: Mapping[str, Any], outcome: Outcome) -> LocalRound | None:
        """The client's present round is over, if it has one; only an arrived one can be merged."""
        task = self._of(record).task
        ended = None if task is None else self.rounds.get(task)
        if ended is not None:
            ended.end, ended.outcome = record["at"], outcome
            if outcome != "arrived":
                del self.rounds[ended.task]
        return ended

    def _fold(self, record: Mapping[str, Any]) -> None:
        tally = self._of(record)
        tally.updates += 1
        tally.steps += record["steps"]
        tally.weight += record.get("weight", 0.0)
        tally.epsilon = record.get("epsilon", tally.epsilon)
        self.staleness[record["staleness"]] += 1
        answered = self.rounds.get(record["task"])
        in_general = record["buffer"] == GENERAL and not record["direct"]
        if answered is not None and answered.group is not None and in_general:
            answered.outcome = "late"
            tally.late += 1

    def _discard(self, record: Mapping[str, Any]) -> None:
        """Its steps were done and its budget was spent, though no merge will have it."""
        tally = self._of(record)
        tally.steps += record["steps"]
        tally.epsilon = record.get("epsilon", tally.epsilon)
        answered = self.rounds.pop(record["task"], None)
        if answered is not None:
            answered.outcome = "discarded"

    def _spend(self, record: Mapping[str, Any]) -> None:
        """Note what a client says of its privacy budget."""
        tally, told = self._of(record), record["privacy"]
        tally.epsilon = told.get("epsilon", tally.epsilon)
        tally.delta = told.get("delta", tally.delta)
        tally.budget_spent = "left" in told

    def _commit(self, record: Mapping[str, Any]) -> None:
        for buffer in record["buffers"]:
            self.due.pop(buffer, None)
        if not is_made(record):
            self.failed_merges += 1
            self.lost_updates += len(record["lost"])
            return
        self.merges += 1
        contributions = merged_in(record)
        self.merged += len(contributions)
        self.version = record["version"]
        makers = dict.fromkeys(client for client, _, _ in contributions)
        for client in makers:
            if client in self.clients:  # a journal may begin in the midst of a run
                self.clients[client].versions += 1 / len(makers)
        self.uploads_by_version.append(self.uploads)
        merged = [self.rounds.pop(task, None) for _, task, _ in contributions]
        together = [r for r in merged if r is not None and r.group in (None, *record["buffers"])]
        if len(together) > 1:
            arrivals = [answered.end for answered in together]
            length = max(arrivals) - min(answered.start for answered in together)
            self.spreads.append((max(arrivals) - min(arrivals)) / length if length > 0 else 0.0)

    def _wait(self, record: Mapping[str, Any]) -> None:
        self._switch(record["client"], "waiting", record["at"])
        if not self.begun:
            self.clients[record["client"]].since = None

    def _switch(self, client: ClientId, doing: Doing, at: Seconds) -> None:
        tally = self.clients.setdefault(client, ClientTally())
        before, since, ahead_until = tally.doing, tally.since, tally.ahead_until(at)
        elapsed = tally.switch(doing, at)
        if self.on_span is not None and since is not None and elapsed > 0:
            self.on_span(Span(client, before, since, at, ahead_until))

    def until(self, now: Seconds) -> dict[ClientId, ClientTally]:
        """Each client's part with what is under way counted up to now."""
        return {client: tally.until(now) for client, tally in self.clients.items()}

    def quarantined(self) -> list[ClientId]:
        """Who is in quarantine now."""
        return [client for client, tally in self.clients.items() if tally.doing == "quarantined"]

    def idle_share(self, now: Seconds) -> float:
        """The part of the clients' time spent waiting, by plan or for others, up to now."""
        return idle_share(self.until(now).values())

    def ahead_share(self, now: Seconds) -> float:
        """Of the idle share, the part in which a client's group was not due: it waited by plan."""
        return _share(list(self.until(now).values()), "ahead")

    def mean_staleness(self) -> float:
        """Mean over the accepted updates."""
        total = self.staleness.total()
        return sum(u * count for u, count in self.staleness.items()) / total if total else 0.0

    def uploads_before(self, version: ModelVersion) -> int:
        """Answers that had come when a version was made."""
        return self.uploads_by_version[version - self.version - 1] if version else 0
