"""Runs side by side in one process, all their pending tasks trained as one stack."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

from fedcompass.experiment import Experiment
from fedcompass.simulation.executors import Job
from fedcompass.simulation.executors.stacked import StackedExecutor, drive_stacked
from fedcompass.simulation.executors.stacked_jobs import StackedJobs
from fedcompass.simulation.problems import build_problem
from fedcompass.simulation.saving import Paused
from fedcompass.sweeps.one_at_a_time import Place, Stops
from fedcompass.sweeps.pausable import opened
from fedcompass.sweeps.record import Record, failed_record, record_of
from fedcompass.training.device import device_name
from fedcompass.training.problem import Problem

__all__ = ["stacked_runs"]

_CLIENTS_ON_GPU = 1024  # of all live runs: a few of each run's tasks are due at a time
_CLIENTS_ON_CPU = 64  # a CPU's stacks are small: more would only cost memory
_FEWEST_RUNS = 4  # also the most where tasks train alone: others may share out the rest


def stacked_runs(
    pending: Iterable[Experiment],
    *,
    device: str,
    max_stack: int | None,
    live: int | None,
    place: Place,
    stops: Stops,
    problems: Mapping[str, Problem] | None = None,
) -> Generator[Record, None, None]:
    """The record of each run as it ends or fails; at a stop the live ones are put away.

    Args:
        pending: what to run; the next one is asked for when there is room for it.
        device: where to train.
        max_stack: most tasks in a stack; None: as many as pay and fit the free memory.
        live: how many runs side by side; None: as many as fill the stacks, by their clients, or
            a few where there are no stacks.
        place: where runs' folders are.
        stops: whether to.
        problems: those that are built already, by the keys of their experiments.
    """
    stacked_jobs, keys = StackedJobs(device, max_stack), count()
    most = _CLIENTS_ON_CPU if device.startswith("cpu") else _CLIENTS_ON_GPU
    taken: dict[int, int] = {}  # of the room for clients by each live run

    def has_room(runs: int) -> bool:
        if live is not None:
            return runs < live
        return runs < _FEWEST_RUNS or sum(taken.values()) < most

    def begun() -> Generator[Generator[Job, Any, Record | None], None, None]:
        for number, experiment in enumerate(pending):
            taken[number] = experiment.fleet.clients
            problem, path = (problems or {}).get(experiment.key()), place(experiment)
            fills = partial(taken.__setitem__, number, most)
            yield _run_one(experiment, problem, stacked_jobs, device, path, keys, stops, fills)

    with closing(drive_stacked(begun(), stacked_jobs, has_room=has_room)) as ended:
        for number, record in ended:
            del taken[number]
            if isinstance(record, Record):
                yield record


def _run_one(
    experiment: Experiment,
    problem: Problem | None,
    stacked_jobs: StackedJobs,
    device: str,
    path: Path | None,
    keys: Iterator[int],
    stops: Stops,
    fills_the_room: Callable[[], None],
) -> Generator[Job, Any, Record | None]:
    """As `one_at_a_time.run_one`, but who drives it has many of them.

    `fills_the_room` is called if its tasks train alone: nothing is gained by more runs then.
    """
    name = device_name(device, "stacked")
    try:
        problem = problem or build_problem(experiment)
        executor = StackedExecutor(
            problem, experiment.local, experiment.seed, stacked_jobs=stacked_jobs
        )
        if not executor.stacks:
            fills_the_room()
        with opened(experiment, problem, executor, path=path, device=device, keys=keys) as run:
            # Saving hundreds of live runs now and then would cost more than a crash does.
            yield from run.steps(checkpoint_every=inf, stops=stops)
            return record_of(run.result(), name)
    except Paused:
        return None
    except Exception as error:  # whatever a model or a setting did: the next run goes on
        return failed_record(experiment, error, name)
