"""Metronome: one beat for everybody; clients that are too fast wait (docs/metronome.md).

Under very unequal speeds fast clients merge often and fresh, slow ones rarely and stale, so the
model follows the fast clients' data. Here nobody's tenth update comes before a neighbour's first:
every client answers on a beat, with as many steps as fit.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Literal

from pydantic import Field

from fedcompass.scheduling.arrival_groups import ArrivalGroup
from fedcompass.scheduling.beats import Beats, KnownPaces
from fedcompass.scheduling.commands import (
    GENERAL,
    Command,
    FoldAgain,
    SetDeadline,
    StartTraining,
)
from fedcompass.scheduling.pace import INSTANT, Pace, PaceSettings
from fedcompass.scheduling.policy import GroupDeadlines, StepRangeSettings
from fedcompass.scheduling.roster import Answered, Member, Roster
from fedcompass.vocabulary import BufferId, ClientId, ModelVersion, Seconds, Steps

__all__ = ["Metronome", "MetronomeSettings"]

_seconds_per_step = attrgetter("pace.seconds_per_step")  # of a member that has answered


class MetronomeSettings(StepRangeSettings):
    """Metronome: the range of local steps, for whom a beat is long enough, and how late it may be.

    Paces are estimated with the fixed cost of a task apart, so that short tasks tell them too.
    """

    min_steps: int = Field(default=20, ge=1)
    """Q_min: fewest local steps of a task; also the warm-up."""

    max_steps: int = Field(default=200, ge=1)
    """Q_max: most local steps of a task; a client that could do more waits."""

    covered: float = Field(default=0.75, gt=0, le=1)
    """ρ: a beat is long enough for clients with this share of the samples to do Q_min steps."""

    latest: float = Field(default=1.2, ge=1)
    """λ: a beat is waited for until its end and λ - 1 of its length more."""

    absent: Literal["skip", "remember", "catch-up"] = "skip"
    """Who is absent from a merge: counts not at all; with its last update once more; or its next
    one counts for all of them, as far as they make up Q_max steps."""

    pace: PaceSettings = PaceSettings(overhead_aware=True)

    @property
    def repeats_updates(self) -> bool:
        """Those absent from a beat may be remembered."""
        return self.absent == "remember"


class Metronome(GroupDeadlines):
    """Gives each client the first beat that it can reach with at least Q_min steps."""

    def __init__(self, settings: MetronomeSettings) -> None:
        self.settings = settings
        self.open_groups: Beats = Beats(settings.min_steps, settings.latest)
        self._has_begun = False  # the first merge is done, and there are beats
        self._waiting: dict[ClientId, Member] = {}  # have warmed up and wait for the first merge
        self._early: list[BufferId] = []  # of complete beats, to be merged with the next
        self._paces = KnownPaces(settings.min_steps, settings.max_steps)  # of those in the roster
        self._last: dict[ClientId, Answered] = {}  # what each sent last; only to remember
        self._counted: dict[ClientId, ModelVersion] = {}  # up to which merge; only to catch up

    def begin(self, roster: Roster, members: Sequence[Member], at: Seconds) -> list[Command]:
        """Warm up with Q_min steps, due at no beat; who is back may have to wait (parked)."""
        steps = self.settings.min_steps
        return [roster.start(one, steps, at) for one in members if not roster.is_parked(one)]

    def accept(
        self, roster: Roster, member: Member, task: StartTraining, steps: Steps, at: Seconds
    ) -> list[Command]:
        """Keep an update for its beat; a late one, or a joiner's first, for the next merge."""
        self._note(roster, member)
        beat = self.open_groups.get(task.group)
        buffer = GENERAL if beat is None else beat.id
        times = self._times(roster, task, steps) if self.settings.absent == "catch-up" else 1
        fold = roster.fold(member, task, steps, at, buffer, out_of=roster.total() / times)
        if self.settings.repeats_updates:
            self._last[member.client] = Answered(task.task, task.version, steps)
        if beat is not None:
            beat.arrived[member.client] = member
            return [fold, *self._stop_awaiting(roster, beat, member, at)]
        if self._has_begun:
            return [fold, *roster.commit_held(at), *self._assign(roster, [member], at)]
        self._waiting[member.client] = member
        return [fold, *self._begin_beats(roster, at)]

    def _times(self, roster: Roster, task: StartTraining, steps: Steps) -> float:
        """How often an update counts: once for every merge since its client's last one, or 1.

        Never for more than Q_max steps: that is the most that others do in a merge, and a fast
        client that is late once would else carry the model off in its direction.
        """
        merged_as = roster.version + 1  # at the next merge
        before = self._counted.get(task.client, task.version)
        self._counted[task.client] = merged_as
        return max(1, min(merged_as - before, self.settings.max_steps / steps))

    def forget(
        self, roster: Roster, member: Member, task: StartTraining | None, at: Seconds
    ) -> list[Command]:
        """Wait for one fewer; an update of its own that was accepted stays."""
        self._note(roster, member)
        if not self._has_begun:
            self._waiting.pop(member.client, None)
            return self._begin_beats(roster, at)
        beat, member.group = self.open_groups.get(member.group), None
        if beat is None:
            return []
        if task is not None:
            return self._stop_awaiting(roster, beat, member, at)
        del beat.arrived[member.client]
        return []

    def again(self, roster: Roster, member: Member, at: Seconds) -> list[Command]:
        """The next beat that it can reach, or another warm-up while its pace is unknown."""
        if member.pace is None:
            return self.begin(roster, [member], at)
        return self._assign(roster, [member], at)

    def _begin_beats(self, roster: Roster, at: Seconds) -> list[Command]:
        """Merge the warm-up once most have answered; the last ones are not waited for."""
        if not self._waiting:
            return []
        if self._paces.weight < self._enough(roster) - INSTANT:
            return []
        self._has_begun = True
        first, self._waiting = list(self._waiting.values()), {}
        return [roster.commit((GENERAL,), at), *self._assign(roster, first, at)]

    def _stop_awaiting(
        self, roster: Roster, beat: ArrivalGroup, member: Member, at: Seconds
    ) -> list[Command]:
        """Merge a beat that is complete; one that is so before an earlier one waits for that."""
        del beat.awaited[member.client]
        if beat.awaited:
            return []
        if beat is self.open_groups.in_order()[0]:
            return self._merge(roster, beat, at)
        self.open_groups.close(beat)
        self._early.append(beat.id)
        return self._assign(roster, beat.arrived.values(), at)

    def _merge(self, roster: Roster, beat: ArrivalGroup, at: Seconds) -> list[Command]:
        """Merge what has come, with what came early or late; those that have arrived go on."""
        self.open_groups.close(beat)
        buffers = [b for b in (beat.id, *self._early, GENERAL) if b in roster.unmerged]
        self._early = []
        merged: list[Command] = []
        if buffers:
            merged = [*self._remembered(roster, buffers[0], at), roster.commit(buffers, at)]
        return merged + self._assign(roster, beat.arrived.values(), at)

    def _remembered(self, roster: Roster, buffer: BufferId, at: Seconds) -> list[FoldAgain]:
        """Let the last update of everybody who is absent from a merge count again, as in MIFA.

        Not of one whose newest update waits for a later beat: it will be merged itself.
        """
        answered = {fold.client for folds in roster.unmerged.values() for fold in folds}
        return [
            roster.fold_again(member, self._last[client], at, buffer)
            for client, member in roster.members.items()
            if client in self._last and client not in answered and not member.quarantined
        ]

    def _assign(self, roster: Roster, members: Iterable[Member], at: Seconds) -> list[Command]:
        """The fastest first; no pace changes in between. Nothing to those that are parked."""
        commands: list[Command] = []
        free = (member for member in members if not roster.is_parked(member))
        if members := sorted(free, key=_seconds_per_step):
            period = self._paces.period(self._enough(roster))
            for member in members:
                commands += self._put_on_a_beat(roster, member, at, period)
        return commands

    def _put_on_a_beat(
        self, roster: Roster, member: Member, at: Seconds, period: Seconds
    ) -> list[Command]:
        """The first beat with at least Q_min steps in it, and the command to train."""
        pace = _pace(member)
        beat, is_new = self.open_groups.within_reach(pace, at, period)
        steps = min(pace.steps_within(beat.expected - at), self.settings.max_steps)
        beat.awaited[member.client] = member
        start = roster.start(member, steps, at, beat.id)
        if not is_new:
            return [start]
        return [SetDeadline(at=beat.deadline, group=beat.id, due=beat.expected), start]

    def _enough(self, roster: Roster) -> float:
        """What those weigh that a beat is long enough for; who has not answered counts as slow."""
        return self.settings.covered * roster.total()

    def _note(self, roster: Roster, member: Member) -> None:
        """Keep a member's present pace; of one that left or is in quarantine nothing."""
        is_here = roster.members.get(member.client) is member and not member.quarantined
        if is_here and member.pace is not None:
            self._paces.note(member.client, member.pace, roster.weight(member))
        elif not is_here:
            self._paces.drop(member.client)
            self._last.pop(member.client, None)
            self._counted.pop(member.client, None)

    def to_json(self) -> dict[str, Any]:
        """The beats, and who waits for the first of them."""
        return {
            **self.open_groups.to_json(),
            "has_begun": self._has_begun,
            "waiting": list(self._waiting),
            "early": self._early.copy(),
            "last": {client: list(answered) for client, answered in self._last.items()},
            "counted": self._counted.copy(),
        }

    def restore(self, state: dict[str, Any], roster: Roster) -> None:
        """Take over what `to_json` wrote."""
        self.open_groups.restore(state, roster.members)
        self._has_begun = state["has_begun"]
        self._waiting = {client: roster.members[client] for client in state["waiting"]}
        self._early = list(state["early"])
        last = state.get("last", {})  # states from before updates were remembered lack it
        self._last = {
            client: Answered(*last[client]) for client in roster.members if client in last
        }
        # States from before this was counted lack it: those clients start at their task's version.
        self._counted = dict(state.get("counted", {}))
        for member in roster.members.values():
            self._note(roster, member)


def _pace(member: Member) -> Pace:
    assert member.pace is not None  # only clients that have answered are put on a beat
    return member.pace
