"""What a scheduler has to decide, and nothing else.

`Scheduler` and `Roster` do the rest once for all: membership, task ids, refusals, quarantine, paces
and unmerged updates. A new scheduler is one small class with this interface (the smallest is in
`immediate.py`). To look at its schedule alone: `fedcompass.simulate(experiment, executor="none")`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf
from typing import Any, Protocol, Self

from pydantic import Field, model_validator

from fedcompass.scheduling.arrival_groups import ArrivalGroup, AwaitedGroups
from fedcompass.scheduling.commands import Command, StartTraining
from fedcompass.scheduling.pace import PaceSettings
from fedcompass.scheduling.roster import Member, Roster, Weights
from fedcompass.settings import Settings
from fedcompass.vocabulary import GroupId, Seconds, Steps

__all__ = [
    "FixedStepsSettings",
    "GroupDeadlines",
    "NoDeadlines",
    "Policy",
    "SchedulerSettings",
    "StepRangeSettings",
]


class SchedulerSettings(Settings):
    """What every scheduler can be told."""

    min_clients: int = Field(default=1, ge=1)
    """The run starts when so many clients have joined."""

    weights: Weights = "samples"
    """p_i: the client's share of the samples, or equal."""

    merge_at_least: int = Field(default=1, ge=1)
    """A merge waits until it has updates of so many clients; secure aggregation needs 3."""

    quarantine_after: int = Field(default=3, ge=1)
    """So many refused answers in a row quarantine a client."""

    pace: PaceSettings = PaceSettings()

    @property
    def repeats_updates(self) -> bool:
        """Whether the scheduler may ask for a client's last update once more (`FoldAgain`)."""
        return False


class FixedStepsSettings(SchedulerSettings):
    """What a scheduler can be told that gives every task the same number of steps."""

    steps: int = Field(default=200, ge=1)
    """Q: local steps of every task."""


class StepRangeSettings(SchedulerSettings):
    """What a scheduler can be told that chooses a task's steps from a range."""

    min_steps: int = Field(default=40, ge=1)
    """Q_min: fewest local steps of a task."""

    max_steps: int = Field(default=200, ge=1)
    """Q_max: most local steps of a task."""

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.min_steps > self.max_steps:
            raise ValueError(
                f"min_steps is {self.min_steps}; allowed: at least 1 and at most max_steps, "
                f"which is {self.max_steps}"
            )
        return self


class Policy(Protocol):
    """Decides who trains how long and when to merge. Pure: no clock, no I/O, no randomness.

    Every method returns the commands it wants carried out, in order. `at` is the present time.

    Commands are made by the roster: `start`, `fold`, `discard`, `commit`. They change the roster
    when they are called, so call them in the order in which they are returned, and return every
    one. Where merges wait for several clients, ask `roster.is_parked` before `start`. A policy
    without deadlines inherits their three methods from `NoDeadlines`, one whose groups have some
    from `GroupDeadlines`.
    """

    @property
    def settings(self) -> SchedulerSettings:
        """The checked settings the policy was built with."""
        ...

    def begin(self, roster: Roster, members: Sequence[Member], at: Seconds) -> list[Command]:
        """Members without a pace may start: the run begins, or one joined or was readmitted.

        When the run begins these are all members so far; later it is one at a time. Who gets no
        task now waits until a later call gives it one: it is among `roster.idle()` then.
        """
        ...

    def accept(
        self, roster: Roster, member: Member, task: StartTraining, steps: Steps, at: Seconds
    ) -> list[Command]:
        """The member answered `task` with an update of `steps` steps; its pace is up to date.

        The update must be folded; or discarded, where the task was given for the pace alone. The
        member is idle now; it may be given its next task here.
        """
        ...

    def forget(
        self, roster: Roster, member: Member, task: StartTraining | None, at: Seconds
    ) -> list[Command]:
        """Stop waiting for the member: its task is lost, or it left or was quarantined.

        `task` is what it held, None if it was waiting. One that left is not in `roster.members`
        any more. One that stays and is still idle afterwards goes through `again`.
        """
        ...

    def again(self, roster: Roster, member: Member, at: Seconds) -> list[Command]:
        """The member lost its task and is still without one: give it another, or let it wait."""
        ...

    def deadline_of(self, group: GroupId) -> Seconds | None:
        """When this group's deadline is due, None if it has none (any more)."""
        ...

    @property
    def next_deadline(self) -> Seconds:
        """No deadline is due before this; infinite if there is none."""
        ...

    def pass_deadlines(
        self, roster: Roster, before: Seconds, including: GroupId | None = None
    ) -> list[Command]:
        """Carry out, in order, every deadline due earlier than `before` and one group's."""
        ...

    def to_json(self) -> dict[str, Any]:
        """The policy's own state as JSON values."""
        ...

    def restore(self, state: dict[str, Any], roster: Roster) -> None:
        """Take over what `to_json` wrote."""
        ...


class NoDeadlines:
    """The part of `Policy` that a schedule without deadlines leaves empty."""

    def deadline_of(self, group: GroupId) -> Seconds | None:
        """No group has a deadline."""
        return None

    next_deadline: Seconds = inf

    def pass_deadlines(
        self, roster: Roster, before: Seconds, including: GroupId | None = None
    ) -> list[Command]:
        """Nothing is ever due."""
        return []


class GroupDeadlines(ABC):
    """The part of `Policy` about deadlines, where each group has one."""

    open_groups: AwaitedGroups

    @abstractmethod
    def _merge(self, roster: Roster, group: ArrivalGroup, at: Seconds) -> list[Command]:
        """Close a group at a time, and merge what it has."""

    def deadline_of(self, group: GroupId) -> Seconds | None:
        """Until when an open group is waited for (T_max)."""
        found = self.open_groups.get(group)
        return found.deadline if found else None

    @property
    def next_deadline(self) -> Seconds:
        """The earliest of them, infinite if no group is open."""
        return self.open_groups.next_deadline

    def pass_deadlines(
        self, roster: Roster, before: Seconds, including: GroupId | None = None
    ) -> list[Command]:
        """Merge the groups that are due, in order of (deadline, opening), each at its deadline."""
        commands: list[Command] = []
        while (due := self.open_groups.first_due(before, including)) is not None:
            commands += self._merge(roster, due, due.deadline)
        return commands
