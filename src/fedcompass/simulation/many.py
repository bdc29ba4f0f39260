"""Many runs at once, one process each: runs share nothing, so this scales with the cores."""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from fedcompass.errors import TaskFailed
from fedcompass.experiment import Experiment
from fedcompass.simulation.ending import broke_off
from fedcompass.sweeps.over_seeds import Outcome

__all__ = ["simulate_many"]


def simulate_many(
    experiments: Sequence[Experiment],
    *,
    folders: Sequence[Path] | None = None,
    workers: int | None = None,
    device: str = "cpu",
) -> Iterator[tuple[int, Outcome]]:
    """Run experiments in parallel and give back (its number, its outcome) as each one finishes.

    Results do not depend on the number of workers: every run trains with one thread.

    Raises:
        TaskFailed: a worker process died; runs that were finished have been given back.
    """
    # One core or one run: no processes, and a debugger can follow.
    workers = min(workers or os.cpu_count() or 1, len(experiments))
    paths: Sequence[Path | None] = folders or [None] * len(experiments)
    if workers <= 1:
        for number, (experiment, path) in enumerate(zip(experiments, paths, strict=True)):
            yield number, _outcome(experiment, path, device)
        return
    context = multiprocessing.get_context("spawn")  # forking a process that uses torch is unsafe
    pool = ProcessPoolExecutor(workers, mp_context=context)
    try:
        futures = {
            pool.submit(_outcome, experiment, path, device): number
            for number, (experiment, path) in enumerate(zip(experiments, paths, strict=True))
        }
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise TaskFailed(
            "a process died (out of memory?); run again with fewer --workers"
        ) from None
    finally:
        for process in list((pool._processes or {}).values()):
            process.terminate()  # on Ctrl-C or an error; idle ones end anyway
        pool.shutdown(wait=True, cancel_futures=True)


def _outcome(experiment: Experiment, folder: Path | None, device: str) -> Outcome:
    from fedcompass.simulation.run import simulate

    result = simulate(experiment, folder=folder, device=device)
    summary = result.summary
    return Outcome(
        strategy=experiment.strategy["name"],
        seed=experiment.seed,
        time_to_target=summary["time_to_target"],
        horizon=experiment.horizon,
        top=result.top(),
        idle_share=summary["idle_share"],
        mean_staleness=summary["mean_staleness"],
        broke_off=broke_off(summary),
        refused_not_finite=summary["refused_not_finite"],
    )
