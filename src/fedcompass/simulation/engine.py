"""The event loop over virtual time: one strategy, one fleet, real training.

A simulation is a generator: it hands jobs to its executor when tasks are dispatched and stops
only when it needs a result, so that many simulations can share one executor.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import count
from math import inf
from typing import Any, TypeAlias, assert_never

from fedcompass.aggregation.layout import FlatState
from fedcompass.coordinator import Coordinator, DriverCommand, Update
from fedcompass.errors import CheckpointError
from fedcompass.scheduling.commands import Quarantine, SetDeadline, StartTraining
from fedcompass.simulation import happenings
from fedcompass.simulation.budgets import Budgets
from fedcompass.simulation.ending import BUDGETS_SPENT, NOBODY_LEFT, TOO_FEW_LEFT, Ended
from fedcompass.simulation.evaluations import Evaluations
from fedcompass.simulation.event_queue import EventQueue, Moment
from fedcompass.simulation.executors import Executor, Job, TrainJob, TrainResult
from fedcompass.simulation.fleet import Fleet
from fedcompass.simulation.fleet_draws import Stream
from fedcompass.simulation.happenings import Arrival, Departure, Happening, PassedDeadline, Return
from fedcompass.vocabulary import ClientId, ModelVersion, Seconds, Steps, TaskId

__all__ = ["Observer", "Simulation"]

Observer: TypeAlias = Callable[["Simulation"], Generator[Job, Any, None]]
"""Called after every event; yields jobs whose results it needs, as the simulation does."""


class Simulation:
    """One run in virtual time.

    Args:
        coordinator: fresh, or restored together with `restore`.
        fleet: how fast the clients are and when they are away.
        samples: each client's number of samples.
        executor: trains and evaluates.
        evaluations: when to measure the model.
        horizon: virtual time after which nothing happens any more.
        run_at_least: virtual time before which the run does not stop at its target.
        max_updates: global updates after which nothing happens any more.
        keys: numbers for jobs, unique among all simulations that share the executor.
        budgets: what each client may spend of its privacy; by default nothing is private.
    """

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        fleet: Fleet,
        samples: Sequence[int],
        executor: Executor,
        evaluations: Evaluations,
        horizon: Seconds,
        run_at_least: Seconds = 0.0,
        max_updates: int | None = None,
        keys: Iterator[int] | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.evaluations = evaluations
        self.now: Seconds = 0.0
        self.steps = 0  # local steps of the answers so far
        self.budgets = budgets or Budgets()
        self._fleet = fleet
        self._samples = samples
        self._executor = executor
        self._horizon = horizon
        self._run_at_least = run_at_least
        self._max_updates = max_updates
        self._keys = keys or count()
        self._queue: EventQueue[Happening] = EventQueue()
        self._rounds = [0] * len(samples)  # each client's next local round
        self._jobs: dict[TaskId, TrainJob] = {}  # in flight
        self._needed_until = run_at_least if evaluations.may_stop else horizon
        self._held: list[TrainJob] = []  # those of them whose answers come later than that
        self._absences = [0] * len(samples)  # reasons each client is away for
        self._dropout_moment = Stream(fleet.seed, "dropout moment")
        self._model_bytes = coordinator.model.nbytes

    def run(self, observer: Observer | None = None) -> Generator[Job, Any, None]:
        """Everything from now to the horizon; yields each job when its result is needed."""
        if not any(self._rounds):
            self._begin()
        while (yield from self._goes_on()):
            yield from self._advance()
            if observer is not None:
                yield from observer(self)
        self.evaluations.before(self._end(), self.coordinator)
        self.evaluations.final(self.now, self.coordinator)
        yield from self.evaluations.collect(but=0)
        for job in self._jobs.values():
            self._drop(job)

    @property
    def can_be_saved(self) -> bool:
        """Whether `to_json` keeps the order of all that is to come: no instant is half over."""
        return self._queue.between_instants

    def _begin(self) -> None:
        self.evaluations.start(self.coordinator)
        for client, samples in enumerate(self._samples):
            self._carry_out(self.coordinator.join(0.0, str(client), samples))
            for outage in self._fleet.outages(client):
                self._plan_absence(str(client), outage.at, outage.returns_at)

    def _goes_on(self) -> Generator[Job, Any, bool]:
        """Whether anything happens any more; a run that may stop waits for what is measured."""
        if self._has_enough_updates():
            return False
        comes = self._queue.peek() if len(self._queue) else inf
        if self.evaluations.may_stop and comes > self._run_at_least:
            self.evaluations.before(self._run_at_least, self.coordinator)
            yield from self.evaluations.collect(but=self.evaluations.stops_late_by)
            if self.evaluations.reached:
                return False
            self._submit_held()
        return comes <= self._horizon

    @property
    def ended(self) -> Ended:
        """What ended the run, once it is over."""
        if self._has_enough_updates():
            return "max_updates"
        if self.evaluations.reached:
            return "target"
        if not self._nobody_is_left():
            return "horizon"
        if self.coordinator.scheduler.roster.parked:
            return TOO_FEW_LEFT
        return BUDGETS_SPENT if self.budgets.all_left else NOBODY_LEFT

    def _nobody_is_left(self) -> bool:
        """Whether nothing would happen after the horizon either: nobody trains or comes back."""
        if not len(self._queue):
            return True
        comes_back = any(isinstance(moment.what, Return) for moment in self._queue.moments())
        return not comes_back and self.coordinator.scheduler.roster.active_count == 0

    def _has_enough_updates(self) -> bool:
        return self._max_updates is not None and self.coordinator.version >= self._max_updates

    def _end(self) -> Seconds:
        """Until when the run went on."""
        if self._has_enough_updates():
            return self.now
        return max(self.now, self._run_at_least) if self.evaluations.reached else self._horizon

    def _advance(self) -> Generator[Job, Any, None]:
        """Let the next thing happen."""
        moment = self._queue.pop()
        if isinstance(moment.what, Arrival) and moment.what.command.task not in self._jobs:
            return  # the client dropped out meanwhile: a checkpoint does not keep this moment
        self.evaluations.before(moment.at, self.coordinator)
        version = self.coordinator.version
        yield from self._happen(moment)
        self.now = max(self.now, moment.at)
        if self.coordinator.version != version:
            self.evaluations.after_update(moment.at, self.coordinator)
        yield from self.evaluations.collect()

    def _happen(self, moment: Moment[Happening]) -> Generator[Job, Any, None]:
        match moment.what:
            case Arrival():
                yield from self._answer(moment.at, moment.what)
            case PassedDeadline(group=group):
                self._carry_out(self.coordinator.pass_deadline(moment.at, group))
            case Departure(client=client):
                self._depart(moment.at, client)
            case Return(client=client):
                self._absences[int(client)] -= 1
                if self._absences[int(client)] == 0:
                    samples = self._samples[int(client)]
                    self._carry_out(self.coordinator.join(moment.at, client, samples))
            case _:
                assert_never(moment.what)

    def _answer(self, at: Seconds, answer: Arrival) -> Generator[Job, Any, None]:
        command = answer.command
        job = self._jobs.pop(command.task)
        result: TrainResult = yield job
        update = Update(
            client=command.client,
            task=command.task,
            version=command.version,
            steps_done=result.steps,
            tensors=result.update,
            compute_seconds=answer.compute_seconds,
            epsilon=self.budgets.epsilon(job.client),
        )
        receipt = self.coordinator.receive(at, update)
        self.steps += result.steps
        self._carry_out(receipt.commands)

    def _depart(self, at: Seconds, client: ClientId) -> None:
        self._absences[int(client)] += 1
        if client not in self.coordinator.scheduler.roster.members:
            return  # away already, for another reason
        command = self.coordinator.scheduler.outstanding(client)
        if command is not None and command.task in self._jobs:
            self._drop(self._jobs.pop(command.task))
        self._carry_out(self.coordinator.lose(at, client, **self.budgets.farewell(int(client))))

    def _plan_absence(self, client: ClientId, leaves: Seconds, returns: Seconds | None) -> None:
        self._queue.add_change(leaves, Departure(client))
        if returns is not None:
            self._queue.add_change(returns, Return(client))

    def _carry_out(self, commands: list[DriverCommand]) -> None:
        for command in commands:
            match command:
                case StartTraining():
                    self._start(command)
                case SetDeadline(at=at, group=group):
                    self._queue.add_deadline(at, group, PassedDeadline(group))
                case Quarantine():
                    pass  # it gets no more tasks: nothing to do
                case _:
                    assert_never(command)

    def _start(self, command: StartTraining) -> None:
        client = int(command.client)
        steps = self.budgets.grant(client, command.steps)
        if steps == 0:  # its budget is spent: it says so and leaves
            leaves = max(command.at, self.coordinator.scheduler.now)
            self._plan_absence(command.client, leaves, None)
            return
        local_round = self._rounds[client]
        self._rounds[client] += 1
        time = self._fleet.task_seconds(client, local_round, steps, self._model_bytes)
        downtime = self._fleet.drops_out(client, local_round)
        if downtime is not None:  # it vanishes somewhere in this round and never answers
            leaves = command.at + time.total * self._dropout_moment.uniform(client, local_round)
            self._plan_absence(command.client, leaves, leaves + downtime)
            return
        start = self.coordinator.start_model(command)
        arrives = command.at + time.total
        self._submit(command, steps, local_round, arrives, time.compute, start)

    def _submit(
        self,
        command: StartTraining,
        steps: Steps,
        local_round: int,
        arrives: Seconds,
        compute_seconds: Seconds,
        start: FlatState,
    ) -> None:
        job = TrainJob(
            key=next(self._keys),
            client=int(command.client),
            local_round=local_round,
            steps=steps,
            start=start,
            payload=self.coordinator.payload,
            needed_at=arrives,
            steps_before=command.steps_before,
            privacy=self.budgets.plan(int(command.client)),
        )
        self._jobs[command.task] = job
        self._queue.add_arrival(arrives, command.task, Arrival(command, job, compute_seconds))
        if arrives <= self._needed_until:
            self._executor.submit(job)
        else:  # nobody may ever ask for it
            self._held.append(job)

    def _submit_held(self) -> None:
        """Go on to the horizon: what was held back is needed, but for what comes even later."""
        self._needed_until = self._horizon
        for job in [job for job in self._held if job.needed_at <= self._horizon]:
            self._held.remove(job)
            self._executor.submit(job)

    def _drop(self, job: TrainJob) -> None:
        if job in self._held:
            self._held.remove(job)
        else:
            self._executor.discard(job)

    def starts(self) -> dict[ModelVersion, FlatState]:
        """The models that tasks in flight started from, for a checkpoint."""
        return {
            moment.what.command.version: moment.what.job.start
            for moment in self._queue.moments()
            if isinstance(moment.what, Arrival) and moment.what.command.task in self._jobs
        }

    def to_json(self) -> dict[str, Any]:
        """All but the coordinator, the evaluations and the start models, between two events."""
        queue = [
            {"at": moment.at, **happenings.to_json(moment.what)}
            for moment in self._queue.moments()
            if not isinstance(moment.what, Arrival) or moment.what.command.task in self._jobs
        ]
        return {
            "now": self.now,
            "steps": self.steps,
            "rounds": self._rounds,
            "absences": self._absences,
            "queue": queue,
            "budgets": self.budgets.to_json(),
        }

    def restore(self, state: dict[str, Any], starts: dict[ModelVersion, FlatState]) -> None:
        """Take over what `to_json` and `starts` gave; tasks in flight are trained again.

        Raises:
            CheckpointError: the checkpoint is of another version or incomplete.
        """
        try:
            self.now, self.steps = state["now"], state["steps"]
            self._rounds, self._absences = list(state["rounds"]), list(state["absences"])
            if "budgets" in state:  # a checkpoint from before there were any has none
                self.budgets.restore(state["budgets"])
            for entry in state["queue"]:
                self._requeue(entry, starts)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint's queue cannot be read: {error!r}") from None

    def _requeue(self, entry: dict[str, Any], starts: dict[ModelVersion, FlatState]) -> None:
        match entry["kind"]:
            case "answer":
                command = happenings.command_of(entry)
                self._submit(
                    command,
                    entry.get("steps", command.steps),
                    entry["local_round"],
                    entry["at"],
                    entry["compute_seconds"],
                    starts[command.version],
                )
            case "deadline":
                self._queue.add_deadline(
                    entry["at"], entry["group"], PassedDeadline(entry["group"])
                )
            case "departure":
                self._queue.add_change(entry["at"], Departure(entry["client"]))
            case "return":
                self._queue.add_change(entry["at"], Return(entry["client"]))
            case kind:
                raise ValueError(f"unknown kind {kind!r}")
