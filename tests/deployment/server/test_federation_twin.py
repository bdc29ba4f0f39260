"""A simulated run's journal, played to the deployment's loop, gives the same commands."""

from collections.abc import Collection
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.exactly_once import records
from tests.deployment.fake_network import INITIAL, LAYOUT, Clock, SentModel

from fedcompass import Experiment, simulate
from fedcompass.aggregation.layout import FlatState
from fedcompass.deployment.server.federation import Federation
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.wire.transport import Assignment, Greeting, NodeId, Remark, Reply

pytestmark = pytest.mark.usefixtures("quick_disk")


class Stage:
    """A `Transport` whose sites answer when a script says so."""

    def __init__(self, samples: list[int]) -> None:
        self.samples = samples
        self.held: dict[int, tuple[str, FlatState]] = {}  # by task
        self.here: list[Reply] = []

    def nodes(self) -> set[NodeId]:
        return set(range(1, len(self.samples) + 1))

    def greeting(self, node: NodeId) -> Greeting:
        number = int(node) - 1
        return Greeting(str(number), self.samples[number])

    def push(self, node: NodeId, assignment: Assignment) -> str | None:
        message = f"task {assignment.task}"
        self.held[assignment.task] = (message, assignment.model)
        return message

    def answer(self, event: dict[str, Any]) -> None:
        message, model = self.held.pop(event["task"])
        reply = Reply(
            message=message,
            node=int(event["client"]) + 1,
            payload=SentModel(model),
            steps_done=event["steps_done"],
            seconds=event["compute_seconds"],
        )
        self.here.append(reply)

    def is_revoked(self, node: NodeId) -> bool:
        return False

    def confirm(self, run: str, tasks: Collection[int]) -> None:
        pass

    def departures(self) -> list[Reply]:
        return []

    def remarks(self) -> list[Remark]:
        return []

    def pull(self, messages: Collection[str]) -> list[Reply]:
        here, self.here = self.here, []
        return here


@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "fedcompass"},
        {"name": "fedavg"},
        {"name": "fedasync"},
        {"name": "fedbuff"},
        {"name": "fedat"},
        {"name": "fedat", "profiling": "tasks"},
    ],
    ids=lambda strategy: "-".join(strategy.values()),
)
def test_the_deployment_takes_the_same_decisions_as_the_simulation(
    tmp_path: Path, strategy: dict[str, Any]
) -> None:
    pace = {"overhead_aware": True, "newest_weight": 0.5}
    guard = {"times_median": 100.0, "max_buffer": 1e12, "max_passes": 1}
    strategy = {**strategy, "pace": pace, "guard": guard}
    experiment = Experiment(seed=4, strategy=strategy, horizon=40.0)
    simulate(experiment, executor="none", folder=tmp_path / "simulated")
    header, *simulated = records(tmp_path / "simulated")
    events = [record for record in simulated if "event" in record]
    samples = [event["samples"] for event in events if event["event"] == "ClientJoined"]
    chosen = FederationSettings(
        strategy=experiment.strategy, min_clients=len(samples), max_updates=10**6
    )
    assert chosen.chosen_strategy().to_json() == header["strategy"]
    stage, clock = Stage(samples), Clock(0.0)
    running = Federation(chosen, LAYOUT, INITIAL.clone(), stage, tmp_path / "deployed", clock=clock)
    for at, together in groupby(events, key=lambda event: event["at"]):
        clock.now = at
        for event in together:
            if event["event"] == "UpdateArrived":
                stage.answer(event)
        running.step()
    running.close()
    _, *deployed = records(tmp_path / "deployed")
    assert commands(deployed) == commands(simulated)
    assert len(commands(deployed)) > 30


def commands(journal: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in journal if "command" in record]
