"""Arrival groups: clients that are expected to answer at the same moment, and how to find one.

Algorithm 2 of the paper (JoinGroup and CreateGroup), with floor() and comparisons of instants
made tolerant (see `pace.INSTANT`).
"""

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import floor, inf
from typing import Any

from fedcompass.scheduling.pace import INSTANT, Pace
from fedcompass.scheduling.roster import Member
from fedcompass.vocabulary import ClientId, GroupId, Seconds, Steps

__all__ = ["ArrivalGroup", "OpenGroups"]


@dataclass(slots=True)
class ArrivalGroup:
    """Clients that should arrive together at `expected` and are waited for until `latest`."""

    id: GroupId
    expected: Seconds  # T_a
    latest: Seconds  # T_max
    awaited: dict[ClientId, Member] = field(default_factory=dict)  # CL, not arrived yet
    arrived: dict[ClientId, Member] = field(default_factory=dict)  # ACL, waiting for the merge
    quickest_round: Seconds | None = None  # cache: least time a member needs for Q_max steps

    def soonest_return(self, max_steps: Steps, ends: Seconds) -> Seconds:
        """When the fastest member, going on when the group ends with Q_max steps, is back."""
        quickest = self.quickest_round
        if quickest is None:
            quickest = inf
            for members in (self.awaited, self.arrived):
                for member in members.values():
                    if (seconds := _pace(member).seconds_for(max_steps)) < quickest:
                        quickest = seconds
            self.quickest_round = quickest
        return ends + quickest


class OpenGroups:
    """The groups that have not merged: 𝒢. Searching is logarithmic in their number."""

    def __init__(
        self,
        min_steps: Steps,
        max_steps: Steps,
        latest_factor: float,
        *,
        join_up_to: float = 1.0,
        aim_at_latest: bool = False,
    ) -> None:
        self._min_steps, self._max_steps = min_steps, max_steps  # Q_min, Q_max
        self._max_joined: Steps = floor(join_up_to * max_steps + INSTANT)
        self._latest_factor = latest_factor  # λ
        self._aim_at_latest = aim_at_latest
        self._groups: dict[GroupId, ArrivalGroup] = {}  # in order of opening
        self._by_expected: list[tuple[Seconds, GroupId]] = []  # sorted; the same groups
        self._by_latest: list[tuple[Seconds, GroupId]] = []  # heap; may still hold closed groups
        self._last_id: GroupId = 0

    def get(self, group: GroupId | None) -> ArrivalGroup | None:
        """The group if it is open."""
        return None if group is None else self._groups.get(group)

    def __iter__(self) -> Iterator[ArrivalGroup]:
        return iter(self._groups.values())

    def close(self, group: ArrivalGroup) -> None:
        """Take a group out: nobody joins it any more, even if its expected time lies ahead."""
        del self._groups[group.id]
        self._by_expected.remove((group.expected, group.id))

    @property
    def next_due(self) -> Seconds:
        """No open group's deadline is earlier than this."""
        return self._by_latest[0][0] if self._by_latest else inf

    def first_due(self, before: Seconds, including: GroupId | None) -> ArrivalGroup | None:
        """The open group with the earliest deadline, if earlier than `before` or one group's.

        With `including`, `before` is that group's deadline: those opened before it go first.
        """
        limit = (before, 0 if including is None else including + 1)
        heap = self._by_latest
        while heap and heap[0] < limit:
            group = self._groups.get(heap[0][1])
            if group is not None:
                return group
            heappop(heap)
        return None

    def assign(self, member: Member, now: Seconds) -> tuple[ArrivalGroup, Steps, bool]:
        """Put a member into a group: AssignGroup. Returns it, the steps, and whether it is new."""
        pace = _pace(member)
        found = self._join(pace, now)
        group, steps = found or self._create(pace, now)
        group.awaited[member.client] = member
        if group.quickest_round is not None:
            group.quickest_round = min(group.quickest_round, pace.seconds_for(self._max_steps))
        return group, steps, found is None

    def _join(self, pace: Pace, now: Seconds) -> tuple[ArrivalGroup, Steps] | None:
        """JoinGroup: the group that allows the most steps within the range, the later on a tie."""
        by_expected, max_steps = self._by_expected, self._max_joined
        best_steps, best_id = self._min_steps, 0
        position = bisect_right(by_expected, (now + pace.seconds_for(max_steps + 1),))
        while position:
            position -= 1
            expected, id_ = by_expected[position]
            steps = pace.steps_within(expected - now)
            if steps < best_steps:
                break  # those before it leave even less time
            if steps <= max_steps and (steps > best_steps or id_ > best_id):
                best_steps, best_id = steps, id_
        return (self._groups[best_id], best_steps) if best_id else None

    def _create(self, pace: Pace, now: Seconds) -> tuple[ArrivalGroup, Steps]:
        """CreateGroup: aim at a moment that members of an open group can reach next time."""
        returns = [
            group.soonest_return(self._max_steps, ends)  # T_exp
            for group in self._groups.values()
            if now < (ends := self._end(group)) - INSTANT
        ]
        steps = self._max_steps
        if returns:
            steps = min(max(pace.steps_within(max(returns) - now), self._min_steps), steps)
        self._last_id += 1
        seconds = pace.seconds_for(steps)
        group = ArrivalGroup(self._last_id, now + seconds, now + seconds * self._latest_factor)
        self._insert(group)
        return group, steps

    def _end(self, group: ArrivalGroup) -> Seconds:
        return group.latest if self._aim_at_latest else group.expected

    def _insert(self, group: ArrivalGroup) -> None:
        self._groups[group.id] = group
        insort(self._by_expected, (group.expected, group.id))
        heappush(self._by_latest, (group.latest, group.id))

    def to_json(self) -> dict[str, Any]:
        """The open groups, in order of opening."""
        groups = [
            [group.id, group.expected, group.latest, list(group.awaited), list(group.arrived)]
            for group in self._groups.values()
        ]
        return {"last_id": self._last_id, "groups": groups}

    def restore(self, state: dict[str, Any], members: dict[ClientId, Member]) -> None:
        """Take over what `to_json` wrote."""
        self._last_id = state["last_id"]
        for id_, expected, latest, awaited, arrived in state["groups"]:
            group = ArrivalGroup(id_, expected, latest)
            group.awaited = {client: members[client] for client in awaited}
            group.arrived = {client: members[client] for client in arrived}
            self._insert(group)


def _pace(member: Member) -> Pace:
    assert member.pace is not None  # only clients that have answered are put into groups
    return member.pace
