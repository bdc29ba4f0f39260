"""FedAT's schedule: tiers of similar pace, each running rounds of its own."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import Field

from fedcompass.scheduling.commands import GENERAL, Command, StartTraining
from fedcompass.scheduling.policy import FixedStepsSettings, NoDeadlines
from fedcompass.scheduling.roster import Member, Roster
from fedcompass.vocabulary import BufferId, ClientId, Seconds, Steps

__all__ = ["Tiered", "TieredSettings"]


class TieredSettings(FixedStepsSettings):
    """FedAT's schedule."""

    tier_ratio: float = Field(default=2.0, ge=1)
    """υ: the slowest client of a tier is at most so many times slower than its fastest."""


class Tiered(NoDeadlines):
    """A first round of all clients measures their paces; then each tier, 1 the fastest, runs alone.

    The first round is merged like FedAvg's. A client that joins later trains one task by itself and
    enters the tier that fits its pace; that update counts in the tier's open round.
    """

    def __init__(self, settings: TieredSettings) -> None:
        self.settings = settings
        self._fastest: list[Seconds] = []  # pace that opened each tier; empty until they are formed
        self._awaited: dict[BufferId, dict[ClientId, None]] = {GENERAL: {}}  # who trains, per round
        self._totals: dict[BufferId, float] = {}  # what shares are taken of, fixed for each round

    def begin(self, roster: Roster, members: Sequence[Member], at: Seconds) -> list[Command]:
        """Take part in the first round or, once there are tiers, train a task to be measured."""
        if not self._fastest:
            return self._open_round(roster, GENERAL, members, at)
        return [roster.start(member, self.settings.steps, at) for member in members]

    def accept(
        self, roster: Roster, member: Member, task: StartTraining, steps: Steps, at: Seconds
    ) -> list[Command]:
        """Keep the update until everybody in the tier has answered."""
        buffer = self._round_of(member, task)
        if buffer is None:
            buffer = member.group = self._fitting_tier(member)
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
        if self._awaited[buffer]:
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
        for member in members:
            self._awaited[buffer][member.client] = None
            commands.append(roster.start(member, self.settings.steps, at, buffer or None))
        return commands

    def _form_tiers(self, roster: Roster) -> None:
        """Greedily from the fastest; fixed from then on. Nobody measured: no tiers yet."""
        measured = [(_pace(member), member) for member in roster.idle() if member.pace]
        for pace, member in sorted(measured, key=lambda pair: pair[0]):
            if not self._fastest or pace > self._fastest[-1] * self.settings.tier_ratio:
                self._fastest.append(pace)
                self._awaited[len(self._fastest)] = {}
            member.group = len(self._fastest)

    def _fitting_tier(self, member: Member) -> BufferId:
        """The first tier the pace is not too slow for, the last if it is too slow for all."""
        pace = _pace(member)
        for tier, fastest in enumerate(self._fastest, start=1):
            if pace <= fastest * self.settings.tier_ratio:
                return tier
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
