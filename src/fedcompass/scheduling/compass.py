"""Compass, the paper's computing-power-aware scheduler (Algorithms 1 to 3)."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Literal

from pydantic import Field

from fedcompass.scheduling.arrival_groups import ArrivalGroup, OpenGroups
from fedcompass.scheduling.commands import DIRECT, GENERAL, Command, SetDeadline, StartTraining
from fedcompass.scheduling.policy import GroupDeadlines, StepRangeSettings
from fedcompass.scheduling.roster import Member, Roster
from fedcompass.vocabulary import Seconds, Steps

__all__ = ["Compass", "CompassSettings"]

_seconds_per_step = attrgetter("pace.seconds_per_step")  # of a member that has answered


class CompassSettings(StepRangeSettings):
    """Compass: the range of local steps and how long a group is waited for."""

    latest: float = Field(default=1.2, ge=1)
    """λ: a group is waited for until so many times its expected duration."""

    join_up_to: float = Field(default=1.0, ge=1)
    """JoinGroup gives up to so many times Q_max steps; 1 is the paper, 1.2 its authors' code."""

    aim: Literal["expected", "latest"] = "expected"
    """CreateGroup aims at the return of a group that ends at T_a (the paper) or at T_max."""

    create_group: Literal["clamp", "pass-over"] = "clamp"
    """Where more than Q_max steps fit before the return of an open group, CreateGroup gives Q_max
    (the paper's pseudo-code), or passes over that group (its text, and its authors' code)."""

    warm_up: Literal["min", "max"] = "min"
    """A client's first task has Q_min steps (the paper), or Q_max as in its authors' code."""


class Compass(GroupDeadlines):
    """Gives each client as many steps as let its group answer together; merges group by group."""

    def __init__(self, settings: CompassSettings) -> None:
        self.settings = settings
        self.open_groups: OpenGroups = OpenGroups(
            settings.min_steps,
            settings.max_steps,
            settings.latest,
            join_up_to=settings.join_up_to,
            aim_at_deadline=settings.aim == "latest",
            passes_over=settings.create_group == "pass-over",
        )

    def begin(self, roster: Roster, members: Sequence[Member], at: Seconds) -> list[Command]:
        """Warm up with Q_min steps, in no group (Algorithm 1, server, line 1).

        One that came back may have updates that wait, and be parked.
        """
        settings = self.settings
        steps = settings.min_steps if settings.warm_up == "min" else settings.max_steps
        return [roster.start(one, steps, at) for one in members if not roster.is_parked(one)]

    def accept(
        self, roster: Roster, member: Member, task: StartTraining, steps: Steps, at: Seconds
    ) -> list[Command]:
        """A first answer is applied at once, a group's waits for the group, a late one for any."""
        if task.group is None:
            buffer = DIRECT if roster.merges_singly else GENERAL
            return [
                roster.fold(member, task, steps, at, buffer),
                roster.commit((buffer,), at),
                *self._assign(roster, member, at),
            ]
        group = self.open_groups.get(task.group)
        if group is None:  # it merged at its deadline
            return [
                roster.fold(member, task, steps, at, GENERAL),
                *roster.commit_held(at),
                *self._assign(roster, member, at),
            ]
        fold = roster.fold(member, task, steps, at, group.id)
        group.arrive(member)
        return [fold, *self._merge_if_complete(roster, group, at)]

    def forget(
        self, roster: Roster, member: Member, task: StartTraining | None, at: Seconds
    ) -> list[Command]:
        """Leave the group; an update of its own that was accepted stays."""
        group, member.group = self.open_groups.get(member.group), None
        if group is None:
            return []
        group.remove(member)
        return self._merge_if_complete(roster, group, at)

    def again(self, roster: Roster, member: Member, at: Seconds) -> list[Command]:
        """Through AssignGroup, or another warm-up while the pace is unknown."""
        if member.pace is None:
            return self.begin(roster, [member], at)
        return self._assign(roster, member, at)

    def _merge_if_complete(self, roster: Roster, group: ArrivalGroup, at: Seconds) -> list[Command]:
        return [] if group.awaited else self._merge(roster, group, at)

    def _merge(self, roster: Roster, group: ArrivalGroup, at: Seconds) -> list[Command]:
        """GroupAggregate (Algorithm 3): merge, then assign the arrived again, fastest first."""
        self.open_groups.close(group)
        commands: list[Command] = []
        buffers = [buffer for buffer in (group.id, GENERAL) if buffer in roster.unmerged]
        if buffers:
            commands.append(roster.commit(buffers, at))
        for member in sorted(group.arrived.values(), key=_seconds_per_step):
            commands += self._assign(roster, member, at)
        return commands

    def _assign(self, roster: Roster, member: Member, at: Seconds) -> list[Command]:
        """AssignGroup (Algorithm 2), and the command to train; nothing to one that is parked."""
        if roster.is_parked(member):
            return []
        group, steps, opened = self.open_groups.assign(member, at)
        start = roster.start(member, steps, at, group.id)
        if not opened:
            return [start]
        return [SetDeadline(at=group.deadline, group=group.id, due=group.expected), start]

    def to_json(self) -> dict[str, Any]:
        """The open groups."""
        return self.open_groups.to_json()

    def restore(self, state: dict[str, Any], roster: Roster) -> None:
        """Take over what `to_json` wrote."""
        self.open_groups.restore(state, roster.members)
