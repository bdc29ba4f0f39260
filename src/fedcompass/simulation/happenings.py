"""What can happen in a simulated run, and how it is kept in a checkpoint."""

from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from fedcompass.scheduling.commands import StartTraining
from fedcompass.simulation.executors import TrainJob
from fedcompass.vocabulary import ClientId, GroupId, Seconds

__all__ = [
    "Arrival",
    "Departure",
    "Happening",
    "PassedDeadline",
    "Return",
    "command_of",
    "to_json",
]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A client answers a task; `job` is its training, done by the time this happens."""

    command: StartTraining
    job: TrainJob
    compute_seconds: Seconds


@dataclass(frozen=True, slots=True)
class PassedDeadline:
    """A group's deadline."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class Departure:
    """A client drops out."""

    client: ClientId


@dataclass(frozen=True, slots=True)
class Return:
    """A client that dropped out is back."""

    client: ClientId


Happening: TypeAlias = Arrival | PassedDeadline | Departure | Return


def to_json(happening: Happening) -> dict[str, Any]:
    """A happening as JSON values; a job's start model is kept apart, by its version."""
    match happening:
        case Arrival(command=command, job=job):
            return {
                "kind": "answer",
                "task": [command.at, command.client, command.task, command.steps, command.version],
                "group": command.group,
                "steps": job.steps,
                "local_round": job.local_round,
                "steps_before": command.steps_before,
                "compute_seconds": happening.compute_seconds,
            }
        case PassedDeadline(group=group):
            return {"kind": "deadline", "group": group}
        case Departure(client=client):
            return {"kind": "departure", "client": client}
        case Return(client=client):
            return {"kind": "return", "client": client}
        case _:
            assert_never(happening)


def command_of(record: dict[str, Any]) -> StartTraining:
    """The command of an answer that `to_json` wrote."""
    at, client, task, steps, version = record["task"]
    return StartTraining(
        at=at,
        client=client,
        task=task,
        steps=steps,
        version=version,
        group=record["group"],
        steps_before=record["steps_before"],
    )
