"""What a run's journal says about its clients: work, waiting, staleness and weight."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, assert_never

from fedcompass.aggregation import Refusal
from fedcompass.runs.client_time import ClientTime, ClientTimes
from fedcompass.scheduling.commands import (
    Command,
    Commit,
    Fold,
    Quarantine,
    SetDeadline,
    StartTraining,
)
from fedcompass.scheduling.events import (
    ClientJoined,
    ClientLost,
    DeadlinePassed,
    Event,
    QuarantineLifted,
    TaskLost,
    UpdateArrived,
    UpdateRefused,
)
from fedcompass.vocabulary import ClientId, Seconds

__all__ = ["ClientTally", "Statistics"]


@dataclass(slots=True)
class ClientTally:
    """One client's part in a run, but for its time."""

    tasks: int = 0
    updates: int = 0  # accepted
    refused: int = 0
    not_finite: int = 0  # of the refused: they held NaN or infinity
    steps: int = 0  # of accepted updates
    weight: float = 0.0  # sum of its updates' weights


@dataclass(slots=True)
class Statistics:
    """A `Journal` that counts instead of writing."""

    clients: dict[ClientId, ClientTally] = field(default_factory=dict)
    times: ClientTimes = field(default_factory=ClientTimes)
    staleness: Counter[int] = field(default_factory=Counter)
    merges: int = 0

    def event(self, event: Event) -> None:
        """Count an answer, a refusal, a coming or a going."""
        match event:
            case UpdateArrived() | TaskLost():
                self.times.answer(event.client, event.task, event.at)
            case UpdateRefused(client=client):
                tally = self._of(client)
                tally.refused += 1
                tally.not_finite += event.reason == Refusal.NOT_FINITE
                self.times.answer(client, event.task, event.at)
            case ClientJoined():
                self._of(event.client)
                self.times.join(event.client, event.at)
            case ClientLost():
                self.times.leave(event.client, event.at)
            case QuarantineLifted():
                self.times.lift(event.client, event.at)
            case DeadlinePassed():
                pass
            case _:
                assert_never(event)

    def command(self, command: Command, **notes: Any) -> None:
        """Count a dispatch, a fold, a merge or a quarantine."""
        match command:
            case StartTraining(client=client):
                self._of(client).tasks += 1
                self.times.start(client, command.task, command.at)
            case Fold(client=client, staleness=staleness, steps=steps):
                tally = self._of(client)
                tally.updates += 1
                tally.steps += steps
                tally.weight += notes.get("weight", 0.0)
                self.staleness[staleness] += 1
            case Commit():
                self.merges += 1
            case Quarantine():
                self.times.quarantine(command.client, command.at)
            case SetDeadline():
                pass
            case _:
                assert_never(command)

    def _of(self, client: ClientId) -> ClientTally:
        if client not in self.clients:
            self.clients[client] = ClientTally()
        return self.clients[client]

    def time_of(self, client: ClientId, now: Seconds) -> ClientTime:
        """How a client spent its time up to now."""
        return self.times.clients.get(client, ClientTime()).until(now)

    def quarantined(self) -> list[ClientId]:
        """Who is in quarantine now."""
        return [c for c, time in self.times.clients.items() if time.doing == "quarantined"]

    def idle_share(self, now: Seconds) -> float:
        """The part of the clients' time spent waiting for others, up to `now`."""
        return self.times.idle_share(now)

    def mean_staleness(self) -> float:
        """Mean over the accepted updates."""
        total = sum(self.staleness.values())
        return sum(u * count for u, count in self.staleness.items()) / total if total else 0.0

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "clients": {client: asdict(tally) for client, tally in self.clients.items()},
            "times": self.times.to_json(),
            "staleness": sorted(self.staleness.items()),
            "merges": self.merges,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `to_json` wrote."""
        self.clients = {client: ClientTally(**tally) for client, tally in state["clients"].items()}
        self.times.restore(state["times"])
        self.staleness = Counter({int(u): count for u, count in state["staleness"]})
        self.merges = state["merges"]
