"""A worker process: carries out one job after the other with one thread; ends with its parent."""

import gc
import signal
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any, TypeAlias

import torch

from fedcompass.aggregation.layout import FlatState
from fedcompass.error_text import told
from fedcompass.errors import FedcompassError, TaskFailed
from fedcompass.freed_memory import keep_freed_memory
from fedcompass.simulation.child_processes import end_with_parent
from fedcompass.simulation.executors.one_job import evaluate_one, train_one
from fedcompass.simulation.executors.protocol import EvalJob, EvalResult, Job
from fedcompass.simulation.executors.shared_memory import load_in_worker, shared_models
from fedcompass.training.local import LocalTrainer

__all__ = ["Report", "SetupFailed", "Trained", "serve", "work"]


@dataclass(frozen=True, slots=True)
class Trained:
    """A job's update lies in the shared memory."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SetupFailed:
    """The worker could not build what it trains with, and ends."""

    error: TaskFailed


Report: TypeAlias = Trained | EvalResult | TaskFailed | SetupFailed


def work(connection: Connection, main: dict[str, Any] | None) -> None:
    """Be a worker: receive a problem and memory for models, then serve until the parent ends.

    Args:
        connection: brings the descriptors of both files, then jobs; carries reports back.
        main: how to import the parent's main script, if the problem needs it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    end_with_parent()
    torch.set_num_threads(1)
    keep_freed_memory()
    gc.freeze()  # what is loaded stays shared with the other workers
    with suppress(EOFError, ConnectionError):  # the executor was closed meanwhile
        contents, models = recv_handle(connection), recv_handle(connection)
        try:
            trainer = LocalTrainer(*load_in_worker(contents, main))
        except Exception as error:
            failed = _failed(error, "a worker process could not set up the problem: ")
            connection.send(SetupFailed(failed))
            return
        serve(connection, trainer, *shared_models(models, trainer.layout))


def serve(
    connection: Connection, trainer: LocalTrainer, start: FlatState, update: FlatState
) -> None:
    """Carry out jobs until the connection ends; a job that raises is reported, not fatal.

    Args:
        connection: brings jobs without their models, carries reports.
        trainer: trains.
        start: where a job's model lies.
        update: where its update is to be written.
    """
    while True:
        connection.send(_report(connection.recv(), trainer, start, update))


def _report(job: Job, trainer: LocalTrainer, start: FlatState, update: FlatState) -> Report:
    try:
        if isinstance(job, EvalJob):
            return evaluate_one(trainer, replace(job, state=start))
        return Trained(train_one(trainer, replace(job, start=start), update).seconds)
    except Exception as error:
        return _failed(error)


def _failed(error: Exception, before: str = "") -> TaskFailed:
    """One line for the user; the traceback goes along as a note."""
    failed = TaskFailed(
        before + (str(error) if isinstance(error, FedcompassError) else told(error))
    )
    failed.add_note(traceback.format_exc())
    return failed
