"""Hands a message on to the site's worker and brings its answer back; loads no torch.

A worker that dies closes its socket, so a lost task is known at once, not after a timeout.
"""

import socket
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from fedcompass.deployment.site.worker_frames import Frame, await_greeting, receive, send
from fedcompass.deployment.wire.messages import Arrays, Facts
from fedcompass.errors import WireError, WorkerLost, WorkerRefused
from fedcompass.vocabulary import Seconds

__all__ = ["query", "train"]

_PATIENCE: Seconds = 60.0  # a worker that is being restarted has torch and its data to load
_PAUSE: Seconds = 0.05
_NOT_THERE = (
    FileNotFoundError,  # not started yet
    ConnectionError,  # killed: its socket is a mere file, or closes before it has greeted
    EOFError,  # likewise
    BlockingIOError,  # more connections at once than it has taken up
    TimeoutError,  # busy, or hung
)
_LEAST_PATIENCE: Seconds = 1.0  # for a worker that is there to greet
_SLACK = 1 << 16  # an answer's arrays are those that were sent; only their headers may differ


def query(
    worker: Path | str, facts: Facts | None = None, *, patience: Seconds = _PATIENCE
) -> Facts:
    """Ask the worker at a socket who it is and how many samples it has.

    Args:
        worker: the path of its socket.
        facts: what the server sent along.
        patience: how long to wait for a worker that is not there yet.

    Raises:
        WorkerLost: nobody is there, or the worker went away.
        WorkerRefused: it said why it will not answer.
    """
    return _ask(worker, Frame("query", facts or {}), patience).facts


def train(
    worker: Path | str, facts: Facts, arrays: Arrays, *, patience: Seconds = _PATIENCE
) -> tuple[Facts, Arrays]:
    """Have the worker carry out a task, however long that takes; its facts and its end model.

    Raises:
        WorkerLost: nobody is there, or the worker went away with the task in hand.
        WorkerRefused: it said why the task cannot be done.
    """
    answer = _ask(worker, Frame("train", facts, arrays), patience)
    return answer.facts, answer.arrays


def _ask(worker: Path | str, request: Frame, patience: Seconds) -> Frame:
    with _connected(worker, patience) as connection:
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                send(connection, request)  # cut short: the worker has refused, and said why
            answer = receive(connection, request.payload_bytes + _SLACK)
        except (EOFError, OSError) as error:
            raise WorkerLost(
                f"the worker at {_name(worker)} went away during a {request.kind} "
                f"({type(error).__name__}); it is being restarted, ask again"
            ) from None
        except WireError as error:
            raise WorkerRefused(f"the worker at {_name(worker)} answered badly: {error}") from None
    if answer.kind == "error":
        raise WorkerRefused(str(answer.facts.get("reason", "the worker gave no reason")))
    return answer


def _connected(worker: Path | str, patience: Seconds) -> socket.socket:
    """A connection on which the worker has said hello; one that is not there yet is waited for.

    A worker that is just dying may still be connected to, but it will not greet: nothing has been
    sent to it then, so nothing is lost.
    """
    until = monotonic() + patience
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(max(until - monotonic(), _LEAST_PATIENCE))
            connection.connect(str(worker))
            await_greeting(connection)
        except _NOT_THERE:
            connection.close()
            if monotonic() >= until:
                raise WorkerLost(
                    f"no worker answers at {_name(worker)}, after {patience:g} s; "
                    "is `fedcompass deploy site` running, and what does its worker.log say?"
                ) from None
            sleep(_PAUSE)
        except (OSError, WireError) as error:  # no permission, a path too long, another program
            connection.close()
            raise WorkerLost(
                f"the worker's socket {_name(worker)} cannot be used: {error}; run the SuperNode "
                "as the user who runs the worker"
            ) from None
        else:
            connection.settimeout(None)  # a task may take hours
            return connection


def _name(worker: Path | str) -> str:
    """What to call a socket in a text that leaves the site: its file name."""
    return Path(worker).name
