"""A small fleet in virtual time that drives a scheduler to the letter or as nastily as allowed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from fedcompass.scheduling.commands import Command, SetDeadline, StartTraining
from fedcompass.scheduling.events import ClientJoined, DeadlinePassed, Event, UpdateArrived
from fedcompass.scheduling.pace import INSTANT
from fedcompass.vocabulary import ClientId, Seconds


@dataclass
class VirtualFleet:
    """Clients with a duration per task; what is due next is chosen by `rng` among equals."""

    handle: Callable[[Event], list[Command]]
    seconds_for: Callable[[StartTraining], Seconds]
    rng: random.Random
    lateness: Callable[[], Seconds] = lambda: 0.0  # how late a deadline is delivered
    queue: list[tuple[Seconds, int, Event]] = field(default_factory=list)
    said: list[list[Command]] = field(default_factory=list)  # every answer of the scheduler
    ties: int = 0  # how often an arrival and a deadline were due at one instant
    now: Seconds = 0.0

    def join(self, clients: list[ClientId]) -> None:
        for client in clients:
            self._tell(ClientJoined(at=0.0, client=client, samples=1))

    def run(self, arrivals: int, max_events: int = 100_000) -> None:
        """Deliver events until so many answers have arrived."""
        for _ in range(max_events):
            event = self._next()
            arrivals -= isinstance(event, UpdateArrived)
            self._tell(event)
            if not arrivals:
                return
        raise AssertionError(f"{arrivals} answers short after {max_events} events")

    def _next(self) -> Event:
        assert self.queue, "somebody hangs: nothing is under way any more"
        earliest = min(self.queue)[0]
        together = [entry for entry in self.queue if entry[0] <= earliest + INSTANT]
        self.ties += len({type(entry[2]) for entry in together}) > 1
        chosen = self.rng.choice(together)
        self.queue.remove(chosen)
        return chosen[2]

    def _tell(self, event: Event) -> None:
        self.now = max(self.now, event.at)
        commands = self.handle(event)
        self.said.append(commands)
        for command in commands:
            match command:
                case StartTraining():
                    self._add(self._answer(command))
                case SetDeadline():
                    at = max(command.at + self.lateness(), self.now)
                    self._add(DeadlinePassed(at=at, group=command.group))
                case _:
                    pass

    def _answer(self, order: StartTraining) -> UpdateArrived:
        at = max(order.at + self.seconds_for(order), self.now)
        return UpdateArrived(at=at, client=order.client, task=order.task, steps_done=order.steps)

    def _add(self, event: Event) -> None:
        self.queue.append((event.at, len(self.said) * 100 + len(self.queue), event))
