"""Runs a policy: takes in events one by one and returns commands."""

from math import inf
from typing import Any, assert_never

from fedcompass.errors import EventRefused
from fedcompass.scheduling.commands import Command, Discard, Fold, Quarantine, StartTraining
from fedcompass.scheduling.events import (
    ClientJoined,
    ClientLost,
    DeadlinePassed,
    Event,
    MergeFailed,
    QuarantineLifted,
    SpoilerFound,
    TaskLost,
    UpdateArrived,
    UpdateRefused,
    UpdateReturned,
)
from fedcompass.scheduling.pace import INSTANT, Pace, observed
from fedcompass.scheduling.policy import Policy
from fedcompass.scheduling.roster import Member, Roster
from fedcompass.vocabulary import ClientId, ModelVersion, Refusal, Seconds

__all__ = ["Scheduler"]

_BACKWARDS: Seconds = 2 * INSTANT
"""Events of one instant come in any order, so time may step back by an instant and its rounding."""


class Scheduler:
    """Runs a policy: checks events, keeps the roster, and leaves the decisions to the policy.

    The scheduler never sees a tensor, a clock or a socket. The same events in the same order
    give the same commands, always.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.settings = policy.settings
        self._pace_settings = policy.settings.pace
        self.roster = Roster(self.settings.weights, self.settings.merge_at_least)
        self.now: Seconds = 0.0  # the latest event's time
        self.started = False  # min_clients have joined once

    def handle(self, event: Event) -> list[Command]:
        """Take in one event and return what to do about it, in order.

        Deadlines that are due before the event's time are carried out first. `UpdateReturned` and
        `MergeFailed` give no commands.

        Raises:
            EventRefused: the event is impossible; nothing was changed.
        """
        self._check(event)
        if event.at > self.now:
            self.now = event.at
        if isinstance(event, UpdateReturned | MergeFailed):  # what follows waits for an event
            return self._react(event)
        overdue: list[Command] = []
        if self.policy.next_deadline < event.at - INSTANT:
            overdue = self.policy.pass_deadlines(self.roster, event.at - INSTANT)
            overdue += self._go_on(event.at)
        commands = self._react(event)
        if overdue or self.roster.parked:
            return overdue + commands + self._go_on(event.at)
        return commands

    def _go_on(self, at: Seconds) -> list[Command]:
        """Give those a task who waited for a merge that was held, if it is made or can be."""
        if not self.roster.parked:
            return []
        commands: list[Command] = [*self.roster.commit_held(at)]
        for member in self.roster.unpark():
            commands += self.policy.again(self.roster, member, at)
        return commands

    def _react(self, event: Event) -> list[Command]:
        match event:
            case UpdateArrived():
                return self._on_update(event)
            case ClientJoined():
                return self._on_joined(event)
            case UpdateRefused():
                return self._on_refused(event)
            case UpdateReturned() | MergeFailed():
                return self._on_merge(event)
            case TaskLost():
                return self._lose_task(self.roster.members[event.client], event.at)
            case ClientLost():
                return self._on_lost(event.client, event.at)
            case DeadlinePassed():
                return self._on_deadline(event)
            case QuarantineLifted():
                return self._on_lifted(event)
            case SpoilerFound():
                self.roster.untold = ()
                return self._exclude(self.roster.members[event.client], event.at)
            case _:
                assert_never(event)

    @property
    def version(self) -> ModelVersion:
        """How often the global model has changed."""
        return self.roster.version

    def outstanding(self, client: ClientId) -> StartTraining | None:
        """The task whose answer counts for this client, if any."""
        member = self.roster.members.get(client)
        return member.task if member else None

    def pace(self, client: ClientId) -> Pace | None:
        """The present estimate of a client's pace, None before its first answer."""
        member = self.roster.members.get(client)
        return member.pace if member else None

    def pending(self) -> list[Fold]:
        """Updates that were accepted but not merged yet, oldest buffer first."""
        return [fold for folds in self.roster.unmerged.values() for fold in folds]

    def to_json(self) -> dict[str, Any]:
        """The whole state as JSON values, at any event."""
        return {
            "now": self.now,
            "started": self.started,
            "roster": self.roster.to_json(),
            "policy": self.policy.to_json(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `to_json` wrote; a fresh scheduler then continues as if never stopped."""
        self.now, self.started = state["now"], state["started"]
        self.roster.restore(state["roster"])
        self.policy.restore(state["policy"], self.roster)

    def _check(self, event: Event) -> None:
        if not self.now - _BACKWARDS <= event.at < inf:  # also refuses NaN
            raise EventRefused(
                f"{type(event).__name__} at t={event.at}s comes after an event at "
                f"t={self.now}s. Send events in the order of their time, which is finite."
            )
        match event:
            case UpdateArrived() | TaskLost():
                self._check_answer(event)
            case ClientJoined():
                _check_samples(event)
            case QuarantineLifted(client=client) if client in self.roster.barred:
                pass  # it has left, and may come back
            case ClientLost() | QuarantineLifted() | SpoilerFound():
                if event.client not in self.roster.members:
                    raise EventRefused(
                        f"client {event.client!r} is unknown (t={event.at:g}s). "
                        "Send ClientJoined before anything else of a client."
                    )
            case DeadlinePassed():
                self._check_deadline(event)
            case MergeFailed():
                self._check_made(event)
            case UpdateRefused() | UpdateReturned():
                pass  # any client: unknown ones are refused too
            case _:
                assert_never(event)

    def _check_answer(self, event: UpdateArrived | TaskLost) -> None:
        member = self.roster.members.get(event.client)
        given = member.task if member else None
        if given is None or given.task != event.task:
            holds = "holds no task" if given is None else f"holds task {given.task}"
            raise EventRefused(
                f"client {event.client!r} answered task {event.task} at t={event.at:g}s "
                f"but {holds}. Send one answer per StartTraining."
            )
        if isinstance(event, UpdateArrived) and not 0 <= event.steps_done <= given.steps:
            raise EventRefused(
                f"client {event.client!r} reports {event.steps_done} steps for task "
                f"{event.task}; allowed: 0 to {given.steps}."
            )

    def _check_made(self, event: MergeFailed) -> None:
        if not 1 <= event.version <= self.version:
            raise EventRefused(
                f"the merge of version {event.version} cannot have failed at t={event.at:g}s: the "
                f"version is {self.version}. Send MergeFailed for a Commit, before the next event."
            )

    def _check_deadline(self, event: DeadlinePassed) -> None:
        due = self.policy.deadline_of(event.group)
        if due is not None and event.at < due - INSTANT:
            raise EventRefused(
                f"the deadline of group {event.group} is at t={due}s, not t={event.at}s. "
                "Send DeadlinePassed at the time SetDeadline gave."
            )

    def _on_update(self, event: UpdateArrived) -> list[Command]:
        member = self.roster.members[event.client]
        task = member.task
        assert task is not None  # _check_answer saw it
        if event.steps_done == 0:
            return self._lose_task(member, event.at)
        elapsed = event.at - task.at
        member.pace = observed(
            self._pace_settings, member.pace, event.steps_done, elapsed, event.compute_seconds
        )
        member.task, member.refusals, member.unusual_at = None, 0, None
        commands = self.policy.accept(self.roster, member, task, event.steps_done, event.at)
        _check_folded(commands, task, self.policy)
        return commands

    def _on_joined(self, event: ClientJoined) -> list[Command]:
        commands: list[Command] = []
        if event.client in self.roster.members:
            commands += self._on_lost(event.client, event.at)
        member = self.roster.add(event.client, event.samples)
        if member.quarantined:
            return [*commands, Quarantine(at=event.at, client=event.client)]
        if self.started:
            return commands + self.policy.begin(self.roster, [member], event.at)
        if self.roster.active_count >= self.settings.min_clients:
            self.started = True
            commands += self.policy.begin(self.roster, list(self.roster.idle()), event.at)
        return commands

    def _on_refused(self, event: UpdateRefused) -> list[Command]:
        member = self.roster.members.get(event.client)
        if member is None or member.task is None or member.task.task != event.task:
            return []  # a duplicate or forged answer never cancels a live task
        member.refusals += self._counts(event, member)
        if member.refusals < self.settings.quarantine_after:
            return self._lose_task(member, event.at)
        return self._exclude(member, event.at)

    def _exclude(self, member: Member, at: Seconds) -> list[Command]:
        if member.quarantined:
            return []
        task, member.task = member.task, None
        self.roster.quarantine(member)
        quarantine = Quarantine(at=at, client=member.client)
        return [quarantine, *self.policy.forget(self.roster, member, task, at)]

    def _counts(self, event: UpdateRefused, member: Member) -> bool:
        """Whether a refusal counts towards quarantine.

        An unusual norm does where it happens again while others' updates pass, so that a version
        was made in between: training may have changed for everybody.
        """
        if event.reason != Refusal.UNUSUAL_NORM:
            return True
        before, now = member.unusual_at, self.version
        member.unusual_at = now
        return before is not None and before < now

    def _lose_task(self, member: Member, at: Seconds) -> list[Command]:
        task, member.task = member.task, None
        commands = self.policy.forget(self.roster, member, task, at)
        if member.task is None:
            commands += self.policy.again(self.roster, member, at)
        return commands

    def _on_deadline(self, event: DeadlinePassed) -> list[Command]:
        due = self.policy.deadline_of(event.group)
        if due is None:
            return []  # the group has merged
        return self.policy.pass_deadlines(self.roster, due, including=event.group)

    def _on_lost(self, client: ClientId, at: Seconds) -> list[Command]:
        member = self.roster.members[client]
        task, member.task = member.task, None
        self.roster.remove(member)
        return self.policy.forget(self.roster, member, task, at)

    def _on_merge(self, event: UpdateReturned | MergeFailed) -> list[Command]:
        if isinstance(event, UpdateReturned):
            self.roster.take_back(event)
        else:
            self.roster.undo_merge(event.version)
            self.roster.untold = event.untold or self.roster.untold
        return []

    def _on_lifted(self, event: QuarantineLifted) -> list[Command]:
        self.roster.untold = ()
        member = self.roster.members.get(event.client)
        if member is None:
            del self.roster.barred[event.client]
            return []
        if not member.quarantined:
            return []
        self.roster.readmit(member)
        return self.policy.begin(self.roster, [member], event.at)


def _check_folded(commands: list[Command], task: StartTraining, policy: Policy) -> None:
    """Make sure that no accepted update is lost, whoever wrote the policy.

    Raises:
        ValueError: none of the commands folds or discards the answer to the task.
    """
    for command in commands:
        if isinstance(command, Fold | Discard) and command.task == task.task:
            return
    raise ValueError(
        f"{type(policy).__name__}.accept did not fold the update of client {task.client!r} for "
        f"task {task.task}; return roster.fold(...) among its commands"
    )


def _check_samples(event: ClientJoined) -> None:
    if event.samples < 1:
        raise EventRefused(
            f"client {event.client!r} joins with {event.samples} samples (t={event.at:g}s); "
            "allowed: at least 1."
        )
