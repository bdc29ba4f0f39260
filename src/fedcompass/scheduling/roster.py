"""Who takes part, which task each client holds, and which accepted updates are not merged yet."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from fedcompass.scheduling.commands import (
    GENERAL,
    Commit,
    Discard,
    Fold,
    FoldAgain,
    Hold,
    StartTraining,
)
from fedcompass.scheduling.events import UpdateReturned
from fedcompass.scheduling.pace import Pace
from fedcompass.vocabulary import (
    BufferId,
    ClientId,
    GroupId,
    ModelVersion,
    Seconds,
    Steps,
    TaskId,
)

__all__ = ["MOST_HELD", "Answered", "Member", "Roster", "Weights"]

MOST_HELD = 2
"""Updates of a client that may wait while a merge is held: they start from the same version, and
each counts in full."""

Weights: TypeAlias = Literal["samples", "equal"]
"""What p_i is: the client's share of the samples, or one over the number of clients."""


@dataclass(slots=True)
class Member:
    """One client that has joined and not left."""

    client: ClientId
    samples: int
    task: StartTraining | None = None  # the one whose answer counts, None while waiting
    pace: Pace | None = None  # None until the first answer
    group: GroupId | None = None  # the arrival group or tier it was last put in
    refusals: int = 0  # refused answers in a row
    unusual_at: ModelVersion | None = None  # the version when one of them had an unusual norm
    quarantined: bool = False  # gets no tasks and carries no weight


class Answered(NamedTuple):
    """A task that was answered: the version it started from, and the steps done."""

    task: TaskId
    version: ModelVersion
    steps: Steps


@dataclass(slots=True)
class Roster:
    """The clients, the version counter and the updates that wait to be merged."""

    weights: Weights = "samples"
    merge_at_least: int = 1  # clients in a merge; with fewer it waits for the next
    members: dict[ClientId, Member] = field(default_factory=dict)  # in order of joining
    active_samples: int = 0  # over the members that are not quarantined
    active_count: int = 0  # likewise
    version: ModelVersion = 0  # τ_g
    last_task: TaskId = 0  # ids rise by one and are never reused
    given_steps: dict[ClientId, Steps] = field(default_factory=dict)  # also of those who left
    unmerged: dict[BufferId, list[Fold]] = field(default_factory=dict)  # no empty lists
    held: list[BufferId] = field(default_factory=list)  # of those, wait for the next merge
    parked: dict[ClientId, None] = field(default_factory=dict)  # idle until what is held is merged
    barred: dict[ClientId, None] = field(default_factory=dict)  # left while in quarantine
    untold: tuple[ClientId, ...] = ()  # one of them spoils sums: these alone make no merge

    def add(self, client: ClientId, samples: int) -> Member:
        """Take in a client that is not a member; one that left in quarantine is in it again."""
        member = self.members[client] = Member(client, samples, quarantined=client in self.barred)
        self.barred.pop(client, None)
        if not member.quarantined:
            self._activate(member, +1)
        return member

    def remove(self, member: Member) -> None:
        """Remove a member; what it contributed stays, and so does its quarantine."""
        del self.members[member.client]
        self.parked.pop(member.client, None)
        if member.quarantined:
            self.barred[member.client] = None
        else:
            self._activate(member, -1)

    def quarantine(self, member: Member) -> None:
        """Exclude a member from tasks and weights."""
        member.quarantined = True
        self.parked.pop(member.client, None)
        self._activate(member, -1)

    def readmit(self, member: Member) -> None:
        """Lift a member's quarantine; like one who comes back it has no pace yet."""
        member.quarantined, member.pace, member.group = False, None, None
        member.refusals, member.unusual_at = 0, None
        self._activate(member, +1)

    def _activate(self, member: Member, sign: int) -> None:
        self.active_samples += sign * member.samples
        self.active_count += sign

    def active(self) -> Iterator[Member]:
        """Members that are not in quarantine, in order of joining."""
        return (member for member in self.members.values() if not member.quarantined)

    def idle(self) -> Iterator[Member]:
        """Members that could be given a task, in order of joining."""
        return (member for member in self.active() if member.task is None)

    def start(
        self, member: Member, steps: Steps, at: Seconds, group: GroupId | None = None
    ) -> StartTraining:
        """Give a member a task on the present version.

        Raises:
            ValueError: it holds one already, is in quarantine, or the task has no steps; nothing
                was changed.
        """
        if member.task is not None or member.quarantined or steps < 1:
            raise ValueError(_why_not(member, steps, at))
        self.last_task += 1
        steps_before = self.given_steps.get(member.client, 0)
        self.given_steps[member.client] = steps_before + steps
        member.group = group
        member.task = command = StartTraining(
            at=at,
            client=member.client,
            task=self.last_task,
            steps=steps,
            version=self.version,
            group=group,
            steps_before=steps_before,
        )
        return command

    def fold(
        self,
        member: Member,
        task: StartTraining,
        steps: Steps,
        at: Seconds,
        buffer: BufferId,
        out_of: float | None = None,
    ) -> Fold:
        """Note an accepted update as unmerged; its staleness is taken now, as in Algorithm 1.

        Its share is that of the clients present now, or of a total fixed before (`out_of`).
        """
        fold = Fold(
            at=at,
            client=member.client,
            task=task.task,
            buffer=buffer,
            staleness=self.version - task.version,
            share=self.weight(member) / (out_of or self.total()),
            steps=steps,
        )
        if buffer in self.unmerged:
            self.unmerged[buffer].append(fold)
        else:
            self.unmerged[buffer] = [fold]
        return fold

    def fold_again(
        self, member: Member, answered: Answered, at: Seconds, buffer: BufferId
    ) -> FoldAgain:
        """Let a member's last update count once more, as old as it is now."""
        return FoldAgain(
            at=at,
            client=member.client,
            task=answered.task,
            buffer=buffer,
            staleness=self.version - answered.version,
            share=self.weight(member) / self.total(),
            steps=answered.steps,
        )

    def discard(self, member: Member, task: StartTraining, steps: Steps, at: Seconds) -> Discard:
        """Let go of an accepted update: no merge will have it."""
        return Discard(at=at, client=member.client, task=task.task, steps=steps)

    def weight(self, member: Member) -> float:
        """What a member's share is in proportion to."""
        return member.samples if self.weights == "samples" else 1

    def total(self) -> float:
        """What shares are taken of: all samples, or all clients where weights are equal."""
        return self.active_samples if self.weights == "samples" else self.active_count

    @property
    def merges_singly(self) -> bool:
        """Whether one client's update may be merged by itself, through the buffer DIRECT."""
        return self.merge_at_least <= 1

    def commit(self, buffers: Iterable[BufferId], at: Seconds) -> Commit | Hold:
        """Raise the version; the buffers' updates are merged, with those that were held before.

        Where updates of fewer than `merge_at_least` present clients are in them, all are held.

        Raises:
            ValueError: a buffer holds no update; nothing was changed.
        """
        chosen = tuple(dict.fromkeys((*buffers, *self.held)))
        for buffer in chosen:
            if buffer not in self.unmerged:
                raise ValueError(
                    f"buffer {buffer} has nothing to merge (t={at:g}s); commit only buffers that "
                    "are in roster.unmerged"
                )
        if not self._are_enough(chosen):
            self.held = list(chosen)
            return Hold(at=at, buffers=chosen)
        self.held, self.untold = [], ()
        contributions: list[Fold] = []
        for buffer in chosen:
            contributions += self.unmerged.pop(buffer)
        self.version += 1
        return Commit(
            at=at, version=self.version, buffers=chosen, contributions=tuple(contributions)
        )

    def _are_enough(self, buffers: Iterable[BufferId]) -> bool:
        """Whether as many clients that are here as a merge needs have updates in these."""
        if self.merges_singly:
            return True
        clients = {fold.client for buffer in buffers for fold in self.unmerged[buffer]}
        here = [one.client for one in self.active() if one.client in clients]
        return len(here) >= self.merge_at_least and not set(here) <= set(self.untold)

    def is_parked(self, member: Member) -> bool:
        """Whether a member must wait until what is held is merged; then it goes through `again`.

        For a policy to ask before it gives a task. Without it updates from one and the same
        version would pile up for as long as too few clients are there.
        """
        if not self._must_wait(member.client):
            return False
        self.parked[member.client] = None
        return True

    def _must_wait(self, client: ClientId) -> bool:
        if not self.held:
            return False
        own = sum(one.client == client for folds in self.unmerged.values() for one in folds)
        return own >= MOST_HELD

    def commit_held(self, at: Seconds) -> list[Commit | Hold]:
        """Merge what is held, if by now enough clients' updates wait for any merge."""
        buffers = [*self.held, *({GENERAL} & self.unmerged.keys() - {*self.held})]
        return [self.commit(buffers, at)] if self.held and self._are_enough(buffers) else []

    def unpark(self) -> list[Member]:
        """Those who need not wait any longer: their updates are merged, or nothing is held."""
        free = [client for client in self.parked if not self._must_wait(client)]
        for client in free:
            del self.parked[client]
        return [self.members[client] for client in free]

    def undo_merge(self, version: ModelVersion) -> None:
        """Count a merge as not made; tasks given since start from the model that stood all along.

        Later versions of the same event, and the tasks on them, move down by one.
        """
        self.version -= 1
        for member in self.members.values():
            if member.task is not None and member.task.version >= version:
                member.task = replace(member.task, version=member.task.version - 1)

    def take_back(self, returned: UpdateReturned) -> None:
        """Let an update that a merge left out wait among those for any merge."""
        fold = Fold(**asdict(returned), buffer=GENERAL)
        self.unmerged.setdefault(GENERAL, []).append(fold)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        held = {"held": self.held.copy()} if self.held else {}
        parked = {"parked": list(self.parked)} if self.parked else {}
        barred = {"barred": list(self.barred)} if self.barred else {}
        untold = {"untold": list(self.untold)} if self.untold else {}
        return {
            **held,
            **parked,
            **barred,
            **untold,
            "version": self.version,
            "last_task": self.last_task,
            "given_steps": self.given_steps.copy(),
            "members": [_member_to_json(member) for member in self.members.values()],
            "unmerged": [asdict(fold) for folds in self.unmerged.values() for fold in folds],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `to_json` wrote."""
        self.version, self.last_task = state["version"], state["last_task"]
        self.given_steps = dict(state["given_steps"])
        for saved in state["members"]:
            member = _member_from_json(saved, self.given_steps)
            self.members[member.client] = member
            if not member.quarantined:
                self._activate(member, +1)
        for saved in state["unmerged"]:
            fold = _fold_from_json(saved)
            self.unmerged.setdefault(fold.buffer, []).append(fold)
        self.held = list(state.get("held", []))
        self.parked = dict.fromkeys(state.get("parked", []))
        self.barred = dict.fromkeys(state.get("barred", []))
        self.untold = tuple(state.get("untold", ()))


def _why_not(member: Member, steps: Steps, at: Seconds) -> str:
    """Why a member cannot be given a task of so many steps."""
    who = f"client {member.client!r}"
    if member.task is not None:
        return (
            f"{who} holds task {member.task.task} and is given another (t={at:g}s); start only "
            "members without a task, such as roster.idle() gives"
        )
    if member.quarantined:
        return f"{who} is in quarantine and is given a task (t={at:g}s); start only others"
    return f"{who} is given a task of {steps} steps (t={at:g}s); allowed: at least 1"


def _member_to_json(member: Member) -> dict[str, Any]:
    task, pace = member.task, member.pace
    return {
        "client": member.client,
        "samples": member.samples,
        "task": task and [task.at, task.task, task.steps, task.version, task.group],
        "pace": pace and [pace.seconds_per_step, pace.overhead],
        "group": member.group,
        "refusals": member.refusals,
        "unusual_at": member.unusual_at,
        "quarantined": member.quarantined,
    }


def _fold_from_json(saved: dict[str, Any]) -> Fold:
    fields = saved.copy()
    fields.pop("direct", None)  # earlier versions wrote it beside the buffer's id
    return Fold(**fields)


def _member_from_json(saved: dict[str, Any], given_steps: dict[ClientId, Steps]) -> Member:
    member = Member(**{**saved, "task": None, "pace": None})
    if saved["task"] is not None:
        at, task, steps, version, group = saved["task"]
        member.task = StartTraining(
            at=at,
            client=member.client,
            task=task,
            steps=steps,
            version=version,
            group=group,
            steps_before=given_steps[member.client] - steps,  # it is the last that was given
        )
    if saved["pace"] is not None:
        seconds_per_step, overhead = saved["pace"]
        member.pace = Pace(seconds_per_step=seconds_per_step, overhead=overhead)
    return member
