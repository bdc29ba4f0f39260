"""Doing one job with one trainer: the same lines in every executor, so the bits are the same."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from fedcompass.aggregation.layout import FlatState
from fedcompass.simulation.executors.protocol import EvalJob, EvalResult, TrainJob, TrainResult
from fedcompass.training.evaluation import begin_evaluation, evaluate_clients
from fedcompass.training.local import LocalTrainer

__all__ = ["begin_evaluating", "evaluate_one", "train_one", "one_thread"]


def train_one(trainer: LocalTrainer, job: TrainJob, out: FlatState) -> TrainResult:
    """Train a job's client and write the update into `out`."""
    began = time.perf_counter()
    update = trainer.train(
        job.start,
        client=job.client,
        local_round=job.local_round,
        steps=job.steps,
        payload=job.payload,
        steps_before=job.steps_before,
        out=out,
        privacy=job.privacy,
    )
    return TrainResult(update=update, steps=job.steps, seconds=time.perf_counter() - began)


def evaluate_one(trainer: LocalTrainer, job: EvalJob) -> EvalResult:
    """Measure a job's model."""
    return begin_evaluating(trainer, job)()


def begin_evaluating(trainer: LocalTrainer, job: EvalJob) -> Callable[[], EvalResult]:
    """Start measuring a job's model; what is given back is called for the result."""
    began = time.perf_counter()
    measured = begin_evaluation(trainer, job.state, trainer.problem.test, job.metrics)
    by_client: tuple[dict[str, float], ...] = ()
    if job.client_metrics:
        by_client = evaluate_clients(trainer, job.state, job.client_metrics)

    def result() -> EvalResult:
        metrics = measured()
        return EvalResult(metrics=metrics, by_client=by_client, seconds=time.perf_counter() - began)

    return result


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread meanwhile: how many share a sum changes its last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
