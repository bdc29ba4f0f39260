"""One call that simulates an experiment: build what it needs, drive it, and say what came out."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from torch import Tensor

from fedcompass.aggregation.layout import FlatState, Layout, frozen_of
from fedcompass.coordinator import Coordinator
from fedcompass.errors import CheckpointError, RunFolderError, SettingsError
from fedcompass.experiment import Experiment
from fedcompass.own_code import short
from fedcompass.progress_bar import progress_bar
from fedcompass.runs.checkpoint import Checkpoint
from fedcompass.runs.folder import RunFolder
from fedcompass.runs.journal import FileJournal, Tee, lines_after, read_journal
from fedcompass.runs.origin import Origin
from fedcompass.runs.summary import listed
from fedcompass.runs.tally import LocalRound, Tally
from fedcompass.settings.training import higher_is_better
from fedcompass.simulation.budgets import Budgets
from fedcompass.simulation.engine import Simulation
from fedcompass.simulation.evaluations import Evaluations
from fedcompass.simulation.executors import Executor, Job, ProcessesExecutor, SerialExecutor
from fedcompass.simulation.executors.one_job import one_thread
from fedcompass.simulation.executors.protocol import check_options
from fedcompass.simulation.executors.serial import NoTraining
from fedcompass.simulation.executors.stacked import StackedExecutor
from fedcompass.simulation.experiment_folder import (
    check_same_code,
    create_run,
    experiment_of,
    is_run_of,
    resume_run,
    write_experiment,
)
from fedcompass.simulation.fleet import Fleet
from fedcompass.simulation.problems import build_problem, nothing_to_train
from fedcompass.simulation.result import Result, client_rows, summarize
from fedcompass.simulation.saving import Saver, restore
from fedcompass.training.bound import build_module
from fedcompass.training.device import check_device, chosen_device
from fedcompass.training.fingerprint import fingerprint_of
from fedcompass.training.problem import Problem
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from fedcompass.simulation.masked_sums import MaskedSums

__all__ = ["CHECKPOINT_EVERY", "ExecutorName", "Run", "drive", "simulate"]

ExecutorName: TypeAlias = Literal["serial", "processes", "stacked", "none"]
"""Who trains; never changes a result."""

CHECKPOINT_EVERY: Seconds = 20.0
"""Wall-clock seconds between two checkpoints."""


def simulate(
    experiment: Experiment | None = None,
    *,
    problem: Problem | None = None,
    executor: ExecutorName | Executor = "serial",
    workers: int | None = None,
    device: str = "cpu",
    max_stack: int | None = None,
    folder: str | Path | RunFolder | None = None,
    resume: bool = False,
    checkpoint_every: Seconds = CHECKPOINT_EVERY,
    on_progress: Callable[[Simulation], None] | None = None,
    progress: bool = False,
) -> Result:
    """Run an experiment in virtual time, with real training.

    Args:
        experiment: what to run; the default is the folder's if that is a `RunFolder`, else
            FedCompass on the bundled mnist-mini.
        problem: a model and data of your own, instead of the experiment's; the record then says
            so, and the run is resumed with the same problem only.
        executor: who trains: this process ("serial"; "stacked": all pending tasks at once, equal
            to the others within rounding), several ("processes"), nobody ("none": the schedule
            alone), or an executor of your own, which is closed at the end.
        workers: processes, for "processes"; default: one per core.
        device: where "serial" and "stacked" train, such as "cuda", which rounds differently;
            "auto": "cuda" if it is there, else "cpu".
        max_stack: most tasks in a stack, for "stacked"; default: as many as pay and fit the memory.
        folder: where to keep the run; it can then be stopped and resumed. None keeps nothing.
        resume: go on with the stopped run in the folder.
        checkpoint_every: wall-clock seconds that a stopped run has to do again at most.
        on_progress: called after every event.
        progress: show a bar with percent and time left, in a terminal or a notebook.

    Raises:
        FedcompassError: with one line saying what is wrong and what to do.
    """
    if resume:
        folder = _resumed(folder)
    experiment = _experiment(experiment, folder, problem)
    device = chosen_device(device)
    trains = executor != "none"
    if problem is None:
        clients = experiment.fleet.clients
        problem = build_problem(experiment) if trains else nothing_to_train(clients)
    if len(problem.clients) != experiment.fleet.clients:
        raise SettingsError(
            f"fleet.clients is {experiment.fleet.clients}, the problem has "
            f"{len(problem.clients)} clients; make them equal"
        )
    with ExitStack() as stack:
        chosen = stack.enter_context(
            _executor(executor, problem, experiment, workers, device, max_stack)
        )
        if folder is not None and not isinstance(folder, RunFolder):
            folder = create_run(Path(folder), experiment)
        if folder is not None:
            stack.enter_context(folder.lock())
        run = Run(experiment, problem, chosen, folder=folder, evaluates=trains, device=device)
        stack.callback(run.close)
        if progress:
            on_progress = stack.enter_context(_bar(experiment, on_progress))
        drive(run.steps(on_progress, checkpoint_every), chosen)
        return run.result()


@contextmanager
def _bar(
    experiment: Experiment, told_too: Callable[[Simulation], None] | None
) -> Iterator[Callable[[Simulation], None]]:
    metric = short(experiment.evaluation.target_metric)
    with progress_bar(short(experiment.strategy["name"]), experiment.horizon) as show:

        def on_progress(simulation: Simulation) -> None:
            rows = simulation.evaluations.rows
            show(simulation.now, f"{metric} {rows[-1][metric]:.3f}" if rows else "")
            if told_too is not None:
                told_too(simulation)

        yield on_progress


def _resumed(folder: str | Path | RunFolder | None) -> RunFolder:
    if folder is None:
        raise SettingsError("resume is true, but there is no folder; give the stopped run's")
    return folder if isinstance(folder, RunFolder) else resume_run(Path(folder))


def _experiment(
    given: Experiment | None, folder: str | Path | RunFolder | None, problem: Problem | None
) -> Experiment:
    """What is run; a problem of the user's own is written down in it."""
    kept = experiment_of(folder) if isinstance(folder, RunFolder) else None
    if kept is not None and isinstance(folder, RunFolder) and folder.begun:
        check_same_code(folder, kept)
    chosen = given or kept or Experiment()
    own = None
    if problem is not None:
        own = chosen.on_problem(*fingerprint_of(problem, build_module(problem, chosen.seed)))
    if not isinstance(folder, RunFolder) or kept is None:
        return own or chosen
    if kept.problem is not None:
        _check_same_problem(folder, kept, own)
    if given is not None and kept.key() not in (given.key(), own and own.key()):
        raise RunFolderError(
            f"{folder.path} belongs to another experiment; leave the experiment out, "
            "or give a new folder"
        )
    if own is None or folder.journal.exists():  # then its checkpoint tells problems apart
        return kept
    write_experiment(folder, own)
    return own


def _check_same_problem(folder: RunFolder, kept: Experiment, own: Experiment | None) -> None:
    words = kept.problem
    if own is None:
        raise RunFolderError(
            f"{folder.path} is a run on a problem given in Python ({words}); go on with it there: "
            f"fedcompass.simulate(problem=..., folder={str(folder.path)!r}, resume=True)"
        )
    if own.fingerprint != kept.fingerprint:
        raise RunFolderError(
            f"{folder.path} was run on another problem ({words}) than the one given "
            f"({own.problem}); give the same, or a new folder"
        )


def _executor(
    executor: ExecutorName | Executor,
    problem: Problem,
    experiment: Experiment,
    workers: int | None,
    device: str,
    max_stack: int | None,
) -> Executor:
    check_options(executor, device, max_stack)
    match executor:
        case "serial":
            check_device(device)
            return SerialExecutor(problem, experiment.local, experiment.seed, device)
        case "stacked":
            check_device(device)
            return StackedExecutor(problem, experiment.local, experiment.seed, device, max_stack)
        case "processes":
            return ProcessesExecutor(problem, experiment.local, experiment.seed, workers)
        case "none":
            return NoTraining()
        case str():
            raise SettingsError(
                f"executor is {executor!r}; allowed: serial, processes, stacked, none"
            )
        case _:
            return executor


def drive(steps: Generator[Job, Any, None], executor: Executor) -> None:
    """Give a simulation each result it asks for, until it is over.

    With one thread: workers have the other cores, and two threads that share out a merge wait for
    each other longer than one takes for it.
    """
    with one_thread(), suppress(StopIteration):
        job = next(steps)
        while True:
            job = steps.send(executor.result(job))


class Run:
    """A simulation with its records, ready to be driven."""

    def __init__(
        self,
        experiment: Experiment,
        problem: Problem,
        executor: Executor,
        *,
        folder: RunFolder | None = None,
        evaluates: bool = True,
        device: str = "cpu",
        keys: Iterator[int] | None = None,
    ) -> None:
        keys = keys or count()
        self.experiment = experiment
        self._folder = folder
        self._tasks: list[LocalRound] = []
        self._tally = Tally(on_round=None if folder else self._tasks.append)
        strategy = experiment.chosen_strategy()
        module = build_module(problem, experiment.seed)
        layout = Layout.of(module)
        self._frozen = frozen_of(module)
        fleet = Fleet(experiment.fleet, experiment.seed)
        budgets = _budgets(experiment, problem, trains=evaluates)
        fingerprint = fingerprint_of(problem, module).digest if folder else None
        self._identity = {"experiment": experiment.key(), "problem": fingerprint}
        saved = _stopped_at(folder, experiment, fingerprint) if folder else None
        self._is_new = saved is None
        model = layout.state_of(module, device)
        header = _header(experiment, fleet, model.nbytes)
        self._journal = _open_journal(folder, saved, header) if folder else None
        self._origin = Origin(folder.path) if folder else None
        records = Tee(self._tally, self._journal) if self._journal else self._tally
        self._sums = _masked_sums(experiment, model, trains=evaluates)
        coordinator = Coordinator(strategy, layout, model, records, self._sums)
        self.simulation = Simulation(
            coordinator=coordinator,
            fleet=fleet,
            samples=[len(samples) for samples in problem.clients],
            executor=executor,
            evaluations=_evaluations(experiment, executor, keys, trains=evaluates),
            horizon=experiment.horizon,
            run_at_least=experiment.run_at_least,
            max_updates=experiment.max_updates,
            keys=keys,
            budgets=budgets,
        )
        if folder is not None and saved is not None:
            self._resume(folder, saved)

    def _resume(self, folder: RunFolder, saved: Checkpoint) -> None:
        """Go to where a checkpoint was made, and count what had happened: the journal has it."""
        try:
            restore(self.simulation, saved)
            for _, record in read_journal(folder.journal):
                self._tally.take(record)
        except BaseException:
            self.close()
            raise

    def steps(
        self,
        on_progress: Callable[[Simulation], None] | None = None,
        checkpoint_every: Seconds = CHECKPOINT_EVERY,
        stops: Callable[[], bool] = lambda: False,
    ) -> Generator[Job, Any, None]:
        """The simulation's generator, kept in the folder if there is one.

        A new run is saved at once, unless it is never to be saved. One that is asked to stop ends
        with `Paused` soon after.
        """
        saver = Saver(
            self._folder,
            self._journal,
            identity=self._identity,
            every=checkpoint_every,
            on_progress=on_progress,
            stops=stops,
        )
        if self._is_new and isfinite(checkpoint_every):
            # Events without a checkpoint thus mean that the checkpoint was lost.
            saver.save(self.simulation)
        return self.simulation.run(saver.after_event)

    def result(self) -> Result:
        """What came out; written to the folder if there is one."""
        simulation, coordinator = self.simulation, self.simulation.coordinator
        pending = coordinator.scheduler.pending()
        best = simulation.evaluations.best or coordinator.model
        result = Result(
            experiment=self.experiment,
            curve=simulation.evaluations.rows,
            clients=client_rows(self._tally, simulation.now),
            summary=summarize(
                self.experiment,
                simulation.evaluations.curve,
                self._tally,
                ended=simulation.ended,
                now=simulation.now,
                version=coordinator.version,
                steps=simulation.steps,
                pending=pending,
                further=self._sent() | simulation.budgets.summary() | self._masked(),
            ),
            model=self._named(coordinator.model),
            best_model=self._named(best),
            pending=listed(pending),
            folder=self._folder.path if self._folder else None,
            tasks=self._tasks,
        )
        if self._folder is not None:
            self.close()  # before the summary, by which readers know that all is there
            size = self._folder.journal.stat().st_size
            result.summary["journal_bytes"] = size  # to tell if it is cut later
            result.write(self._folder)
        return result

    def _sent(self) -> dict[str, Any]:
        """How many parameters travel, where that is not all of them."""
        if not self._frozen:
            return {}
        sent = self.simulation.coordinator.model.trainable.numel()
        kept = sum(tensor.numel() for tensor in self._frozen.values())
        return {"parameters": sent + kept, "parameters_sent": sent}

    def _masked(self) -> dict[str, Any]:
        """What secure aggregation cost; its times are in the run's origin, and are no result."""
        if self._sums is None:
            return {}
        if self._origin is not None:
            self._origin.note(
                masking_seconds_per_member=round(self._sums.member_seconds, 3),
                unmasking_seconds=round(self._sums.server_seconds, 3),
            )
        return self._sums.summary()

    def _named(self, state: FlatState) -> dict[str, Tensor]:
        """A state's tensors and the frozen ones by name, on the CPU, independent of each other."""
        tensors = {**self.simulation.coordinator.layout.unflatten(state), **self._frozen}
        return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}

    def close(self) -> None:
        """Close the journal; the folder can be resumed unless the run is finished."""
        if self._journal is not None:
            self._journal.close()
        if self._origin is not None:
            self._origin.close()
            self._origin = None


def _budgets(experiment: Experiment, problem: Problem, *, trains: bool) -> Budgets | None:
    """What each client may spend; None: nothing is private, or nothing is trained.

    Raises:
        FedcompassError: Opacus is missing, or the problem cannot be trained privately.
    """
    if not (experiment.privacy.is_on and trains):
        return None
    from fedcompass.privacy.account import plans_of
    from fedcompass.training.private_steps import check_problem

    check_problem(problem, experiment.local, build_module(problem, experiment.seed))
    samples = [len(samples) for samples in problem.clients]
    return Budgets(plans_of(experiment.privacy, experiment.local.batch_size, samples))


def _masked_sums(experiment: Experiment, model: FlatState, *, trains: bool) -> "MaskedSums | None":
    """Where sums come from if the server is to see no more; None: it sees updates, or none come.

    Raises:
        MissingExtra: the cryptography is not installed.
    """
    if not (experiment.secure.enabled and trains):
        return None
    from fedcompass.simulation.masked_sums import MaskedSums

    max_norm = experiment.chosen_strategy().guard.max_norm
    return MaskedSums(experiment.secure, model, max_norm)


def _evaluations(
    experiment: Experiment, executor: Executor, keys: Iterator[int], *, trains: bool
) -> Evaluations:
    return Evaluations(
        experiment.evaluation if trains else None,
        executor,
        keys,
        experiment.target if experiment.stop_at_target else None,
        experiment.stop_late_by,
    )


def _stopped_at(
    folder: RunFolder, experiment: Experiment, fingerprint: str | None
) -> Checkpoint | None:
    """Where a run was stopped; None if it has not begun.

    Raises:
        RunFolderError: it is over, or its settings were changed.
        CheckpointError: it is a run on another problem, or none of a simulation.
    """
    folder.check_unfinished()
    if not folder.begun:
        return None
    saved = folder.checkpoint()
    if not is_run_of(folder, saved.facts.get("experiment"), experiment):
        raise RunFolderError(
            f"{folder.path}'s experiment.toml was changed after the run began; put it back to "
            "resume, or start a new run with it"
        )
    if saved.facts.get("problem", fingerprint) != fingerprint:
        raise CheckpointError(
            f"{folder.path} was run on another problem than the one given (its data, their split "
            "or the model differ); give the same, or start a new run"
        )
    if not isinstance(saved.facts.get("journal_bytes"), int):
        raise CheckpointError(f"{folder.path} has a checkpoint of something else; start anew")
    return saved


def _header(experiment: Experiment, fleet: Fleet, model_bytes: int) -> dict[str, Any]:
    metrics = experiment.evaluation.metrics
    return {
        "strategy": experiment.chosen_strategy().to_json(),
        "seed": experiment.seed,
        "seconds_per_step": list(fleet.paces),
        "model_bytes": model_bytes,  # of what travels: no frozen parameters
        "lower_is_better": [short(metric) for metric in metrics if not higher_is_better(metric)],
    }


def _open_journal(
    folder: RunFolder, saved: Checkpoint | None, header: dict[str, Any]
) -> FileJournal:
    if saved is None:
        return folder.new_journal(header)
    resume_at = saved.facts["journal_bytes"]
    lines_after(folder.journal, resume_at, saved.facts.get("journal_crc"))
    return FileJournal(folder.journal, header, resume_at=resume_at, durable=True)
