"""A worker process: reads orders, trains with one thread, reports; ends when its parent does."""

import os
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TypeAlias

import torch

from fedcompass.error_text import told
from fedcompass.errors import FedcompassError
from fedcompass.settings.training import LocalSettings
from fedcompass.simulation.executors.carry_out import carry_out_evaluation, carry_out_training
from fedcompass.simulation.executors.orders import read_order
from fedcompass.simulation.executors.protocol import EvalJob, EvalResult, Job
from fedcompass.simulation.executors.shared import SharedMemory, SharedStates
from fedcompass.simulation.executors.shipping import Parcel, unpack
from fedcompass.training.local import LocalTrainer
from fedcompass.training.problem import Problem

__all__ = ["Failed", "Measured", "Report", "Started", "Took", "Trained", "serve", "work"]


@dataclass(frozen=True, slots=True)
class Started:
    """A worker is there."""

    pid: int


@dataclass(frozen=True, slots=True)
class Took:
    """A worker has read an order."""

    key: int


@dataclass(frozen=True, slots=True)
class Trained:
    """A job's update lies in its output slot."""

    key: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """An evaluation is done."""

    key: int
    result: EvalResult


@dataclass(frozen=True, slots=True)
class Failed:
    """A job raised, or (without a key) the worker could not set up.

    message: one line. trace: the worker's traceback, as text.
    """

    key: int | None
    message: str
    trace: str


Report: TypeAlias = Started | Took | Trained | Measured | Failed


def work(connection: Connection, orders: int, states: int, goods: int) -> None:
    """Be a worker: receive a problem, then serve until the orders or the parent end.

    Args:
        connection: to the parent: brings one parcel, then carries reports back.
        orders: file descriptor of the pipe that all workers read.
        states: file descriptor of the slots for models.
        goods: file descriptor of the memory with the problem's tensors.
    """
    torch.set_num_threads(1)
    connection.send(Started(os.getpid()))
    parcel: Parcel = connection.recv()
    threading.Thread(target=_end_with_parent, args=(connection.fileno(),), daemon=True).start()
    try:
        problem, settings, seed = _unpacked(parcel, goods)
        trainer = LocalTrainer(problem, settings, seed)
    except Exception as error:
        failed = _failure(None, error)
        reason = f"a worker process could not set up the problem: {failed.message}"
        connection.send(replace(failed, message=reason))
        return
    serve(connection, orders, trainer, SharedStates(trainer.layout, states))


def serve(connection: Connection, orders: int, trainer: LocalTrainer, states: SharedStates) -> None:
    """Carry out orders until there are no more; a job that raises is reported, not fatal."""
    while (order := read_order(orders, states.__getitem__)) is not None:
        job, out = order
        connection.send(Took(job.key))
        connection.send(_done(trainer, job, states, out))


def _done(trainer: LocalTrainer, job: Job, states: SharedStates, out: int | None) -> Report:
    try:
        if isinstance(job, EvalJob):
            return Measured(job.key, carry_out_evaluation(trainer, job))
        assert out is not None
        return Trained(job.key, carry_out_training(trainer, job, states[out]).seconds)
    except Exception as error:
        return _failure(job.key, error)


def _failure(key: int | None, error: Exception) -> Failed:
    known = isinstance(error, FedcompassError)
    message = str(error) if known else told(error)
    return Failed(key, message, traceback.format_exc())


def _unpacked(parcel: Parcel, goods: int) -> tuple[Problem, LocalSettings, int]:
    contents: tuple[Problem, LocalSettings, int] = unpack(parcel, SharedMemory(goods))  # type: ignore[assignment]
    return contents


def _end_with_parent(descriptor: int) -> None:
    """End this process as soon as the parent closes its side, even in the midst of a task."""
    with suppress(OSError):  # a parent that dies with reports unread resets the connection
        os.read(descriptor, 1)  # nothing is sent after the parcel, so this returns at the end
    os._exit(0)
