"""The schedule alone: who trains how long and what is merged when, without any training."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from fedcompass.runs.journal import Journal, NoJournal
from fedcompass.scheduling.commands import Commit, SetDeadline, StartTraining
from fedcompass.scheduling.events import ClientJoined, DeadlinePassed, Event, UpdateArrived
from fedcompass.scheduling.pace import INSTANT
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.simulation.event_queue import EventQueue
from fedcompass.vocabulary import ClientId, GroupId, Seconds, fact

__all__ = ["Merge", "ScheduleEntry", "row", "timetable"]


@fact
class Merge(Commit):
    """A commit, and the group that merges, if one does.

    A deadline that finds late answers only merges them in its group's name.
    """

    group: GroupId | None


ScheduleEntry: TypeAlias = StartTraining | Merge
"""A client is sent to train, or the model changes."""


def timetable(
    scheduler: Scheduler,
    samples: Mapping[ClientId, int],
    seconds_per_step: Callable[[ClientId, int], Seconds],
    until: Seconds,
    overhead: Mapping[ClientId, Seconds] | None = None,
    journal: Journal | None = None,
) -> Iterator[ScheduleEntry]:
    """Run a fresh scheduler in virtual time and tell what happens up to and including `until`.

    Args:
        scheduler: told that all clients join at time 0.
        samples: the clients, in the order in which they join, and how many samples each has.
        seconds_per_step: a client's true pace in its local round 0 (the warm-up), 1, …
        until: the last moment told.
        overhead: of a client's task, beside its steps; none unless given.
        journal: takes down every event and command; none unless given.
    """
    queue: EventQueue[Event] = EventQueue()
    rounds = dict.fromkeys(samples, 0)
    record = journal or NoJournal()

    def take_in(event: Event) -> Iterator[ScheduleEntry]:
        commands = scheduler.handle(event)
        record.event(event)
        for command in commands:
            record.command(command)
            match command:
                case StartTraining():
                    pace = seconds_per_step(command.client, rounds[command.client])
                    rounds[command.client] += 1
                    beside = overhead[command.client] if overhead else 0.0
                    queue.add_arrival(*_answer(command, pace, beside))
                    yield command
                case SetDeadline(at=at, group=group):
                    queue.add_deadline(at, group, DeadlinePassed(at=at, group=group))
                case Commit():
                    own = next((buffer for buffer in command.buffers if buffer > 0), None)
                    yield Merge(
                        at=command.at,
                        version=command.version,
                        buffers=command.buffers,
                        contributions=command.contributions,
                        group=event.group if isinstance(event, DeadlinePassed) else own,
                    )
                case _:
                    pass

    for client, count in samples.items():
        yield from take_in(ClientJoined(at=0.0, client=client, samples=count))
    while len(queue) and queue.peek() <= until + INSTANT:
        yield from take_in(queue.pop().what)


def _answer(
    command: StartTraining, pace: Seconds, overhead: Seconds
) -> tuple[Seconds, int, UpdateArrived]:
    seconds = command.steps * pace
    arrival = UpdateArrived(
        at=command.at + (overhead + seconds),
        client=command.client,
        task=command.task,
        steps_done=command.steps,
        compute_seconds=seconds,
    )
    return arrival.at, command.task, arrival


def row(entry: ScheduleEntry) -> dict[str, Any]:
    """An entry as a flat record, the same keys for both kinds; a merge adds `contributions`."""
    if isinstance(entry, StartTraining):
        return {
            "time": entry.at,
            "event": "dispatch",
            "client": int(entry.client),
            "steps": entry.steps,
            "group": entry.group,
            "version": entry.version,
            "staleness": None,
        }
    return {
        "time": entry.at,
        "event": "merge",
        "client": None,
        "steps": None,
        "group": entry.group,
        "version": entry.version,
        "staleness": max(fold.staleness for fold in entry.contributions),
        "contributions": [[int(fold.client), fold.staleness] for fold in entry.contributions],
    }
