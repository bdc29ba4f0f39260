"""FedAvg's schedule: everybody trains Q steps, the server waits for all, and a round is over."""

from collections.abc import Iterable, Sequence
from typing import Any

from fedcompass.scheduling.commands import GENERAL, Command, StartTraining
from fedcompass.scheduling.policy import FixedStepsSettings, NoDeadlines
from fedcompass.scheduling.roster import Member, Roster
from fedcompass.vocabulary import ClientId, Seconds, Steps

__all__ = ["Synchronous"]


class Synchronous(NoDeadlines):
    """Rounds of all clients; one that joins or loses its task mid-round waits for the next."""

    def __init__(self, settings: FixedStepsSettings) -> None:
        self.settings = settings
        self._awaited: dict[ClientId, None] = {}  # who trains; empty: no round is open
        self._total = 0.0  # what shares are taken of: the same for all updates of a round

    def begin(self, roster: Roster, members: Sequence[Member], at: Seconds) -> list[Command]:
        """Open a round, or wait for the next if one is open."""
        return [] if self._awaited else self._open_round(roster, members, at)

    def _open_round(self, roster: Roster, members: Iterable[Member], at: Seconds) -> list[Command]:
        commands: list[Command] = []
        self._total = roster.total()
        for member in members:
            # Rounds go on while a merge is held for want of clients; not while it cannot be made.
            if roster.untold and roster.is_parked(member):
                continue
            self._awaited[member.client] = None
            commands.append(roster.start(member, self.settings.steps, at))
        return commands

    def accept(
        self, roster: Roster, member: Member, task: StartTraining, steps: Steps, at: Seconds
    ) -> list[Command]:
        """Keep the update until the round is over."""
        fold = roster.fold(member, task, steps, at, GENERAL, out_of=self._total)
        return [fold, *self.forget(roster, member, task, at)]

    def forget(
        self, roster: Roster, member: Member, task: StartTraining | None, at: Seconds
    ) -> list[Command]:
        """Wait for one fewer; when nobody is awaited, merge what came and open the next round."""
        if task is None:
            return []
        del self._awaited[member.client]
        if self._awaited:
            return []
        commands: list[Command] = []
        if GENERAL in roster.unmerged:
            commands.append(roster.commit((GENERAL,), at))
        return commands + self._open_round(roster, roster.idle(), at)

    def again(self, roster: Roster, member: Member, at: Seconds) -> list[Command]:
        """Wait for the next round; open it if merges could not be made and now one is."""
        return [] if self._awaited else self._open_round(roster, roster.idle(), at)

    def to_json(self) -> dict[str, Any]:
        """Who is awaited."""
        return {"awaited": list(self._awaited), "total": self._total}

    def restore(self, state: dict[str, Any], roster: Roster) -> None:
        """Take over what `to_json` wrote."""
        self._awaited = dict.fromkeys(state["awaited"])
        self._total = state["total"]
