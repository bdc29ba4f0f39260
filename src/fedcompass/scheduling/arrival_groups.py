"""Arrival groups: clients that are expected to answer at the same moment, and how to find one.

Algorithm 2 of the paper (AssignGroup, JoinGroup, CreateGroup), with floor() and comparisons of
instants made tolerant (see `pace.INSTANT`). Few groups are open at a time, about ten with
thousands of clients, so the loops over all of them cost little.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import floor, inf
from typing import Any

from fedcompass.scheduling.pace import INSTANT, Pace
from fedcompass.scheduling.roster import Member
from fedcompass.vocabulary import ClientId, GroupId, Seconds, Steps

__all__ = ["ArrivalGroup", "AwaitedGroups", "OpenGroups"]


@dataclass(slots=True)
class ArrivalGroup:
    """Clients that should arrive together at `expected` and are waited for until `deadline`."""

    id: GroupId
    expected: Seconds  # T_a
    deadline: Seconds  # T_max
    awaited: dict[ClientId, Member] = field(default_factory=dict)  # CL, not arrived yet
    arrived: dict[ClientId, Member] = field(default_factory=dict)  # ACL, waiting for the merge
    _quickest: Seconds | None = None  # `quickest_round`, None until asked for and after a removal

    def quickest_round(self, max_steps: Steps) -> Seconds:
        """How long the fastest member needs for Q_max steps.

        Kept until a member is removed: a merge of many clients opens several groups in a row.
        """
        if self._quickest is None:
            paces = [member.pace for member in (*self.awaited.values(), *self.arrived.values())]
            self._quickest = min([pace.seconds_for(max_steps) for pace in paces if pace])
        return self._quickest

    def await_member(self, member: Member, round_seconds: Seconds) -> None:
        """CL.add(i), a member that needs `round_seconds` for Q_max steps."""
        self.awaited[member.client] = member
        if self._quickest is not None:
            self._quickest = min(self._quickest, round_seconds)

    def remove(self, member: Member) -> None:
        """Wait for a member no more, neither for its answer nor with it for the merge."""
        self.awaited.pop(member.client, None)
        self.arrived.pop(member.client, None)
        self._quickest = None

    def arrive(self, member: Member) -> None:
        """CL.remove(i), ACL.add(i); the member's pace is up to date."""
        self.remove(member)
        self.arrived[member.client] = member


class AwaitedGroups:
    """The groups that have not merged, in order of opening; Compass's 𝒢, and Metronome's beats."""

    _saved_as = "groups"

    def __init__(self) -> None:
        self._groups: dict[GroupId, ArrivalGroup] = {}
        self._last_id: GroupId = 0
        self.next_deadline: Seconds = inf  # the earliest; kept, since every event asks for it

    def get(self, group: GroupId | None) -> ArrivalGroup | None:
        """The group if it is open."""
        return None if group is None else self._groups.get(group)

    def __iter__(self) -> Iterator[ArrivalGroup]:
        return iter(self._groups.values())

    def open(self, expected: Seconds, deadline: Seconds) -> ArrivalGroup:
        """A new group, which nobody is in yet."""
        self._last_id += 1
        return self._add(ArrivalGroup(self._last_id, expected, deadline))

    def _add(self, group: ArrivalGroup) -> ArrivalGroup:
        self._groups[group.id] = group
        self.next_deadline = min(self.next_deadline, group.deadline)
        return group

    def close(self, group: ArrivalGroup) -> None:
        """Take a group out: nobody joins it any more, even if its expected time lies ahead."""
        del self._groups[group.id]
        self.next_deadline = min([group.deadline for group in self], default=inf)

    def first_due(self, before: Seconds, including: GroupId | None) -> ArrivalGroup | None:
        """The open group with the earliest deadline, if earlier than `before` or one group's.

        With `including`, `before` is that group's deadline: those opened before it go first.
        """
        limit = (before, 0 if including is None else including + 1)
        due = [group for group in self if _due(group) < limit]
        return min(due, key=_due, default=None)

    def to_json(self) -> dict[str, Any]:
        """The open groups, in order of opening."""
        groups = [
            [group.id, group.expected, group.deadline, list(group.awaited), list(group.arrived)]
            for group in self
        ]
        return {"last_id": self._last_id, self._saved_as: groups}

    def restore(self, state: dict[str, Any], members: dict[ClientId, Member]) -> None:
        """Take over what `to_json` wrote."""
        self._last_id = state["last_id"]
        for id_, expected, deadline, awaited, arrived in state[self._saved_as]:
            group = self._add(ArrivalGroup(id_, expected, deadline))
            group.awaited = {client: members[client] for client in awaited}
            group.arrived = {client: members[client] for client in arrived}


def _due(group: ArrivalGroup) -> tuple[Seconds, GroupId]:
    """Sorts groups by deadline, those of one deadline by opening."""
    return group.deadline, group.id


class OpenGroups(AwaitedGroups):
    """Compass's groups, and how it puts a member into one."""

    def __init__(
        self,
        min_steps: Steps,
        max_steps: Steps,
        latest: float,
        *,
        join_up_to: float = 1.0,
        aim_at_deadline: bool = False,
        passes_over: bool = False,
    ) -> None:
        super().__init__()
        self._min_steps, self._max_steps = min_steps, max_steps  # Q_min, Q_max
        self._max_joined: Steps = floor(join_up_to * max_steps + INSTANT)
        self._latest = latest  # λ
        self._aim_at_deadline = aim_at_deadline
        self._passes_over = passes_over

    def assign(self, member: Member, now: Seconds) -> tuple[ArrivalGroup, Steps, bool]:
        """AssignGroup: put a member into a group. Returns it, the steps, and whether it is new."""
        pace = member.pace
        assert pace is not None  # only clients that have answered are put into groups
        joined = self._join(pace, now)
        group, steps = joined or self._create(pace, now)
        group.await_member(member, pace.seconds_for(self._max_steps))
        return group, steps, joined is None

    def _join(self, pace: Pace, now: Seconds) -> tuple[ArrivalGroup, Steps] | None:
        """JoinGroup: the group that allows the most steps within the range, the later on a tie."""
        assigned, most = None, self._min_steps  # G_assign, Q_assign
        for group in self._groups.values():
            steps = pace.steps_within(group.expected - now)
            if most <= steps <= self._max_joined:
                assigned, most = group, steps
        return (assigned, most) if assigned else None

    def _create(self, pace: Pace, now: Seconds) -> tuple[ArrivalGroup, Steps]:
        """CreateGroup: aim at a moment that members of an open group can reach next time."""
        aims: list[Steps] = []
        for group in self._groups.values():
            ends = group.deadline if self._aim_at_deadline else group.expected
            if now < ends - INSTANT:
                returns = ends + group.quickest_round(self._max_steps)  # T_exp
                aims.append(pace.steps_within(returns - now))
        # The paper words the choice in two ways, which differ where a q is above Q_max. Its
        # pseudo-code takes the largest of all and clamps it: "Q_assign := max(Q_assign, ⌊(T_exp -
        # T_now) / S⌋)" for each group, then "if Q_assign < 0 or Q_assign > Q_max: Q_assign :=
        # Q_max". Its text "selects the largest number of local steps while ensuring that it is
        # within the range [Q_min, Q_max]", and where no open group could join the new one next
        # time "it assigns Q_max". So did its authors' code (APPFL at ab64cf1c,
        # algorithm/scheduler_new.py): "if local_steps <= self.max_local_steps"; there, as in the
        # pseudo-code, a q below Q_min is raised to Q_min.
        if self._passes_over:
            aims = [steps for steps in aims if steps <= self._max_steps]
        most = max(aims, default=self._max_steps)
        steps = min(max(most, self._min_steps), self._max_steps)  # Q_assign
        seconds = pace.seconds_for(steps)
        return self.open(now + seconds, now + seconds * self._latest), steps
