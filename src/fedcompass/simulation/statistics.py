"""What a run's journal says about its clients: work, waiting, staleness and weight."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from fedcompass.scheduling.commands import Command, Commit, Fold, StartTraining
from fedcompass.scheduling.events import ClientLost, Event, UpdateArrived, UpdateRefused
from fedcompass.vocabulary import ClientId, Seconds

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
    started: Seconds | None = None  # its present task's dispatch
    answered: Seconds | None = None  # its last answer, while it waits


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
                tally = self._of(client)
                if tally.started is not None:
                    tally.busy += at - tally.started
                tally.started, tally.answered = None, at
            case UpdateRefused(client=client):
                self._of(client).refused += 1
            case ClientLost(client=client):
                tally = self._of(client)
                tally.started = tally.answered = None
            case _:
                pass

    def command(self, command: Command, **notes: Any) -> None:
        """Count a dispatch, a fold or a merge."""
        match command:
            case StartTraining(at=at, client=client):
                tally = self._of(client)
                tally.tasks += 1
                if tally.answered is not None:
                    tally.waiting += at - tally.answered
                tally.started, tally.answered = at, None
            case Fold(client=client, staleness=staleness, steps=steps):
                tally = self._of(client)
                tally.updates += 1
                tally.steps += steps
                tally.weight += notes.get("weight", 0.0)
                self.staleness[staleness] += 1
            case Commit():
                self.merges += 1
            case _:
                pass

    def _of(self, client: ClientId) -> ClientTally:
        if client not in self.clients:
            self.clients[client] = ClientTally()
        return self.clients[client]

    def idle_share(self, now: Seconds) -> float:
        """The part of the clients' time spent waiting for others, up to `now`."""
        busy = waiting = 0.0
        for tally in self.clients.values():
            busy += tally.busy + (now - tally.started if tally.started is not None else 0.0)
            waiting += tally.waiting + (now - tally.answered if tally.answered is not None else 0.0)
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
