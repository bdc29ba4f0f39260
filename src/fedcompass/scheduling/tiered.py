"""FedAT's schedule: tiers of similar pace, each running rounds of its own."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import Field

from fedcompass.scheduling.commands import GENERAL, Command, StartTraining
from fedcompass.scheduling.policy import FixedStepsSettings, NoDeadlines
from fedcompass.scheduling.roster import Member, Roster
from fedcompass.vocabulary import BufferId, ClientId, Seconds, Steps

__all__ = ["Tiered", "TieredSettings"]


_SHORTER = 10  # times: a task that only measures a pace, against a round's
_ENOUGH = 0.75  # of the samples: when clients with so many are measured, tiers are formed


class TieredSettings(FixedStepsSettings):
    """FedAT's schedule."""

    tier_ratio: float = Field(default=2.0, ge=1)
    """υ: the slowest client of a tier is at most so many times slower than its fastest."""

    profiling: Literal["round", "tasks"] = "round"
    """How paces are learned: a first round of all clients, which is merged; or tasks of a tenth of
    the steps, which are not: tiers are formed when clients with three quarters of the samples have
    answered theirs, and later ones are placed as they answer."""


class Tiered(NoDeadlines):
    """Clients of similar pace form tiers, 1 the fastest, once measured; each runs rounds alone.

    Paces are measured in a first round of all, merged like FedAvg's. A client that joins later
    trains one task by itself and enters the tier that fits its pace; that update counts in the
    tier's open round.

    With `profiling` "tasks" a client's first task only measures its pace: its update is discarded,
    and it trains from its tier's next round on. Nobody waits for the slowest, whose answers come
    after tiers are formed: who is too slow for all of them opens another. Fixed costs of a task
    (a network's latency) count ten times as much in so short a one, and make fast clients look
    alike; `pace.overhead_aware` takes them out where the driver reports compute time apart.
    """

    def __init__(self, settings: TieredSettings) -> None:
        self.settings = settings
        self._profiles = settings.profiling == "tasks"
        self._first_steps = settings.steps
        if self._profiles:
            self._first_steps = max(1, settings.steps // _SHORTER)
        self._fastest: list[Seconds] = []  # pace that opened each tier; empty until they are formed
        self._awaited: dict[BufferId, dict[ClientId, None]] = {GENERAL: {}}  # who trains, per round
        self._totals: dict[BufferId, float] = {}  # what shares are taken of, fixed for each round

    def begin(self, roster: Roster, members: Sequence[Member], at: Seconds) -> list[Command]:
        """Take part in the first round or, once there are tiers, train a task to be measured."""
        if not self._fastest:
            return self._open_round(roster, GENERAL, members, at)
        return [roster.start(member, self._first_steps, at) for member in members]

    def accept(
        self, roster: Roster, member: Member, task: StartTraining, steps: Steps, at: Seconds
    ) -> list[Command]:
        """Keep the update until everybody in the tier has answered, unless it measured a pace."""
        if self._profiles and task.group is None:
            self._awaited[GENERAL].pop(member.client, None)
            if self._fastest:
                member.group = self._fitting_tier(member, or_new=True)
            discard = roster.discard(member, task, steps, at)
            return [discard, *self._close_if_complete(roster, member.group or GENERAL, at)]
        buffer = self._round_of(member, task)
        if buffer is None:
            buffer = member.group = self._fitting_tier(member, or_new=False)
        total = self._totals[buffer]
        fold = roster.fold(member, task, steps, at, buffer, out_of=total)
        self._awaited[buffer].pop(member.client, None)
        return [fold, *self._close_if_complete(roster, buffer, at)]

    def forget(
        self, roster: Roster, member: Member, task: StartTraining | None, at: Seconds
    ) -> list[Command]:
        """Wait for one fewer in its round."""
        buffer = self._round_of(member, task) if task else None
        if buffer is None:
            return []
        del self._awaited[buffer][member.client]
        return self._close_if_complete(roster, buffer, at)

    def again(self, roster: Roster, member: Member, at: Seconds) -> list[Command]:
        """Wait for the tier's next round; one that has no tier yet is measured again."""
        return self.begin(roster, [member], at) if member.group is None else []

    def _round_of(self, member: Member, task: StartTraining) -> BufferId | None:
        """The round a task belongs to, None if it only measures a joiner."""
        return GENERAL if member.client in self._awaited[GENERAL] else task.group

    def _close_if_complete(self, roster: Roster, buffer: BufferId, at: Seconds) -> list[Command]:
        if self._profiles and buffer == GENERAL:
            present = (member for member in roster.members.values() if not member.quarantined)
            measured = sum(roster.weight(member) for member in present if member.pace)
            if self._fastest or measured < _ENOUGH * roster.total():
                return []
        elif self._awaited[buffer]:
            return []
        commands: list[Command] = []
        if buffer in roster.unmerged:
            commands.append(roster.commit((buffer,), at))
        if buffer == GENERAL:
            self._form_tiers(roster)
            rounds = list(range(1, len(self._fastest) + 1))
        else:
            rounds = [buffer]
        for tier in rounds:
            idle = [member for member in roster.idle() if member.group == tier]
            commands += self._open_round(roster, tier, idle, at)
        return commands

    def _open_round(
        self, roster: Roster, buffer: BufferId, members: Iterable[Member], at: Seconds
    ) -> list[Command]:
        commands: list[Command] = []
        if not self._awaited[buffer]:
            self._totals[buffer] = roster.total()
        steps = self._first_steps if buffer == GENERAL else self.settings.steps
        for member in members:
            self._awaited[buffer][member.client] = None
            commands.append(roster.start(member, steps, at, buffer or None))
        return commands

    def _form_tiers(self, roster: Roster) -> None:
        """Greedily from the fastest; fixed from then on. Nobody measured: no tiers yet."""
        measured = [member for member in roster.idle() if member.pace]
        for member in sorted(measured, key=_pace):
            member.group = self._fitting_tier(member, or_new=True)

    def _fitting_tier(self, member: Member, *, or_new: bool) -> BufferId:
        """The first tier the pace is not too slow for; too slow for all: a new one, or the last."""
        pace = _pace(member)
        for tier, fastest in enumerate(self._fastest, start=1):
            if pace <= fastest * self.settings.tier_ratio:
                return tier
        if or_new:
            self._fastest.append(pace)
            self._awaited[len(self._fastest)] = {}
        return len(self._fastest)

    def to_json(self) -> dict[str, Any]:
        """The tiers, and who is awaited in each."""
        awaited = [[tier, list(clients)] for tier, clients in self._awaited.items()]
        totals = [[tier, total] for tier, total in self._totals.items()]
        return {"fastest": self._fastest.copy(), "awaited": awaited, "totals": totals}

    def restore(self, state: dict[str, Any], roster: Roster) -> None:
        """Take over what `to_json` wrote."""
        self._fastest = list(state["fastest"])
        self._awaited = {tier: dict.fromkeys(clients) for tier, clients in state["awaited"]}
        self._totals = dict(state["totals"])


def _pace(member: Member) -> Seconds:
    assert member.pace is not None  # it has answered
    return member.pace.seconds_per_step
