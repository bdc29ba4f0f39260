"""Random runs of any strategy in virtual time: arrivals, losses, bad answers, late deadlines."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random

import pytest
import torch

from fedcompass.aggregation import FlatState, Layout, TensorSpec
from fedcompass.coordinator import Coordinator, DriverCommand, Update
from fedcompass.errors import EventRefused
from fedcompass.runs.journal import Journal
from fedcompass.scheduling.commands import SetDeadline, StartTraining
from fedcompass.strategies import Strategy, names, strategy

LAYOUT = Layout(
    (
        TensorSpec("weight", (3,), torch.float32, "trainable"),
        TensorSpec("running_mean", (1,), torch.float32, "averaged"),
        TensorSpec("batches", (), torch.int64, "counted"),
    )
)


def small(name: str, **settings: object) -> Strategy:
    """A strategy with few steps, so that a run of some hundred events sees everything."""
    steps: dict[str, object] = {"steps": 4}
    if name.startswith(("fedcompass", "metronome")):
        steps = {"min_steps": 2, "max_steps": 8}
    if name == "fedbuff":
        steps["buffer_size"] = 3
    return strategy(name, **{"min_clients": 3, "quarantine_after": 2, **steps, **settings})


def all_strategies() -> list[Strategy]:
    """Every named strategy, and the variants."""
    variants = [small(name, variant="share") for name in ("fedasync", "fedbuff")]
    overhead_aware = small("fedcompass", pace={"overhead_aware": True, "newest_weight": 0.5})
    adam = small("fedat", server={"optimizer": "adam", "learning_rate": 0.1})
    profiled = small("fedat", profiling="tasks")
    return [*(small(name) for name in names()), *variants, overhead_aware, adam, profiled]


def model() -> FlatState:
    """The model every run starts from."""
    return FlatState(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5]), torch.tensor([7]))


class RandomRun:
    """Drives a coordinator with random events; the same seed and coordinator give the same run."""

    def __init__(self, chosen: Strategy, seed: int, journal: Journal | None = None) -> None:
        self.strategy = chosen
        self.coordinator = self.fresh_coordinator(journal)
        self.refused = 0
        self.seen: list[object] = []  # what the coordinator answered, in order
        self._random = Random(seed)
        self._queue: list[tuple[float, int, Callable[[float], list[DriverCommand]]]] = []
        self._serial = count()
        self._now = 0.0
        for number in range(5):
            self._plan(number * 0.3, partial(self._join, f"client {number}"))

    def fresh_coordinator(self, journal: Journal | None = None) -> Coordinator:
        """One that has seen nothing yet."""
        return Coordinator(self.strategy, LAYOUT, model(), journal)

    def go(self, events: int) -> "RandomRun":
        """Let so many things happen."""
        for _ in range(events):
            if not self._queue or self._random.random() < 0.25:
                commands = self._mishap()
            else:
                at, _, happen = heappop(self._queue)
                self._now = max(self._now, at)
                commands = happen(self._now)
            self._carry_out(commands)
        return self

    def outcome(self) -> tuple[object, ...]:
        """All that two equal runs have in common, down to the bits."""
        vectors = self.coordinator.model.tensors().values()
        bits = tuple(vector.numpy().tobytes() for vector in vectors)
        return bits, self.coordinator.scheduler.to_json(), self.seen

    def _plan(self, at: float, happen: Callable[[float], list[DriverCommand]]) -> None:
        heappush(self._queue, (at, next(self._serial), happen))

    def _carry_out(self, commands: list[DriverCommand]) -> None:
        self.seen.extend(commands)
        for command in commands:
            match command:
                case StartTraining():
                    number = int(command.client.split()[1])
                    pace = (1.0 + number) * self._random.choice([0.1, 0.1, 0.1, 0.25])
                    self._plan(command.at + command.steps * pace, self._answer(command))
                case SetDeadline(group=group):
                    delay = self._random.choice([0.0, 0.0, 0.0, 1.0])
                    at = command.at + delay
                    self._plan(at, partial(self._pass_deadline, group))
                case _:
                    pass

    def _join(self, client: str, at: float) -> list[DriverCommand]:
        return self.coordinator.join(at, client, 10)

    def _pass_deadline(self, group: int, at: float) -> list[DriverCommand]:
        return self.coordinator.pass_deadline(at, group)

    def _answer(self, command: StartTraining) -> Callable[[float], list[DriverCommand]]:
        done = max(0, command.steps - self._random.choice([0, 0, 0, 1, 8]))
        numbers = torch.randn(3, generator=torch.Generator().manual_seed(command.task))
        update = Update(
            client=command.client,
            task=command.task,
            version=command.version,
            steps_done=done,
            tensors=FlatState(numbers, torch.tensor([0.1 * done]), torch.tensor([command.task])),
            compute_seconds=0.05 * done,
        )
        luck = self._random.random() * (0.3 if command.client == "client 4" else 1.0)
        if luck < 0.1:
            numbers[1] = torch.nan
        elif luck < 0.15:
            update = replace(update, version=command.version + 1)
        return partial(self._receive, update)

    def _receive(self, update: Update, at: float) -> list[DriverCommand]:
        receipt = self.coordinator.receive(at, update)
        self.seen.append(receipt.refused)
        self.refused += receipt.refused is not None
        if self._random.random() < 0.1:  # the same answer once more
            again = self.coordinator.receive(at, update)
            assert again.refused is not None
            return [*receipt.commands, *again.commands]
        return receipt.commands

    def _mishap(self) -> list[DriverCommand]:
        client = f"client {self._random.randrange(6)}"
        command = self.coordinator.scheduler.outstanding(client)
        try:
            match self._random.randrange(5):
                case 0:
                    return self.coordinator.join(self._now, client, 5 + len(self.seen) % 7)
                case 1:
                    return self.coordinator.lose(self._now, client)
                case 2:
                    return self.coordinator.lift_quarantine(self._now, client)
                case 3 if command is not None:
                    return self.coordinator.lose_task(self._now, client, command.task)
                case _:
                    return []
        except EventRefused:
            return []  # of an unknown client


@pytest.fixture(
    params=all_strategies(),
    ids=lambda s: f"{s.name}-{s.variant}-{s.aggregation.server.optimizer}",
)
def any_strategy(request: pytest.FixtureRequest) -> Strategy:
    """Each strategy in turn."""
    chosen: Strategy = request.param
    return chosen


@pytest.fixture
def random_run() -> type[RandomRun]:
    """The class, as a fixture, so that tests need not import from each other."""
    return RandomRun
