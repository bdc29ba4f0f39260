"""A scheduler of your own: everybody goes on at once, but the model changes at fixed times.

Updates are collected; a merge happens at the first answer after every `period` seconds. This is the
whole of it: membership, task ids, refusals and the journal are the library's work.
`fedcompass.simulate(experiment, executor="none")` makes the schedule without training.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

import fedcompass
from fedcompass.scheduling.commands import GENERAL, Command, StartTraining
from fedcompass.scheduling.policy import NoDeadlines, SchedulerSettings
from fedcompass.scheduling.registry import register_policy
from fedcompass.scheduling.roster import Member, Roster
from fedcompass.strategies import Recipe, register


class PeriodicSettings(SchedulerSettings):
    steps: int = Field(default=20, ge=1)
    period: float = Field(default=5.0, gt=0)


class Periodic(NoDeadlines):
    def __init__(self, settings: PeriodicSettings) -> None:
        self.settings, self._next_merge = settings, settings.period

    def begin(self, roster: Roster, members: Sequence[Member], at: float) -> list[Command]:
        return [roster.start(member, self.settings.steps, at) for member in members]

    def accept(
        self, roster: Roster, member: Member, task: StartTraining, steps: int, at: float
    ) -> list[Command]:
        commands: list[Command] = [roster.fold(member, task, steps, at, GENERAL)]
        if at >= self._next_merge:
            commands.append(roster.commit([GENERAL], at))
            self._next_merge = at + self.settings.period
        return commands + self.begin(roster, [member], at)

    def forget(
        self, roster: Roster, member: Member, task: StartTraining | None, at: float
    ) -> list[Command]:
        return []

    def again(self, roster: Roster, member: Member, at: float) -> list[Command]:
        return self.begin(roster, [member], at)

    def to_json(self) -> dict[str, Any]:
        return {"next_merge": self._next_merge}

    def restore(self, state: dict[str, Any], roster: Roster) -> None:
        self._next_merge = state["next_merge"]


register_policy("periodic", PeriodicSettings, Periodic)
# Without `aggregation` a merge adds updates up, as FedCompass does; here it is their mean.
mean = {"weighting": "share", "scale": "mean-share"}
register("periodic", Recipe("merges what came every few seconds", "periodic", aggregation=mean))

result = fedcompass.simulate(
    fedcompass.Experiment(strategy={"name": "periodic", "period": 4.0}, horizon=10.0)
)
print(f"merges: {result.summary['global_updates']}, updates: {result.summary['updates']}")
print(f"clients waited {result.summary['idle_share']:.0%} of their time")
