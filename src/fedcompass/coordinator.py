"""Carries out a scheduler's commands on the global model; the same object in both drivers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, TypeAlias, assert_never

from torch import Tensor

from fedcompass.aggregation import (
    Aggregator,
    AggregatorState,
    ClientMemory,
    Contribution,
    FlatState,
    GuardSettings,
    Layout,
    Payload,
    RefusedUpdate,
    check_update,
)
from fedcompass.aggregation.saved_tensors import named_state, restored_state
from fedcompass.aggregation.weighted_sum import WeightedSum
from fedcompass.errors import CheckpointError, MergeNotFinite
from fedcompass.runs.journal import Journal, NoJournal
from fedcompass.scheduling.commands import (
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
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.strategies import Strategy
from fedcompass.summed_merges import SpoilerSearch, SummedMerges, SumSource
from fedcompass.vocabulary import ClientId, GroupId, ModelVersion, Refusal, Seconds, Steps, TaskId

__all__ = ["Coordinator", "DriverCommand", "Receipt", "Update", "possible"]

DriverCommand: TypeAlias = StartTraining | SetDeadline | Quarantine
"""What is left for the driver to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A client's answer to a task, as it came in: nothing about it is trusted yet.

    tensors: None where the client keeps them until a merge asks for a sum.
    epsilon: what the client says it has spent of its privacy budget; None: it has none.
    """

    client: ClientId
    task: TaskId
    version: ModelVersion
    steps_done: Steps
    tensors: FlatState | None
    compute_seconds: Seconds | None = None
    epsilon: float | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an update: why it was refused, if it was, and what to do next."""

    refused: RefusedUpdate | None
    commands: list[DriverCommand]


class Coordinator:
    """Holds the global model and runs a strategy on it, event by event.

    Updates are folded into their buffer as they arrive, so the server's memory grows with the
    number of open groups, not with the number of clients.

    Args:
        strategy: decides who trains how long, and how updates are merged.
        layout: the model's.
        model: to begin with; it is changed in place.
        journal: is told of every event and command.
        sums: where a merge's sum comes from, if nobody is to see single updates.
    """

    def __init__(
        self,
        strategy: Strategy,
        layout: Layout,
        model: FlatState,
        journal: Journal | None = None,
        sums: SumSource | None = None,
    ) -> None:
        self._strategy = strategy
        self.scheduler: Scheduler = strategy.new_scheduler()
        self.layout = layout
        self.journal: Journal = journal or NoJournal()
        self._aggregator: Aggregator = strategy.new_aggregator(model)
        self._memory: ClientMemory = strategy.new_memory(model)
        # Clients whose sums alone are seen keep to max_norm themselves.
        self._guard = strategy.guard if sums is None else GuardSettings()
        self._summed: SummedMerges | None = None
        if sums is not None:
            assert isinstance(self._aggregator, WeightedSum)  # a secured strategy has one
            self._summed = SummedMerges(self._aggregator, self._memory, sums)
        self._failed: list[MergeFailed] = []  # that the scheduler knows of and the journal does not
        self._unmade: list[tuple[ModelVersion, tuple[ClientId, ...]]] = []  # failed in this event
        self._returned: list[UpdateReturned] = []  # that the scheduler has to be told of
        self._snapshot: FlatState | None = None  # copy of the model, shared by a version's tasks
        self._starts: dict[ModelVersion, FlatState] = {}  # of the tasks given last

    @property
    def model(self) -> FlatState:
        """The global model; merges change it in place."""
        return self._aggregator.model

    @property
    def version(self) -> ModelVersion:
        """How often the global model has changed."""
        return self.scheduler.version

    @property
    def payload(self) -> Payload:
        """What clients must send: the change or the end model."""
        return self._memory.payload or self._aggregator.payload

    def snapshot(self) -> FlatState:
        """A copy of the present version that later merges leave alone; one per version."""
        if self._snapshot is None:
            self._snapshot = self.model.clone()
        return self._snapshot

    def start_model(self, command: StartTraining) -> FlatState:
        """The model a task starts from; ask for it before the next event."""
        return self._starts[command.version]

    def join(
        self, at: Seconds, client: ClientId, samples: int, **notes: Any
    ) -> list[DriverCommand]:
        """A client is ready to train."""
        return self._handle(ClientJoined(at=at, client=client, samples=samples), **notes)

    def lose(self, at: Seconds, client: ClientId, **notes: Any) -> list[DriverCommand]:
        """A client left or died."""
        return self._handle(ClientLost(at=at, client=client), **notes)

    def lose_task(
        self, at: Seconds, client: ClientId, task: TaskId, **notes: Any
    ) -> list[DriverCommand]:
        """A client lives but lost its task."""
        return self._handle(TaskLost(at=at, client=client, task=task), **notes)

    def pass_deadline(self, at: Seconds, group: GroupId) -> list[DriverCommand]:
        """The time that `SetDeadline` gave has come."""
        return self._handle(DeadlinePassed(at=at, group=group))

    @property
    def spoiler(self) -> ClientId | None:
        """Who spoils the sums of merges, once that is known; the driver is to `exclude` it."""
        here = [member.client for member in self.scheduler.roster.active()]
        return None if self._summed is None else self._summed.search.found(here)

    def exclude(self, at: Seconds, client: ClientId, **notes: Any) -> list[DriverCommand]:
        """A client spoils sums: it goes into quarantine."""
        return self._handle(SpoilerFound(at=at, client=client), **notes)

    def lift_quarantine(
        self, at: Seconds, client: ClientId, by: str | None = None
    ) -> list[DriverCommand]:
        """An operator lets a client back in, or says that sums may be tried again.

        One that is away may come back as any other.
        """
        return self._handle(QuarantineLifted(at=at, client=client, by=by))

    def receive(
        self,
        at: Seconds,
        update: Update,
        keep: Callable[[Update], RefusedUpdate | None] | None = None,
        **notes: Any,
    ) -> Receipt:
        """Take in an answer: check it, then fold it, then do what follows from it.

        A refused update touches nothing; the sender is to be told `Receipt.refused`.

        Args:
            at: the time.
            update: the answer.
            keep: called with an update that passed the checks, before anything changes: a driver
                can refuse it or write it to disk, and where that fails nothing has happened.
            notes: facts about it for the journal.
        """
        refused = self._inspect(update)
        if refused is None and keep is not None:
            refused = keep(update)
        if refused is not None:
            return self.refuse(at, update.client, update.task, refused, **notes)
        arrived = UpdateArrived(
            at=at,
            client=update.client,
            task=update.task,
            steps_done=update.steps_done,
            compute_seconds=possible(update.compute_seconds),
        )
        return Receipt(None, self._handle(arrived, update.tensors, update.epsilon, **notes))

    def refuse(
        self, at: Seconds, client: ClientId, task: TaskId, refused: RefusedUpdate, **notes: Any
    ) -> Receipt:
        """Refuse an answer that the driver could not read, such as one of wrong shapes."""
        event = UpdateRefused(at=at, client=client, task=task, reason=refused.reason.value)
        return Receipt(refused, self._handle(event, why=refused.message, **notes))

    def take_in_again(
        self, event: Event, tensors: FlatState | None = None, epsilon: float | None = None
    ) -> list[DriverCommand]:
        """Repeat an event of this run's own journal, checked when it happened, after a crash.

        Merges that failed, and updates that one left out, are in the journal, too;
        `return_left_out` says at its end which the crash cut off.

        Args:
            event: what happened.
            tensors: of an update.
            epsilon: what its client had spent of its privacy budget.
        """
        if isinstance(event, MergeFailed) and event in self._failed:
            self._failed.remove(event)
            self.journal.event(event)
            return []
        if isinstance(event, UpdateReturned):
            self._returned = [one for one in self._returned if one.task != event.task]
        return self._carry_out_all(event, tensors, epsilon)

    def return_left_out(self) -> None:
        """Write down which merges have failed, and tell which updates wait for the next one."""
        failed, self._failed = self._failed, []
        for one in failed:
            self.journal.event(one)
        returned, self._returned = self._returned, []
        for event in returned:
            self._carry_out_all(event)

    def _inspect(self, update: Update) -> RefusedUpdate | None:
        """The reason to refuse an update, if there is one; the cheap checks first."""
        given = self.scheduler.outstanding(update.client)
        if given is None or given.task != update.task:
            holds = f"task {given.task}" if given else "no task"
            message = f"client {update.client!r} answered task {update.task} but holds {holds}"
            known = update.client in self.scheduler.roster.members
            reason = Refusal.UNEXPECTED_TASK if known else Refusal.UNKNOWN_CLIENT
            return RefusedUpdate(reason=reason, message=message)
        if update.version != given.version:
            message = f"task {given.task} is on version {given.version}, not {update.version}"
            return RefusedUpdate(reason=Refusal.WRONG_VERSION, message=message)
        if not 0 <= update.steps_done <= given.steps:
            message = f"{update.steps_done} steps done; allowed: 0 to {given.steps}"
            return RefusedUpdate(reason=Refusal.WRONG_STEPS, message=message)
        if update.steps_done == 0 or update.tensors is None:
            return None  # a lost task; or its client keeps the tensors, and checks them itself
        reference = None
        if self.payload == "model":
            reference = self._memory.reference(update.client, self.model.trainable)
        return check_update(
            update.tensors,
            self.layout,
            self._guard,
            reference,
            counted=self.model.counted,  # what the task began with, or more
            steps=update.steps_done,
        )

    def _handle(
        self,
        event: Event,
        tensors: FlatState | None = None,
        epsilon: float | None = None,
        **notes: Any,
    ) -> list[DriverCommand]:
        commands = self._carry_out_all(event, tensors, epsilon, **notes)
        if self._failed or self._returned:
            starts, self._starts = self._starts, {}
            self.return_left_out()
            self._starts = starts
        return commands

    def _carry_out_all(
        self,
        event: Event,
        tensors: FlatState | None = None,
        epsilon: float | None = None,
        **notes: Any,
    ) -> list[DriverCommand]:
        commands = self.scheduler.handle(event)
        if self._summed is not None and isinstance(event, SpoilerFound | QuarantineLifted):
            self._summed.search = SpoilerSearch()  # before a merge that follows from it
        self.journal.event(event, **notes)
        self._starts = {}
        done = (self._carry_out(command, tensors, epsilon) for command in commands)
        left = [command for command in done if command is not None]
        if isinstance(event, ClientLost):
            self._memory.forget(event.client)  # only now: a deadline that was due came first
        return self._without_unmade(left) if self._unmade else left

    def _without_unmade(self, commands: list[DriverCommand]) -> list[DriverCommand]:
        """Tell the scheduler which merges of this event came to nothing.

        Tasks that it gave on versions that are not there start from the model that stood all along.
        """
        unmade, self._unmade = self._unmade, []
        for version, untold in reversed(unmade):  # so that the numbers before it stand
            failed = MergeFailed(at=self.scheduler.now, version=version, untold=untold)
            self.scheduler.handle(failed)
            self._failed.append(failed)

        def standing(version: ModelVersion) -> ModelVersion:
            return version - sum(one <= version for one, _ in unmade)

        self._starts = {standing(version): start for version, start in self._starts.items()}
        return [
            replace(one, version=standing(one.version)) if isinstance(one, StartTraining) else one
            for one in commands
        ]

    def _carry_out(
        self, command: Command, tensors: FlatState | None, epsilon: float | None
    ) -> DriverCommand | None:
        match command:
            case Fold() | FoldAgain():
                self._fold(command, tensors, epsilon)
            case Discard():  # its tensors go nowhere; what it cost of a privacy budget is spent
                spent = {} if epsilon is None else {"epsilon": epsilon}
                self.journal.command(command, **spent)
            case Commit():
                self.journal.command(command, **self._commit(command))
            case Hold():
                self.journal.command(command)
            case StartTraining():
                start = self.snapshot()  # before a later merge changes it
                self._starts[command.version] = start
                self._memory.started(command.client, start)
                self.journal.command(command)
                return command
            case SetDeadline():
                self.journal.command(command)
                return command
            case Quarantine():
                self._memory.forget(command.client)
                self.journal.command(command)
                return command
            case _:
                assert_never(command)
        return None

    def _commit(self, command: Commit) -> dict[str, Any]:
        """Merge; returns notes for the journal."""
        self._snapshot = None
        if self._summed is None:
            tasks = [fold.task for fold in command.contributions]
            try:
                self._aggregator.commit(command.buffers)
            except MergeNotFinite as error:
                self._unmade.append((command.version, ()))
                members = sorted({fold.client for fold in command.contributions})
                return {"failed": str(error), "members": members, "left_out": tasks, "lost": tasks}
            self._memory.merged(tasks)
            return {}
        roster = self.scheduler.roster
        waiting, notes = self._summed.commit(command, [m.client for m in roster.active()])
        if "failed" in notes:
            self._unmade.append((command.version, tuple(notes.get("untold", ()))))
        self._returned += [
            UpdateReturned(
                at=self.scheduler.now,
                client=fold.client,
                task=fold.task,
                staleness=fold.staleness,
                share=fold.share,
                steps=fold.steps,
            )
            for fold in waiting
        ]
        return notes

    def _fold(
        self, command: Fold | FoldAgain, tensors: FlatState | None, epsilon: float | None
    ) -> None:
        """Add an update to its buffer, or note that it is ready."""
        client, buffer = command.client, command.buffer
        contribution = Contribution(
            staleness=command.staleness, share=command.share, steps=command.steps
        )
        if self._summed is not None:
            assert isinstance(command, Fold)  # who repeats updates is refused
            weight = self._summed.fold(command, contribution, tensors)
        elif isinstance(command, FoldAgain):
            weight = self._aggregator.fold(buffer, *self._memory.repeated(client, contribution))
        else:
            assert tensors is not None  # only an arrival folds, and it brings its tensors
            prepared = self._memory.prepared(client, command.task, buffer, tensors, contribution)
            weight = self._aggregator.fold(buffer, *prepared)
        spent = {} if epsilon is None or isinstance(command, FoldAgain) else {"epsilon": epsilon}
        self.journal.command(command, weight=weight, **spent)

    def state(
        self, starts: Mapping[ModelVersion, FlatState]
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything a checkpoint needs: tensors by name, and JSON facts.

        Args:
            starts: the models that the outstanding tasks started from, which the driver holds.
        """
        aggregator = self._aggregator.state()
        kept, memory = self._memory.state()
        tensors = aggregator.tensors | kept
        for version, start in starts.items():
            if version != self.version:  # that one is the model itself
                tensors |= named_state(f"start.{version}", start)
        facts = {
            "made_with": self._identity(),
            "scheduler": self.scheduler.to_json(),
            "aggregator": aggregator.facts,
            "memory": memory,
        }
        if self._summed is not None:
            waiting, facts["summed"] = self._summed.state()
            tensors |= waiting
        return tensors, facts

    def restore(
        self, tensors: Mapping[str, Tensor], facts: dict[str, Any]
    ) -> dict[ModelVersion, FlatState]:
        """Continue from what `state` gave, exactly as if never stopped.

        Returns the starts, and the present version beside them.

        Raises:
            CheckpointError: it does not fit this strategy or model; nothing was changed.
        """
        scheduler = self._strategy.new_scheduler()
        memory = self._strategy.new_memory(self.model)
        try:
            saved = facts["made_with"]
            saved = {**saved, "strategy": self._strategy.completed(saved["strategy"])}
            difference = _difference(saved, self._identity())
            if difference is not None:
                raise CheckpointError(
                    f"{difference}; resume with what the checkpoint was made with"
                )
            scheduler.restore(facts["scheduler"])
            # Checkpoints from before there was anything to keep of clients have no "memory".
            memory.restore(tensors, facts.get("memory", {}))
            starts = self._starts_in(tensors)
            if ("summed" in facts) != (self._summed is not None):
                raise CheckpointError(
                    "secure.enabled was changed after the checkpoint; put it back to resume"
                )
            if self._summed is not None:
                self._summed.restore(tensors, facts["summed"], memory)
            self._aggregator.restore(AggregatorState(dict(tensors), facts["aggregator"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint is incomplete: {error!r}; use another") from None
        self.scheduler, self._memory = scheduler, memory
        self._snapshot, self._starts = None, {}
        return {**starts, self.version: self.snapshot()}

    def _starts_in(self, tensors: Mapping[str, Tensor]) -> dict[ModelVersion, FlatState]:
        found = {name: name.split(".")[1] for name in tensors if name.startswith("start.")}
        return {
            int(version): restored_state(tensors, f"start.{version}", self.model)
            for version in dict.fromkeys(found.values())
        }

    def _identity(self) -> dict[str, Any]:
        """What a run resumed from a checkpoint must share with it; the guard may change."""
        strategy = self._strategy.to_json()
        del strategy["guard"]
        layout = {str(number): str(spec) for number, spec in enumerate(self.layout.specs)}
        return {"strategy": strategy, "layout": layout}


def _difference(saved: Any, ours: Any, where: str = "") -> str | None:
    """Say which value differs first, by the name that a user gives it; None if none does."""
    if isinstance(saved, dict) and isinstance(ours, dict):
        for key in {**saved, **ours}:
            named = [where] if key in ("scheduling", "aggregation") else [where, key]
            found = _difference(saved.get(key), ours.get(key), ".".join(filter(None, named)))
            if found is not None:
                return found
        return None
    if saved == ours:
        return None
    return f"{where} is {saved!r} in the checkpoint and {ours!r} in this run"


def possible(value: float | None) -> float | None:
    """A quantity as a client told it, None where it cannot be one."""
    return value if value is not None and isfinite(value) and value >= 0 else None
