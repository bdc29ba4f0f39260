"""How clients spend a run's time: the one rule that every reader of a journal follows.

busy          from a task's dispatch to its answer, its loss or the client's departure, whatever
              became of the update. Of that, computing is what the client reports; the rest of an
              answered task is overhead.
waiting       present and without a task: from an answer, from joining or from the end of a
              quarantine to the next task. Before the run's first task nobody waits.
quarantined   from a quarantine until it is lifted, or until the client leaves or joins again.
away          all other time: before it joined and after it left.

The idle share is waiting / (busy + waiting): the part of the time that a client could have trained
in. Who is away or in quarantine could not have.

`report/page/run_model.js` follows the same rule; a test compares the two.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from fedcompass.vocabulary import ClientId, Seconds, TaskId

__all__ = ["ClientTime", "ClientTimes", "Doing", "Span", "idle_share"]

Doing: TypeAlias = Literal["busy", "waiting", "quarantined", "away"]
"""What a client is doing at a moment."""


class Span(NamedTuple):
    """What a client did from one moment to another."""

    client: ClientId
    doing: Doing
    start: Seconds
    end: Seconds


@dataclass(slots=True)
class ClientTime:
    """One client's seconds by what it did with them."""

    busy: Seconds = 0.0
    waiting: Seconds = 0.0
    quarantined: Seconds = 0.0
    doing: Doing = "away"
    since: Seconds | None = None  # when it began that; None: does not count (yet)
    task: TaskId | None = None  # the one it is busy with

    def until(self, now: Seconds) -> "ClientTime":
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
            case "quarantined":
                self.quarantined += elapsed
            case "away":
                pass
        self.doing, self.since, self.task = doing, at, None
        return elapsed


@dataclass(slots=True)
class ClientTimes:
    """Follows a journal line by line and keeps each client's time.

    on_span: called with each span of more than no time when it ends.
    """

    clients: dict[ClientId, ClientTime] = field(default_factory=dict)
    begun: bool = False  # the run has given its first task
    on_span: Callable[[Span], None] | None = field(default=None, compare=False)

    def take(self, record: Mapping[str, Any]) -> None:
        """Take in a journal's next line; those about no client's time change nothing."""
        match record.get("event") or record.get("command"):
            case "ClientJoined":
                self.join(record["client"], record["at"])
            case "StartTraining":
                self.start(record["client"], record["task"], record["at"])
            case "UpdateArrived" | "UpdateRefused" | "TaskLost":
                self.answer(record["client"], record["task"], record["at"])
            case "ClientLost":
                self.leave(record["client"], record["at"])
            case "Quarantine":
                self.quarantine(record["client"], record["at"])
            case "QuarantineLifted":
                self.lift(record["client"], record["at"])
            case _:
                pass

    def join(self, client: ClientId, at: Seconds) -> None:
        """A client is there; one that was there before starts over."""
        self._wait(client, at)

    def start(self, client: ClientId, task: TaskId, at: Seconds) -> None:
        """A client was given a task."""
        if not self.begun:
            self.begun = True
            for time in self.clients.values():
                if time.doing == "waiting":
                    time.since = at
        self._switch(client, "busy", at)
        self.clients[client].task = task

    def answer(self, client: ClientId, task: TaskId, at: Seconds) -> bool:
        """A client's task ended; says whether it did: an answer to another task changes nothing."""
        time = self.clients.get(client)
        ends = time is not None and time.doing == "busy" and time.task == task
        if ends:
            self._wait(client, at)
        return ends

    def leave(self, client: ClientId, at: Seconds) -> None:
        """A client is gone."""
        self._switch(client, "away", at)

    def quarantine(self, client: ClientId, at: Seconds) -> None:
        """A client gets no more tasks."""
        self._switch(client, "quarantined", at)

    def lift(self, client: ClientId, at: Seconds) -> None:
        """A client that was in quarantine may train again."""
        if client in self.clients and self.clients[client].doing == "quarantined":
            self._wait(client, at)

    def end(self, now: Seconds) -> None:
        """The run is over: count what is under way."""
        for client in self.clients:
            self._switch(client, "away", now)

    def _wait(self, client: ClientId, at: Seconds) -> None:
        self._switch(client, "waiting", at)
        if not self.begun:
            self.clients[client].since = None

    def _switch(self, client: ClientId, doing: Doing, at: Seconds) -> None:
        time = self.clients.get(client)
        if time is None:
            time = self.clients[client] = ClientTime()
        before, since = time.doing, time.since
        elapsed = time.switch(doing, at)
        if self.on_span is not None and since is not None and elapsed > 0:
            self.on_span(Span(client, before, since, at))

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        clients = {client: asdict(time) for client, time in self.clients.items()}
        return {"clients": clients, "begun": self.begun}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `to_json` wrote."""
        self.clients = {client: ClientTime(**time) for client, time in state["clients"].items()}
        self.begun = state["begun"]

    def idle_share(self, now: Seconds) -> float:
        """The part of the clients' time spent waiting for others, up to now."""
        ended = [time.until(now) for time in self.clients.values()]
        return idle_share(sum(t.busy for t in ended), sum(t.waiting for t in ended))


def idle_share(busy: Seconds, waiting: Seconds) -> float:
    """The waiting part of the time in which there was work or a wait for it."""
    return waiting / (busy + waiting) if busy + waiting > 0 else 0.0
