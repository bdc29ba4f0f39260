"""Any order of joins, answers, delays, losses, returns, refusals and deadlines, in all schedulers.

A twin restored from JSON at random moments hears the same events and must say the same.
"""

from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.scheduling.invariants import Watched, copy_of

from fedcompass.errors import EventRefused
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.events import (
    ClientJoined,
    ClientLost,
    DeadlinePassed,
    Event,
    MergeFailed,
    QuarantineLifted,
    SpoilerFound,
    TaskLost,
    UpdateArrived,
    UpdateRefused,
)
from fedcompass.scheduling.immediate import BufferedSettings, Immediate, buffered
from fedcompass.scheduling.metronome import Metronome, MetronomeSettings
from fedcompass.scheduling.pace import PaceSettings
from fedcompass.scheduling.policy import FixedStepsSettings, Policy
from fedcompass.scheduling.roster import Weights
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.scheduling.synchronous import Synchronous
from fedcompass.scheduling.tiered import Tiered, TieredSettings

CLIENTS = st.sampled_from(["a", "b", "c", "d", "e"])
DELAYS = st.one_of(
    st.sampled_from([0.0, 3e-7, 1e-6, 2e-6, 0.5, 1.0, 2.0, 5.0]),
    st.floats(0.0, 20.0, allow_subnormal=False),
)
FEW = st.integers(1, 3)
PACES = st.builds(
    PaceSettings, newest_weight=st.sampled_from([1.0, 0.3]), overhead_aware=st.booleans()
)
COMPUTE = st.none() | st.sampled_from([0.0, 0.5, 3.0, float("nan"), float("inf"), -1.0])


class AnyOrder(RuleBasedStateMachine):
    """Subclasses say which scheduler; `make` builds the same one again for the twin."""

    make: Callable[[], Policy]
    watched: Watched
    twin: Scheduler
    now: float  # the latest event's time

    def begin(self, make: Callable[[], Policy], min_steps: int, max_steps: int) -> None:
        self.make = make
        self.watched = Watched(Scheduler(make()), min_steps, max_steps)
        self.twin = Scheduler(make())
        self.now = 0.0

    def tell(self, event: Event) -> None:
        self.now = max(self.now, event.at)
        assert self.watched.handle(event) == self.twin.handle(event)

    def later(self, delay: float, near_deadline: bool) -> float:
        """A moment from now on, as likely as not next to a deadline that is still to come."""
        ahead = [at for at in self.watched.deadlines.values() if at >= self.now]
        if near_deadline and ahead:
            return max(min(ahead) + delay / 1e7, self.now)
        return self.now + delay

    @rule(client=CLIENTS, delay=DELAYS, samples=FEW)
    def a_client_joins_or_returns(self, client: str, delay: float, samples: int) -> None:
        self.tell(ClientJoined(at=self.now + delay, client=client, samples=samples))

    @precondition(lambda self: self.watched.tasks)
    @rule(data=st.data(), delay=DELAYS, near=st.booleans(), compute=COMPUTE)
    def a_client_answers(
        self, data: st.DataObject, delay: float, near: bool, compute: float | None
    ) -> None:
        order = self.watched.tasks[data.draw(st.sampled_from(sorted(self.watched.tasks)))]
        steps = data.draw(st.sampled_from([order.steps, order.steps, order.steps, 1, 0]))
        self.tell(
            UpdateArrived(
                at=self.later(delay, near),
                client=order.client,
                task=order.task,
                steps_done=steps,
                compute_seconds=compute,
            )
        )

    @precondition(lambda self: len(self.watched.tasks) > 1)
    @rule(delay=DELAYS, near=st.booleans())
    def all_answer_at_one_instant(self, delay: float, near: bool) -> None:
        at = self.later(delay, near)
        for number, order in enumerate(sorted(self.watched.tasks.values(), key=lambda o: -o.task)):
            moment = at + (number % 3 - 1) * 4e-7 if at > 1 else at
            if moment >= self.now - 1e-6:
                self.tell(
                    UpdateArrived(
                        at=moment, client=order.client, task=order.task, steps_done=order.steps
                    )
                )

    @precondition(lambda self: self.watched.tasks)
    @rule(data=st.data(), delay=DELAYS, refused=st.booleans())
    def a_task_is_lost_or_refused(self, data: st.DataObject, delay: float, refused: bool) -> None:
        order = self.watched.tasks[data.draw(st.sampled_from(sorted(self.watched.tasks)))]
        at = self.now + delay
        if refused:
            self.tell(
                UpdateRefused(at=at, client=order.client, task=order.task, reason="not-finite")
            )
        else:
            self.tell(TaskLost(at=at, client=order.client, task=order.task))

    @precondition(lambda self: self.watched.present)
    @rule(data=st.data(), delay=DELAYS, near=st.booleans())
    def a_client_is_lost(self, data: st.DataObject, delay: float, near: bool) -> None:
        client = data.draw(st.sampled_from(list(self.watched.present)))
        self.tell(ClientLost(at=self.later(delay, near), client=client))

    @precondition(lambda self: self.watched.present and self.watched.scheduler.started)
    @rule(data=st.data(), delay=DELAYS)
    def a_client_is_found_to_spoil_sums(self, data: st.DataObject, delay: float) -> None:
        client = data.draw(st.sampled_from(list(self.watched.present)))
        self.tell(SpoilerFound(at=self.now + delay, client=client))

    @precondition(lambda self: self.watched.present or self.watched.quarantined)
    @rule(data=st.data(), delay=DELAYS)
    def an_operator_lifts_a_quarantine(self, data: st.DataObject, delay: float) -> None:
        excluded = sorted(self.watched.quarantined) or list(self.watched.present)
        client = data.draw(st.sampled_from(excluded))
        self.tell(QuarantineLifted(at=self.now + delay, client=client))

    @precondition(lambda self: self.watched.deadlines)
    @rule(data=st.data(), delay=DELAYS, late=st.booleans())
    def a_deadline_passes_in_time_or_late(
        self, data: st.DataObject, delay: float, late: bool
    ) -> None:
        group = data.draw(st.sampled_from(sorted(self.watched.deadlines)))
        due = max(self.watched.deadlines[group], self.now)
        self.tell(DeadlinePassed(at=due + delay if late else due, group=group))

    @rule(client=CLIENTS, task=st.integers(-1, 40), delay=DELAYS, steps=st.integers(-1, 200))
    def a_forged_or_impossible_event_changes_nothing(
        self, client: str, task: int, delay: float, steps: int
    ) -> None:
        before = copy_of(self.watched.scheduler.to_json())
        at = self.now + delay
        order = self.watched.tasks.get(client)
        held = order.task if order else None
        other = task + 1 if task == held else task
        impossible: list[Event] = [
            UpdateArrived(at=at, client=client, task=other, steps_done=steps),
            TaskLost(at=at, client=client, task=other),
            ClientJoined(at=at, client=client, samples=0),
            ClientLost(at=at, client="stranger"),
            QuarantineLifted(at=at, client="stranger"),
            ClientJoined(at=self.now - 1.0, client=client, samples=1),
            ClientJoined(at=float("nan"), client=client, samples=1),
            ClientJoined(at=float("inf"), client=client, samples=1),
            MergeFailed(at=at, version=0),
            MergeFailed(at=at, version=self.watched.version + 1),
        ]
        if order is not None:
            impossible += [
                UpdateArrived(at=at, client=client, task=order.task, steps_done=order.steps + 1),
                UpdateArrived(at=at, client=client, task=order.task, steps_done=-1),
            ]
            due = self.watched.scheduler.policy.deadline_of(order.group or 0)
            if order.group is not None and due is not None and due > self.now + 1:
                impossible.append(DeadlinePassed(at=due - 0.5, group=order.group))
        for event in impossible:
            with pytest.raises(EventRefused):
                self.watched.scheduler.handle(event)
        forged = UpdateRefused(at=self.now, client=client, task=other, reason="duplicate")
        assert self.watched.scheduler.handle(forged) == []
        assert copy_of(self.watched.scheduler.to_json()) == before

    @precondition(lambda self: self.watched.made and not self.repeats())
    @rule(data=st.data())
    def merges_of_the_last_event_come_to_nothing(self, data: st.DataObject) -> None:
        """The last first; what waits on waits for any merge, where there is one for any."""
        tiered = isinstance(self.watched.scheduler.policy, Tiered)
        for commit in reversed(self.watched.made):
            if data.draw(st.booleans()):
                tasks = [] if tiered else [fold.task for fold in commit.contributions]
                waiting = data.draw(st.sets(st.sampled_from(tasks))) if tasks else set()
                clients = tuple(sorted({fold.client for fold in commit.contributions}))
                untold = clients if data.draw(st.booleans()) else ()
                for event in self.watched.fail(commit, waiting, untold):
                    assert self.twin.handle(event) == []
        self.watched.made = []

    def repeats(self) -> bool:
        """Who repeats updates has no sums of which only the whole is seen."""
        return self.watched.scheduler.settings.repeats_updates

    @rule()
    def the_twin_is_restored_from_json(self) -> None:
        state = copy_of(self.watched.scheduler.to_json())
        self.twin = Scheduler(self.make())
        self.twin.restore(state)

    @invariant()
    def the_twin_is_in_the_same_state(self) -> None:
        if hasattr(self, "twin"):
            assert copy_of(self.twin.to_json()) == copy_of(self.watched.scheduler.to_json())
            assert self.twin.pending() == self.watched.scheduler.pending()
            ours, twins = (steps_before(s) for s in (self.watched.scheduler, self.twin))
            assert ours == twins


def steps_before(scheduler: Scheduler) -> dict[str, int]:
    """Of the tasks that are held; commands are equal without it."""
    members = scheduler.roster.members.values()
    return {member.client: member.task.steps_before for member in members if member.task}


class CompassInAnyOrder(AnyOrder):
    @initialize(
        min_steps=st.integers(1, 12),
        extra=st.sampled_from([0, 1, 10, 100]),
        latest=st.sampled_from([1.0, 1.2, 2.0]),
        min_clients=FEW,
        quarantine_after=FEW,
        merge_at_least=FEW,
        create_group=st.sampled_from(["clamp", "pass-over"]),
        pace=PACES,
    )
    def compass(
        self,
        min_steps: int,
        extra: int,
        latest: float,
        min_clients: int,
        quarantine_after: int,
        merge_at_least: int,
        create_group: Literal["clamp", "pass-over"],
        pace: PaceSettings,
    ) -> None:
        settings = CompassSettings(
            min_steps=min_steps,
            max_steps=min_steps + extra,
            latest=latest,
            min_clients=min_clients,
            quarantine_after=quarantine_after,
            merge_at_least=merge_at_least,
            create_group=create_group,
            pace=pace,
        )
        self.begin(lambda: Compass(settings), min_steps, min_steps + extra)


class MetronomeInAnyOrder(AnyOrder):
    @initialize(
        steps=st.tuples(st.integers(1, 12), st.sampled_from([0, 1, 10, 100])),
        covered=st.sampled_from([0.01, 0.5, 0.75, 1.0]),
        latest=st.sampled_from([1.0, 1.2, 2.0]),
        clients=st.tuples(FEW, FEW),
        weights=st.sampled_from(["samples", "equal"]),
        absent=st.sampled_from(["skip", "remember", "catch-up"]),
        merge_at_least=FEW,
        pace=PACES,
    )
    def metronome(
        self,
        steps: tuple[int, int],
        covered: float,
        latest: float,
        clients: tuple[int, int],
        weights: Weights,
        absent: Literal["skip", "remember", "catch-up"],
        merge_at_least: int,
        pace: PaceSettings,
    ) -> None:
        settings = MetronomeSettings(
            min_steps=steps[0],
            max_steps=sum(steps),
            covered=covered,
            latest=latest,
            min_clients=clients[0],
            quarantine_after=clients[1],
            weights=weights,
            absent=absent,
            merge_at_least=1 if absent == "remember" else merge_at_least,  # others are refused
            pace=pace,
        )
        self.begin(lambda: Metronome(settings), steps[0], sum(steps))


class SynchronousInAnyOrder(AnyOrder):
    @initialize(min_clients=FEW, quarantine_after=FEW, merge_at_least=FEW)
    def synchronous(self, min_clients: int, quarantine_after: int, merge_at_least: int) -> None:
        settings = FixedStepsSettings(
            steps=10,
            min_clients=min_clients,
            quarantine_after=quarantine_after,
            merge_at_least=merge_at_least,
        )
        self.begin(lambda: Synchronous(settings), 10, 10)


class ImmediateInAnyOrder(AnyOrder):
    @initialize(min_clients=FEW, quarantine_after=FEW)
    def immediate(self, min_clients: int, quarantine_after: int) -> None:
        settings = FixedStepsSettings(
            steps=10, min_clients=min_clients, quarantine_after=quarantine_after, weights="equal"
        )
        self.begin(lambda: Immediate(settings), 10, 10)


class BufferedInAnyOrder(AnyOrder):
    @initialize(size=st.integers(1, 6), min_clients=FEW, quarantine_after=FEW, merge_at_least=FEW)
    def buffered(
        self, size: int, min_clients: int, quarantine_after: int, merge_at_least: int
    ) -> None:
        settings = BufferedSettings(
            steps=10,
            buffer_size=size,
            min_clients=min_clients,
            quarantine_after=quarantine_after,
            merge_at_least=merge_at_least,
        )
        self.begin(lambda: buffered(settings), 10, 10)


class TieredInAnyOrder(AnyOrder):
    @initialize(
        steps=st.sampled_from([10, 25]),
        ratio=st.sampled_from([1.0, 1.5, 3.0]),
        profiling=st.sampled_from(["round", "tasks"]),
        min_clients=FEW,
        quarantine_after=FEW,
    )
    def tiered(
        self,
        steps: int,
        ratio: float,
        profiling: Literal["round", "tasks"],
        min_clients: int,
        quarantine_after: int,
    ) -> None:
        settings = TieredSettings(
            steps=steps,
            tier_ratio=ratio,
            profiling=profiling,
            min_clients=min_clients,
            quarantine_after=quarantine_after,
        )
        fewest = steps // 10 if profiling == "tasks" else steps
        self.begin(lambda: Tiered(settings), fewest, steps)


@pytest.mark.parametrize(
    "machine",
    [
        CompassInAnyOrder,
        MetronomeInAnyOrder,
        SynchronousInAnyOrder,
        ImmediateInAnyOrder,
        BufferedInAnyOrder,
        TieredInAnyOrder,
    ],
)
def test_whatever_happens_nothing_is_lost_and_nobody_waits_forever(
    machine: type[AnyOrder],
) -> None:
    run_state_machine_as_test(machine)
