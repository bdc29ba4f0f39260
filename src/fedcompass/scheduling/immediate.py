"""FedAsync's and FedBuff's schedule: merge every K answers (FedAsync: every one); nobody waits."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from fedcompass.scheduling.commands import GENERAL, Command, StartTraining
from fedcompass.scheduling.policy import FixedStepsSettings, NoDeadlines
from fedcompass.scheduling.roster import Member, Roster
from fedcompass.vocabulary import Seconds, Steps

__all__ = ["BufferedSettings", "Immediate", "buffered"]


class Immediate(NoDeadlines):
    """A client gets its next task at once; every `merge_after` updates make a new version."""

    def __init__(self, settings: FixedStepsSettings, merge_after: int = 1) -> None:
        self.settings = settings
        self._merge_after = merge_after  # K

    def begin(self, roster: Roster, members: Sequence[Member], at: Seconds) -> list[Command]:
        """Start training at once, but for who is parked."""
        steps = self.settings.steps
        return [roster.start(one, steps, at) for one in members if not roster.is_parked(one)]

    def accept(
        self, roster: Roster, member: Member, task: StartTraining, steps: Steps, at: Seconds
    ) -> list[Command]:
        """Put the update into the buffer, merge when it is full, and start the next task."""
        commands: list[Command] = [roster.fold(member, task, steps, at, GENERAL)]
        if len(roster.unmerged[GENERAL]) >= self._merge_after:
            commands.append(roster.commit((GENERAL,), at))
        return commands + self.begin(roster, [member], at)

    def forget(
        self, roster: Roster, member: Member, task: StartTraining | None, at: Seconds
    ) -> list[Command]:
        """Nobody waits for anybody."""
        return []

    def again(self, roster: Roster, member: Member, at: Seconds) -> list[Command]:
        """Start over from the newest model."""
        return self.begin(roster, [member], at)

    def to_json(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def restore(self, state: dict[str, Any], roster: Roster) -> None:
        """Nothing to take over."""


class BufferedSettings(FixedStepsSettings):
    """FedBuff's schedule."""

    buffer_size: int = Field(default=10, ge=1)
    """K: answers per merge."""


def buffered(settings: BufferedSettings) -> Immediate:
    """K updates, one new version (FedBuff); with K = 1 it is FedAsync's schedule."""
    return Immediate(settings, merge_after=settings.buffer_size)
