"""What must hold after every event, whatever happens; a scheduler is watched from outside.

`Watched.handle` hands an event on and checks the commands one by one against its own record:
every accepted update is merged exactly once or pending, versions rise by one, task ids are never
reused, and nobody waits forever.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from typing import Any, assert_never

from fedcompass.scheduling.beats import KnownPaces
from fedcompass.scheduling.commands import (
    DIRECT,
    GENERAL,
    Command,
    Commit,
    Discard,
    Fold,
    FoldAgain,
    Hold,
    Quarantine,
    SetDeadline,
    StartTraining,
)
from fedcompass.scheduling.compass import Compass
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
    UpdateReturned,
)
from fedcompass.scheduling.immediate import Immediate
from fedcompass.scheduling.metronome import Metronome
from fedcompass.scheduling.pace import INSTANT
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.scheduling.synchronous import Synchronous
from fedcompass.scheduling.tiered import Tiered


def copy_of(state: dict[str, Any]) -> dict[str, Any]:
    """The state through JSON and back; strict JSON has no NaN and no infinity."""
    copied: dict[str, Any] = json.loads(json.dumps(state, allow_nan=False))
    return copied


@dataclass
class Watched:
    """A scheduler whose every answer is checked."""

    scheduler: Scheduler
    min_steps: int
    max_steps: int
    present: dict[str, None] = field(default_factory=dict)  # joined and not left
    quarantined: set[str] = field(default_factory=set)
    tasks: dict[str, StartTraining] = field(default_factory=dict)  # outstanding, by client
    last_task: int = 0
    given_steps: dict[str, int] = field(default_factory=dict)  # by client, also of those who left
    version: int = 0
    buffers: dict[int, list[Fold]] = field(default_factory=dict)  # accepted, not merged
    samples: dict[int, int] = field(default_factory=dict)  # of the sender, by folded task
    merged: set[int] = field(default_factory=set)  # tasks whose update is in the model
    deadlines: dict[int, float] = field(default_factory=dict)  # all that were ever set
    latest: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # task, steps, version
    repeated: dict[str, int] = field(default_factory=dict)  # client -> buffer, in this merge
    made: list[Commit] = field(default_factory=list)  # merges of the last event
    failed: int = 0  # merges that came to nothing
    lost: set[int] = field(default_factory=set)  # tasks whose update no merge will have
    untold: set[str] = field(default_factory=set)  # before the last event
    came_back: bool = False  # since the last event that commands could follow from

    def handle(self, event: Event) -> list[Command]:
        """Pass an event on; every command and the state afterwards are checked."""
        self.made, self.came_back = [], False
        self.untold = set(self.scheduler.roster.untold)  # deadlines that were due come first
        commands = self.scheduler.handle(event)
        answered = self._take_note(event)
        folds = []
        for command in commands:
            match command:
                case Fold():
                    self._check_fold(command)
                    folds.append(command.task)
                case Discard():
                    self._check_discard(command)
                    folds.append(command.task)
                case FoldAgain():
                    self._check_again(command)
                case Commit():
                    self._check_commit(command)
                case Hold():
                    self._check_hold(command, event)
                case StartTraining():
                    self._check_start(command, event)
                case SetDeadline():
                    assert command.group not in self.deadlines, "a group has one deadline"
                    self.deadlines[command.group] = command.at
                case Quarantine():
                    returns = isinstance(event, ClientJoined)
                    assert returns == (command.client in self.quarantined), "it outlasts an absence"
                    self.quarantined.add(command.client)
                    self.tasks.pop(command.client, None)  # a deadline that was due gave it one
                case _:
                    assert_never(command)
        assert not self.repeated, "what is folded again is merged at once"
        assert folds == answered, "an accepted answer is folded or discarded once, nothing else"
        self._note_who_is_here(event, commands)
        self.check()
        return commands

    def fail(
        self, commit: Commit, waiting: Collection[int], untold: tuple[str, ...] = ()
    ) -> list[Event]:
        """A merge of the last event, and none after it, comes to nothing; some updates wait.

        Returns what the scheduler was told.
        """
        at = self.scheduler.now
        told: list[Event] = [MergeFailed(at=at, version=commit.version, untold=untold)]
        for fold in commit.contributions:
            self.merged.discard(fold.task)
            if fold.task in waiting:
                told.append(UpdateReturned(at=at, **_but_at_and_buffer(fold)))
                back = replace(fold, at=at, buffer=GENERAL)
                self.buffers.setdefault(GENERAL, []).append(back)
            else:
                self.lost.add(fold.task)
        self.failed += 1
        self.version -= 1
        for client, task in self.tasks.items():
            if task.version >= commit.version:
                self.tasks[client] = replace(task, version=task.version - 1)
        for event in told:
            assert self.scheduler.handle(event) == [], "what follows waits for an event"
        self.came_back = True
        self.check()
        return told

    def _take_note(self, event: Event) -> list[int]:
        """Strike off a task that was lost; returns the task whose update is to be folded."""
        match event:
            case UpdateArrived() if event.steps_done:
                return [event.task]
            case UpdateArrived() | TaskLost() | UpdateRefused():
                held = self.tasks.get(event.client)
                if held is not None and held.task == event.task:
                    del self.tasks[event.client]
            case QuarantineLifted():
                self.quarantined.discard(event.client)
            case ClientJoined():
                self.present.setdefault(event.client)
            case ClientLost() | DeadlinePassed() | UpdateReturned():
                pass
            case MergeFailed() | SpoilerFound():
                pass
            case _:
                assert_never(event)
        return []

    def _note_who_is_here(self, event: Event, commands: list[Command]) -> None:
        """One that left or came back held no task, but for the last it was given in coming back.

        Before that, deadlines that were due may have sent it to train: they are carried out first.
        """
        if isinstance(event, ClientJoined | ClientLost):
            del self.present[event.client]
            held = self.tasks.get(event.client)
            if isinstance(event, ClientJoined):
                self.present[event.client] = None
            if held is not None and not (self._warms_up(held, event) and held in commands):
                del self.tasks[event.client]

    def _warms_up(self, order: StartTraining, event: Event) -> bool:
        return isinstance(event, ClientJoined) and order.client == event.client and not order.group

    def _check_fold(self, fold: Fold) -> None:
        order = self.tasks.pop(fold.client)
        assert fold.task == order.task
        assert fold.share > 0
        # A tier's joiner may outweigh the rest; one that catches up counts several times.
        if not isinstance(self.scheduler.policy, Tiered | Metronome):
            assert fold.share <= 1
        assert 1 <= fold.steps <= order.steps
        assert fold.staleness == self.version - order.version >= 0
        self.buffers.setdefault(fold.buffer, []).append(fold)
        self.latest[fold.client] = (fold.task, fold.steps, order.version)
        self.samples[fold.task] = self.scheduler.roster.members[fold.client].samples

    def _check_discard(self, discard: Discard) -> None:
        """Only a tier's profiling gives work that no merge will have, and a tenth of the steps."""
        policy = self.scheduler.policy
        assert isinstance(policy, Tiered)
        assert policy.settings.profiling == "tasks"
        order = self.tasks.pop(discard.client)
        assert (discard.task, order.group) == (order.task, None)
        assert 1 <= discard.steps <= order.steps <= max(1, policy.settings.steps // 10)

    def _check_again(self, again: FoldAgain) -> None:
        """It repeats the client's last merged update, in a merge where the client is absent."""
        assert isinstance(self.scheduler.policy, Metronome)
        assert self.scheduler.settings.repeats_updates
        assert again.client in self.present
        assert again.client not in self.quarantined
        task, steps, version = self.latest[again.client]
        assert (again.task, again.steps) == (task, steps)
        assert again.task in self.merged
        assert again.staleness == self.version - version >= 0
        assert 0 < again.share <= 1
        assert again.client not in self.repeated, "once for each merge"
        self.repeated[again.client] = again.buffer

    def _check_hold(self, hold: Hold, event: Event) -> None:
        """It is for want of clients; who comes back now was not here when a deadline was due."""
        held = {fold.client for buffer in hold.buffers for fold in self.buffers[buffer]}
        if isinstance(event, ClientJoined | QuarantineLifted):
            held.discard(event.client)
        here = held & self._active() & self.scheduler.roster.members.keys()
        assert len(here) < self._fewest or here <= self.untold
        assert self._fewest > 1

    @property
    def _fewest(self) -> int:
        return self.scheduler.settings.merge_at_least

    def _check_commit(self, commit: Commit) -> None:
        clients = {fold.client for fold in commit.contributions}
        assert len(clients) >= self._fewest
        assert self._fewest == 1 or DIRECT not in commit.buffers
        assert not clients & set(self.repeated), "only who is absent is repeated"
        assert set(self.repeated.values()) <= set(commit.buffers)
        self.repeated = {}
        self.version += 1
        assert commit.version == self.version, "the version rises by one per merge"
        expected = [fold for buffer in commit.buffers for fold in self.buffers.pop(buffer)]
        assert list(commit.contributions) == expected, "what a buffer holds is merged whole"
        assert expected, "a merge merges something"
        assert not self.merged & {fold.task for fold in expected}, "and only once"
        assert not self.lost & {fold.task for fold in expected}, "what is lost stays lost"
        self.merged |= {fold.task for fold in expected}
        self.made.append(commit)
        one_round = (
            self._fewest == 1 and not self.failed
        )  # else updates of several rounds may be in a merge
        if one_round and isinstance(self.scheduler.policy, Synchronous | Tiered):
            per_sample = [fold.share / self.samples[fold.task] for fold in expected]
            assert max(per_sample) <= min(per_sample) * (1 + 1e-9), "weights in proportion"

    def _check_start(self, order: StartTraining, event: Event) -> None:
        if self._warms_up(order, event):
            self.tasks.pop(order.client, None)
        assert order.task == self.last_task + 1, "task ids rise and are never reused"
        self.last_task = order.task
        before = self.given_steps.get(order.client, 0)
        assert order.steps_before == before, "it goes on where the client's last task was to end"
        self.given_steps[order.client] = before + order.steps
        assert order.client in self.present
        assert order.version == self.version, "it gets the newest model"
        assert self.min_steps <= order.steps <= self.max_steps
        assert order.client not in self.tasks, "one outstanding task per client"
        assert order.client not in self.quarantined
        self.tasks[order.client] = order

    def check(self) -> None:
        """The state agrees with the record, and nobody waits forever."""
        scheduler = self.scheduler
        held = {m.client: m.task for m in scheduler.roster.members.values() if m.task}
        assert held == self.tasks
        assert list(scheduler.roster.members) == list(self.present)
        assert scheduler.version == self.version
        pending = [fold for folds in self.buffers.values() for fold in folds]
        assert scheduler.pending() == pending
        assert all(scheduler.roster.unmerged.values()), "no empty buffers"
        waiting = [c for c in self.present if c not in held and c not in self.quarantined]
        parked = scheduler.roster.parked
        assert parked.keys() <= set(waiting)
        if scheduler.started:
            self._check_who_is_parked()
            self._check_nobody_waits_forever([c for c in waiting if c not in parked])
        else:
            assert not held

    def _check_who_is_parked(self) -> None:
        """A merge is held for want of clients; however long, of a client few updates wait."""
        roster = self.scheduler.roster
        if not roster.parked:
            return
        assert roster.held
        own = [fold.client for folds in self.buffers.values() for fold in folds]
        assert all(own.count(client) >= 2 for client in roster.parked), "one waits for nothing"
        for_any = {*roster.held, GENERAL}
        waiting = [one for buffer in self.buffers.keys() & for_any for one in self.buffers[buffer]]
        clients = {fold.client for fold in waiting}
        if self.came_back:  # from a merge that failed: the next event makes another
            assert self.tasks, "an event will come"
        else:
            here = clients & self._active()
            untold = set(self.scheduler.roster.untold)
            assert len(here) < self._fewest or here <= untold, "a merge can be made"

    def _active(self) -> set[str]:
        return self.present.keys() - self.quarantined

    def _check_nobody_waits_forever(self, waiting: list[str]) -> None:
        match self.scheduler.policy:
            case Compass() as policy:
                self._check_groups(policy, waiting)
            case Metronome() as policy:
                self._check_beats(policy, waiting)
            case Synchronous() as policy:
                assert policy.to_json()["awaited"] == sorted(self.tasks, key=self._task_id)
                assert self.tasks or not waiting
            case Tiered() as policy:
                self._check_tiers(policy, waiting)
            case Immediate():
                assert not waiting, "nobody ever waits"
            case other:
                raise AssertionError(f"no invariants for {other}")

    def _task_id(self, client: str) -> int:
        return self.tasks[client].task

    def _check_groups(self, policy: Compass, waiting: list[str]) -> None:
        accounted: list[str] = []
        for group in policy.open_groups:
            assert group.awaited, "an open group waits for somebody"
            assert self.deadlines[group.id] == group.deadline >= self.scheduler.now - 2 * INSTANT
            assert group.expected <= group.deadline
            assert all(self.tasks[client].group == group.id for client in group.awaited)
            accounted += group.arrived
        assert sorted(accounted) == sorted(waiting), "who waits, waits in a group with a deadline"
        in_buffers = {buffer for buffer in self.buffers if buffer > 0}
        held = set(self.scheduler.roster.held)
        assert in_buffers <= held | {group.id for group in policy.open_groups}, "none is forgotten"

    def _check_beats(self, policy: Metronome, waiting: list[str]) -> None:
        state = policy.to_json()
        accounted = list(state["waiting"])
        for beat in policy.open_groups:
            assert beat.awaited, "an open beat waits for somebody"
            assert self.deadlines[beat.id] == beat.deadline >= self.scheduler.now - 2 * INSTANT
            assert beat.expected <= beat.deadline
            for client in beat.awaited:
                order, pace = self.tasks[client], self.scheduler.pace(client)
                assert order.group == beat.id
                assert pace is not None
                due = order.at + pace.seconds_for(order.steps)
                assert due <= beat.expected + INSTANT * (1 + pace.seconds_per_step), "within reach"
            accounted += beat.arrived
        assert sorted(accounted) == sorted(waiting), "who waits, waits for a beat with a deadline"
        if state["waiting"]:
            assert self.tasks, "the warm-up waits for somebody"
        self._check_period(policy)
        in_buffers = {buffer for buffer in self.buffers if buffer > 0}
        to_be_merged = {beat.id for beat in policy.open_groups} | set(state["early"])
        to_be_merged |= set(self.scheduler.roster.held)
        assert in_buffers <= to_be_merged, "no buffer is forgotten"
        if self.buffers and not self.quarantined and self.tasks and state["early"]:
            assert list(policy.open_groups), "what came early has a merge to wait for"

    def _check_period(self, policy: Metronome) -> None:
        """What it knows of paces is what the roster has."""
        roster = self.scheduler.roster
        paces = KnownPaces(self.min_steps, self.max_steps)
        for member in roster.members.values():
            if member.pace is not None and not member.quarantined:
                paces.note(member.client, member.pace, roster.weight(member))
        assert vars(policy._paces) == vars(paces)

    def _check_tiers(self, policy: Tiered, waiting: list[str]) -> None:
        awaited = dict(policy.to_json()["awaited"])
        for client in waiting:
            member = self.scheduler.roster.members[client]
            assert awaited[member.group or 0], "who waits, waits for somebody of its round"
        for tier, clients in awaited.items():
            assert all((self.tasks[client].group or 0) == tier for client in clients)
            assert clients or tier not in self.buffers, "an empty round holds nothing back"
        if policy.settings.profiling == "tasks":
            assert 0 not in self.buffers, "what measures a pace is never merged"
            present = [m for m in self.scheduler.roster.members.values() if not m.quarantined]
            measured = sum(member.samples for member in present if member.pace)
            enough = measured and 4 * measured >= 3 * sum(member.samples for member in present)
            assert policy.to_json()["fastest"] or not enough, "tiers are formed when they can be"


def _but_at_and_buffer(fold: Fold) -> dict[str, Any]:
    return {k: v for k, v in asdict(fold).items() if k not in ("at", "buffer")}
