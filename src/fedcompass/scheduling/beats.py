"""Beats: moments at which everybody answers, planned ahead and kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, inf
from typing import Any, NamedTuple

from fedcompass.scheduling.pace import INSTANT, Pace
from fedcompass.scheduling.roster import Member
from fedcompass.vocabulary import ClientId, GroupId, Seconds, Steps

__all__ = ["Beat", "Beats", "Weighed", "beat_period"]


_SHORTER = 0.25
"""1.75 periods up to a promised beat make two: answers come late, and a little less time than for
two must not become one of double length."""


class Weighed(NamedTuple):
    """A client's pace, and its samples (or 1, where all clients weigh the same)."""

    pace: Pace
    weight: float


def beat_period(
    clients: Sequence[Weighed], min_steps: Steps, max_steps: Steps, enough: float
) -> Seconds:
    """How long a beat lasts: until most clients can do Q_min steps, and one of them Q_max.

    Most clients are the fastest that weigh `enough` together; all of them if they do not. Where
    speeds are alike the fastest one's Q_max steps take longer: that is the paper's equilibrium of
    one group. Where one client is far faster than the rest it does its Q_max steps and waits.
    """
    held, most = 0.0, 0.0
    for seconds, weight in sorted((c.pace.seconds_for(min_steps), c.weight) for c in clients):
        most, held = seconds, held + weight
        if held >= enough - INSTANT:
            break
    return max(most, min(client.pace.seconds_for(max_steps) for client in clients))


@dataclass(slots=True)
class Beat:
    """Clients that are due at `ends` and are waited for until `deadline`."""

    id: GroupId
    ends: Seconds
    deadline: Seconds
    awaited: dict[ClientId, Member] = field(default_factory=dict)  # due, not arrived yet
    arrived: dict[ClientId, Member] = field(default_factory=dict)  # wait for the others


class Beats:
    """The beats that were promised to somebody and have not merged.

    The time up to a promised beat is divided into beats of about the present period, and after the
    last one they go on at that period. Of these, those that nobody needs yet exist in thought only,
    so that a client ten thousand times as slow as another costs no more than any.
    """

    def __init__(self, min_steps: Steps, latest: float) -> None:
        self._min_steps = min_steps  # Q_min
        self._latest = latest  # λ
        self._promised: dict[GroupId, Beat] = {}
        self._last_id: GroupId = 0

    def __iter__(self) -> Iterator[Beat]:
        """In the order of their ends."""
        return iter(sorted(self._promised.values(), key=lambda beat: (beat.ends, beat.id)))

    @property
    def first(self) -> Beat:
        """The one that ends first; there is one."""
        return next(iter(self))

    def get(self, beat: GroupId | None) -> Beat | None:
        """The beat, if it was promised and has not merged."""
        return None if beat is None else self._promised.get(beat)

    def close(self, beat: Beat) -> None:
        """Take a beat out: nobody is due at it any more."""
        del self._promised[beat.id]

    def within_reach(self, pace: Pace, now: Seconds, period: Seconds) -> tuple[Beat, bool]:
        """The first beat with at least Q_min steps from now, and whether it is a new one."""
        start = now
        for beat in self:
            if beat.ends <= now:
                continue  # it waits for its last ones
            gap = beat.ends - start
            length = gap / max(1, floor(gap / period + _SHORTER))
            ends = self._first_end(pace, now, start, length)
            if ends < beat.ends - length / 2:
                return self._new(ends, length), True
            if pace.steps_within(beat.ends - now) >= self._min_steps:
                return beat, False
            start = beat.ends
        return self._new(self._first_end(pace, now, start, period), period), True

    def _first_end(self, pace: Pace, now: Seconds, start: Seconds, length: Seconds) -> Seconds:
        """The first of start + length, start + 2 length, … with at least Q_min steps from now."""
        needed = now + pace.seconds_for(self._min_steps) - start
        beats = max(1, ceil(needed / length - INSTANT))
        while pace.steps_within(start + beats * length - now) < self._min_steps:
            beats += 1  # rounding
        return start + beats * length

    def _new(self, ends: Seconds, length: Seconds) -> Beat:
        self._last_id += 1
        beat = Beat(self._last_id, ends, ends + (self._latest - 1.0) * length)
        self._promised[beat.id] = beat
        return beat

    @property
    def next_deadline(self) -> Seconds:
        """The earliest deadline; infinite if nobody is due."""
        return min((beat.deadline for beat in self._promised.values()), default=inf)

    def first_due(self, before: Seconds, including: GroupId | None) -> Beat | None:
        """The beat with the earliest deadline, if earlier than `before` or one beat's.

        With `including`, `before` is that beat's deadline: those promised before it go first.
        """
        limit = (before, 0 if including is None else including + 1)
        due = [beat for beat in self._promised.values() if (beat.deadline, beat.id) < limit]
        return min(due, key=lambda beat: (beat.deadline, beat.id), default=None)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        beats = [
            [beat.id, beat.ends, beat.deadline, list(beat.awaited), list(beat.arrived)]
            for beat in self._promised.values()
        ]
        return {"last_id": self._last_id, "beats": beats}

    def restore(self, state: dict[str, Any], members: dict[ClientId, Member]) -> None:
        """Take over what `to_json` wrote."""
        self._last_id = state["last_id"]
        for id_, ends, deadline, awaited, arrived in state["beats"]:
            self._promised[id_] = beat = Beat(id_, ends, deadline)
            beat.awaited = {client: members[client] for client in awaited}
            beat.arrived = {client: members[client] for client in arrived}
