"""Beats: moments at which everybody answers, planned ahead and kept."""

from bisect import bisect_left, insort
from math import ceil, floor

from fedcompass.scheduling.arrival_groups import ArrivalGroup, AwaitedGroups
from fedcompass.scheduling.pace import INSTANT, Pace
from fedcompass.vocabulary import ClientId, Seconds, Steps

__all__ = ["Beats", "KnownPaces"]


_SHORTER = 0.25
"""1.75 periods up to a promised beat make two: answers come late, and a little less time than for
two must not become one of double length."""


class KnownPaces:
    """Who has answered, and how long a beat must be for them; kept sorted as paces change.

    weight: of all of them together: their samples, or 1 each where all clients weigh the same.
    """

    def __init__(self, min_steps: Steps, max_steps: Steps) -> None:
        self.weight = 0.0
        self._min_steps, self._max_steps = min_steps, max_steps  # Q_min, Q_max
        self._known: dict[ClientId, tuple[Pace, float]] = {}
        self._fewest: list[tuple[Seconds, ClientId, float]] = []  # time for Q_min, and the weight
        self._most: list[tuple[Seconds, ClientId]] = []  # time for Q_max

    def note(self, client: ClientId, pace: Pace, weight: float) -> None:
        """Take in a client's pace, in place of what was known of it."""
        self.drop(client)
        self._known[client] = pace, weight
        self.weight += weight
        insort(self._fewest, (pace.seconds_for(self._min_steps), client, weight))
        insort(self._most, (pace.seconds_for(self._max_steps), client))

    def drop(self, client: ClientId) -> None:
        """Forget a client, if it is known."""
        if client not in self._known:
            return
        pace, weight = self._known.pop(client)
        self.weight -= weight
        fewest = pace.seconds_for(self._min_steps), client, weight
        del self._fewest[bisect_left(self._fewest, fewest)]
        del self._most[bisect_left(self._most, (pace.seconds_for(self._max_steps), client))]

    def period(self, enough: float) -> Seconds:
        """How long a beat lasts: until most clients can do Q_min steps, and one of them Q_max.

        Most clients are the fastest that weigh `enough` together; all of them if they do not. Where
        speeds are alike the fastest one's Q_max steps take longer: that is the paper's equilibrium
        of one group. Where one client is far faster than the rest it does its Q_max steps and
        waits.
        """
        held, reached = 0.0, 0.0
        for seconds, _, weight in self._fewest:
            reached, held = seconds, held + weight
            if held >= enough - INSTANT:
                break
        return max(reached, self._most[0][0])


class Beats(AwaitedGroups):
    """The beats that were promised to somebody and have not merged: who is due at one is its group.

    The time up to a promised beat is divided into beats of about the present period, and after the
    last one they go on at that period. Of these, those that nobody needs yet exist in thought only,
    so that a client ten thousand times as slow as another costs no more than any.
    """

    _saved_as = "beats"

    def __init__(self, min_steps: Steps, latest: float) -> None:
        super().__init__()
        self._min_steps = min_steps  # Q_min
        self._latest = latest  # λ

    def in_order(self) -> list[ArrivalGroup]:
        """In the order of their ends."""
        return sorted(self, key=lambda beat: (beat.expected, beat.id))

    def within_reach(self, pace: Pace, now: Seconds, period: Seconds) -> tuple[ArrivalGroup, bool]:
        """The first beat with at least Q_min steps from now, and whether it is a new one."""
        start = now
        for beat in self.in_order():
            if beat.expected <= now:
                continue  # it waits for its last ones
            gap = beat.expected - start
            length = gap / max(1, floor(gap / period + _SHORTER))
            ends = self._first_end(pace, now, start, length)
            if ends < beat.expected - length / 2:
                return self._new(ends, length), True
            if pace.steps_within(beat.expected - now) >= self._min_steps:
                return beat, False
            start = beat.expected
        return self._new(self._first_end(pace, now, start, period), period), True

    def _first_end(self, pace: Pace, now: Seconds, start: Seconds, length: Seconds) -> Seconds:
        """The first of start + length, start + 2 length, … with at least Q_min steps from now."""
        needed = now + pace.seconds_for(self._min_steps) - start
        beats = max(1, ceil(needed / length - INSTANT))
        while pace.steps_within(start + beats * length - now) < self._min_steps:
            beats += 1  # rounding
        return start + beats * length

    def _new(self, ends: Seconds, length: Seconds) -> ArrivalGroup:
        return self.open(ends, ends + (self._latest - 1.0) * length)
