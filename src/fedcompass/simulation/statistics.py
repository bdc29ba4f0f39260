"""What a run's journal says about its clients: work, waiting, staleness and weight."""

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedcompass.scheduling.commands import Command, Commit, Fold, Quarantine, StartTraining
from fedcompass.scheduling.events import ClientLost, Event, UpdateArrived, UpdateRefused
from fedcompass.vocabulary import ClientId, Seconds, TaskId

__all__ = ["ClientTally", "Statistics"]


@dataclass(slots=True)
class ClientTally:
    """One client's part in a run; seconds are virtual."""

    tasks: int = 0
    updates: int = 0  # accepted
    refused: int = 0
    steps: int = 0  # of accepted updates
    busy: Seconds = 0.0  # from dispatch to answer
    waiting: Seconds = 0.0  # from answer to the next dispatch
    weight: float = 0.0  # sum of its updates' weights
    task: TaskId | None = None  # its present one
    started: Seconds | None = None  # its present task's dispatch
    answered: Seconds | None = None  # its last answer, while it waits

    def until(self, now: Seconds) -> "ClientTally":
        """The same with the present task or wait counted up to now, and nothing under way."""
        busy = self.busy + (now - self.started if self.started is not None else 0.0)
        waiting = self.waiting + (now - self.answered if self.answered is not None else 0.0)
        return replace(self, busy=busy, waiting=waiting, task=None, started=None, answered=None)

    def answer(self, at: Seconds) -> None:
        """End the present task; the client waits from now on."""
        if self.started is not None:
            self.busy += at - self.started
        self.task, self.started, self.answered = None, None, at

    def leave(self) -> None:
        """Neither work nor wait any more."""
        self.task = self.started = self.answered = None


@dataclass(slots=True)
class Statistics:
    """A `Journal` that counts instead of writing."""

    clients: dict[ClientId, ClientTally] = field(default_factory=dict)
    staleness: Counter[int] = field(default_factory=Counter)
    merges: int = 0

    def event(self, event: Event) -> None:
        """Count an answer, a refusal or a loss."""
        match event:
            case UpdateArrived(at=at, client=client):
                self._of(client).answer(at)
            case UpdateRefused(at=at, client=client, task=task):
                tally = self._of(client)
                tally.refused += 1
                if tally.task == task:  # a forged answer does not end a live task
                    tally.answer(at)
            case ClientLost(client=client):
                self._of(client).leave()
            case _:
                pass

    def command(self, command: Command, **notes: Any) -> None:
        """Count a dispatch, a fold or a merge."""
        match command:
            case StartTraining(at=at, client=client, task=task):
                tally = self._of(client)
                tally.tasks += 1
                if tally.answered is not None:
                    tally.waiting += at - tally.answered
                tally.task, tally.started, tally.answered = task, at, None
            case Fold(client=client, staleness=staleness, steps=steps):
                tally = self._of(client)
                tally.updates += 1
                tally.steps += steps
                tally.weight += notes.get("weight", 0.0)
                self.staleness[staleness] += 1
            case Commit():
                self.merges += 1
            case Quarantine(client=client):
                self._of(client).leave()
            case _:
                pass

    def _of(self, client: ClientId) -> ClientTally:
        if client not in self.clients:
            self.clients[client] = ClientTally()
        return self.clients[client]

    def idle_share(self, now: Seconds) -> float:
        """The part of the clients' time spent waiting for others, up to `now`."""
        tallies = [tally.until(now) for tally in self.clients.values()]
        busy = sum(tally.busy for tally in tallies)
        waiting = sum(tally.waiting for tally in tallies)
        return waiting / (busy + waiting) if busy + waiting else 0.0

    def mean_staleness(self) -> float:
        """Mean over the accepted updates."""
        total = sum(self.staleness.values())
        return sum(u * count for u, count in self.staleness.items()) / total if total else 0.0

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "clients": {client: asdict(tally) for client, tally in self.clients.items()},
            "staleness": sorted(self.staleness.items()),
            "merges": self.merges,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `to_json` wrote."""
        self.clients = {client: ClientTally(**tally) for client, tally in state["clients"].items()}
        self.staleness = Counter({int(u): count for u, count in state["staleness"]})
        self.merges = state["merges"]
