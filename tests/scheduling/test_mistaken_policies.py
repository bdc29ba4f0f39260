"""A policy that makes a mistake is told so at once, in words; nothing is lost in silence."""

from collections.abc import Sequence

import pytest
from tests.scheduling.conversations import arrived, joined, tell

from fedcompass.scheduling.commands import GENERAL, Command, StartTraining
from fedcompass.scheduling.immediate import Immediate
from fedcompass.scheduling.policy import FixedStepsSettings
from fedcompass.scheduling.roster import Member, Roster
from fedcompass.scheduling.scheduler import Scheduler


class FoldsNothing(Immediate):
    def accept(
        self, roster: Roster, member: Member, task: StartTraining, steps: int, at: float
    ) -> list[Command]:
        return self.begin(roster, [member], at)


class KeepsItsFoldToItself(Immediate):
    def accept(
        self, roster: Roster, member: Member, task: StartTraining, steps: int, at: float
    ) -> list[Command]:
        roster.fold(member, task, steps, at, GENERAL)
        return [roster.commit((GENERAL,), at)]


class MergesBeforeItFolds(Immediate):
    def accept(
        self, roster: Roster, member: Member, task: StartTraining, steps: int, at: float
    ) -> list[Command]:
        return [roster.commit((GENERAL,), at), roster.fold(member, task, steps, at, GENERAL)]


class StartsEverybody(Immediate):
    def begin(self, roster: Roster, members: Sequence[Member], at: float) -> list[Command]:
        return [roster.start(member, 10, at) for member in roster.members.values()]


@pytest.mark.parametrize("policy", [FoldsNothing, KeepsItsFoldToItself])
def test_an_update_that_is_not_folded_is_named(policy: type[Immediate]) -> None:
    scheduler = Scheduler(policy(FixedStepsSettings(steps=10)))
    tell(scheduler, joined("a"))
    with pytest.raises(ValueError, match="did not fold the update of client 'a' for task 1"):
        scheduler.handle(arrived(2.0, "a", 1, 10))


def test_a_merge_of_nothing_names_the_buffer() -> None:
    scheduler = Scheduler(MergesBeforeItFolds(FixedStepsSettings(steps=10)))
    tell(scheduler, joined("a"))
    with pytest.raises(ValueError, match=r"buffer 0 has nothing to merge \(t=2s\)"):
        scheduler.handle(arrived(2.0, "a", 1, 10))
    assert scheduler.version == 0


def test_a_second_task_for_a_client_that_holds_one_is_refused() -> None:
    scheduler = Scheduler(StartsEverybody(FixedStepsSettings()))
    tell(scheduler, joined("a"))
    with pytest.raises(ValueError, match="client 'a' holds task 1 and is given another"):
        scheduler.handle(joined("b"))


def test_a_task_needs_steps_and_a_client_out_of_quarantine() -> None:
    roster = Roster()
    member = roster.add("a", samples=1)
    with pytest.raises(ValueError, match=r"given a task of 0 steps .*; allowed: at least 1"):
        roster.start(member, 0, 1.0)
    roster.quarantine(member)
    with pytest.raises(ValueError, match="client 'a' is in quarantine"):
        roster.start(member, 1, 1.0)
    assert roster.last_task == 0
