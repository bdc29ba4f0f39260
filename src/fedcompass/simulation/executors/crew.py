"""The worker processes of one executor, seen from the simulation: orders out, reports in."""

import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from fedcompass.simulation.executors.orders import RECORD_BYTES
from fedcompass.simulation.executors.shipping import Parcel
from fedcompass.simulation.executors.worker import Report, Started, Took
from fedcompass.simulation.executors.zygote import fork_worker

__all__ = ["Crew", "WorkerDied"]

_PIPE_BYTES = 65536  # what a pipe holds; writing more orders than fit would block the simulation
_SECONDS_TO_END = 1.0


class WorkerDied(Exception):
    """A worker process ended by itself; `key` is the job it had, if it had one."""

    def __init__(self, pid: int | None, key: int | None) -> None:
        super().__init__(pid, key)
        self.pid, self.key = pid, key


@dataclass(slots=True)
class _Member:
    """One worker: its process id once it has reported, and the job it took last."""

    connection: Connection
    pid: int | None = None
    key: int | None = None


class Crew:
    """Worker processes that read orders from one pipe and report each on its own connection."""

    def __init__(self, size: int, parcel: Parcel, states: int, goods: int) -> None:
        readable, self._orders = os.pipe()
        self._members: dict[Connection, _Member] = {}
        try:
            for _ in range(size):
                self._hire([readable, states, goods], parcel)
        finally:
            os.close(readable)
        # One order in work and one waiting per worker, so that none is idle while we are busy.
        self.capacity = min(2 * size, _PIPE_BYTES // RECORD_BYTES - 1)

    def _hire(self, descriptors: Sequence[int], parcel: Parcel) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            fork_worker([theirs.fileno(), *descriptors])
        connection = Connection(ours.detach())
        self._members[connection] = _Member(connection)
        connection.send(parcel)

    def hand_out(self, record: bytes) -> None:
        """Write an order for whichever worker is free first."""
        with suppress(BrokenPipeError):  # all workers are gone; the next reports say so
            os.write(self._orders, record)

    def reports(self, *, block: bool) -> Iterator[Report]:
        """What workers have reported; waits for a first report if it may block.

        Raises:
            WorkerDied: a worker's connection has ended.
        """
        for connection in wait(list(self._members), None if block else 0):
            member = self._members[connection]  # type: ignore[index]
            try:
                report: Report = member.connection.recv()
            except (EOFError, OSError):
                raise WorkerDied(member.pid, member.key) from None
            if isinstance(report, Started):
                member.pid = report.pid
            member.key = report.key if isinstance(report, Took) else None
            yield report

    def close(self) -> None:
        """End all workers at once, whatever they are doing."""
        if self._orders >= 0:
            os.close(self._orders)
        self._orders = -1
        for connection in self._members:
            with socket.socket(fileno=os.dup(connection.fileno())) as line:
                line.shutdown(socket.SHUT_WR)
        for member in self._members.values():
            _await_end(member)
        self._members.clear()


def _await_end(member: _Member) -> None:
    """Read until the worker's side is closed; kill it if that takes long."""
    try:
        while member.connection.poll(_SECONDS_TO_END):
            member.connection.recv()
        if member.pid is not None:
            os.kill(member.pid, signal.SIGKILL)
    except (EOFError, OSError):
        pass
    finally:
        member.connection.close()
