"""Short words for conversations with a scheduler: events in, whole lists of commands out."""

from typing import Literal

from fedcompass.scheduling.commands import (
    DIRECT,
    Command,
    Commit,
    Discard,
    Fold,
    Hold,
    Quarantine,
    SetDeadline,
    StartTraining,
)
from fedcompass.scheduling.compass import Compass, CompassSettings
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
from fedcompass.scheduling.immediate import BufferedSettings, Immediate, buffered
from fedcompass.scheduling.pace import PaceSettings
from fedcompass.scheduling.policy import FixedStepsSettings
from fedcompass.scheduling.roster import Weights
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.scheduling.synchronous import Synchronous
from fedcompass.scheduling.tiered import Tiered, TieredSettings


def compass(
    *,
    min_steps: int = 20,
    max_steps: int = 100,
    latest: float = 1.2,
    min_clients: int = 1,
    weights: Weights = "samples",
    pace: PaceSettings | None = None,
    quarantine_after: int = 3,
    merge_at_least: int = 1,
    create_group: Literal["clamp", "pass-over"] = "clamp",
) -> Scheduler:
    """Compass with the settings of the paper's figures."""
    settings = CompassSettings(
        min_steps=min_steps,
        max_steps=max_steps,
        latest=latest,
        min_clients=min_clients,
        weights=weights,
        pace=pace or PaceSettings(),
        quarantine_after=quarantine_after,
        merge_at_least=merge_at_least,
        create_group=create_group,
    )
    return Scheduler(Compass(settings))


def synchronous(min_clients: int = 1) -> Scheduler:
    """FedAvg's, rounds of 10 steps."""
    return Scheduler(Synchronous(FixedStepsSettings(steps=10, min_clients=min_clients)))


def immediate(weights: Weights = "samples") -> Scheduler:
    """FedAsync's, tasks of 10 steps."""
    return Scheduler(Immediate(FixedStepsSettings(steps=10, weights=weights)))


def buffered_by(size: int) -> Scheduler:
    """FedBuff's, tasks of 10 steps."""
    return Scheduler(buffered(BufferedSettings(steps=10, buffer_size=size)))


def tiered(
    min_clients: int = 1, ratio: float = 2.0, profiling: Literal["round", "tasks"] = "round"
) -> Scheduler:
    """FedAT's, rounds of 10 steps."""
    settings = TieredSettings(
        steps=10, min_clients=min_clients, tier_ratio=ratio, profiling=profiling
    )
    return Scheduler(Tiered(settings))


def tell(scheduler: Scheduler, *events: Event) -> list[Command]:
    """Hand over events; gives back what the scheduler said to the last one."""
    commands: list[Command] = []
    for event in events:
        commands = scheduler.handle(event)
    return commands


def joined(client: str, at: float = 0.0, samples: int = 1) -> ClientJoined:
    return ClientJoined(at=at, client=client, samples=samples)


def arrived(
    at: float, client: str, task: int, steps: int, compute: float | None = None
) -> UpdateArrived:
    return UpdateArrived(at=at, client=client, task=task, steps_done=steps, compute_seconds=compute)


def refused(at: float, client: str, task: int, reason: str = "not-finite") -> UpdateRefused:
    return UpdateRefused(at=at, client=client, task=task, reason=reason)


def task_lost(at: float, client: str, task: int) -> TaskLost:
    return TaskLost(at=at, client=client, task=task)


def lost(at: float, client: str) -> ClientLost:
    return ClientLost(at=at, client=client)


def passed(at: float, group: int) -> DeadlinePassed:
    return DeadlinePassed(at=at, group=group)


def lifted(at: float, client: str) -> QuarantineLifted:
    return QuarantineLifted(at=at, client=client)


def start(
    at: float, client: str, task: int, steps: int, version: int, group: int | None = None
) -> StartTraining:
    return StartTraining(at=at, client=client, task=task, steps=steps, version=version, group=group)


def fold(
    at: float,
    client: str,
    task: int,
    steps: int,
    buffer: int,
    share: float,
    staleness: int = 0,
) -> Fold:
    return Fold(
        at=at,
        client=client,
        task=task,
        buffer=buffer,
        staleness=staleness,
        share=share,
        steps=steps,
    )


def discard(at: float, client: str, task: int, steps: int) -> Discard:
    return Discard(at=at, client=client, task=task, steps=steps)


def first(at: float, client: str, task: int, share: float, staleness: int = 0) -> Fold:
    """A client's first answer of 20 steps to Compass."""
    return fold(at, client, task, 20, DIRECT, share, staleness)


def commit(at: float, version: int, buffers: tuple[int, ...], *folds: Fold) -> Commit:
    return Commit(at=at, version=version, buffers=buffers, contributions=tuple(folds))


def hold(at: float, *buffers: int) -> Hold:
    return Hold(at=at, buffers=buffers)


def deadline(at: float, group: int) -> SetDeadline:
    return SetDeadline(at=at, group=group)


def quarantine(at: float, client: str) -> Quarantine:
    return Quarantine(at=at, client=client)
