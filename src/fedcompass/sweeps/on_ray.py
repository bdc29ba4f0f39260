"""A sweep on a Ray cluster: one actor per GPU or CPU slot, the data once per node.

A worker that dies loses only its own runs; they are handed to another one. At the end of a budget
the workers stop by themselves and give back what is finished; their other runs begin anew next
time.
"""

import os
import socket
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

from fedcompass.errors import MissingExtra, SettingsError, TaskFailed
from fedcompass.experiment import Experiment
from fedcompass.simulation.problems import build_problem
from fedcompass.sweeps.pending import Pending
from fedcompass.sweeps.ray_problems import ProblemSender
from fedcompass.sweeps.ray_worker import RayWorker
from fedcompass.sweeps.record import Record, failed_record
from fedcompass.sweeps.stopping import Stop
from fedcompass.vocabulary import Seconds

__all__ = ["OnRay", "cluster_address"]

_STACKED_BATCH = 64  # runs that one GPU gets at a time
_LOOK_EVERY: Seconds = 0.5  # whether it is time to stop
_ATTEMPTS = 3  # workers that may die of a run before it counts as failed
_CONNECTING: Seconds = 10.0  # to a cluster, at most
_PATIENCE: Seconds = 300.0  # with no worker at all


class OnRay:
    """Hands runs to the cluster's workers and collects their records.

    Args:
        where: as `cluster_address` takes it.
        device: where workers train: "cpu" takes a CPU slot each, "cuda" a GPU.
        stacked: whether a worker trains its runs as one stack.
        workers: at most so many; None: as many as the cluster has room for.
        max_stack: most tasks in a worker's stack.
        stop: when to.
    """

    def __init__(
        self,
        where: str,
        *,
        device: str,
        stacked: bool,
        workers: int | None,
        max_stack: int | None,
        stop: Stop,
    ) -> None:
        self._ray = _import_ray()
        self._where, self._device, self._stacked = where, device, stacked
        self._workers, self._max_stack, self._stop = workers, max_stack, stop
        self._sender = ProblemSender(self._ray.put)
        self._starting: dict[Any, Any] = {}  # its answer to come -> a worker
        self._idle: list[Any] = []
        self._busy: dict[Any, tuple[Any, list[Experiment]]] = {}  # its answer -> a worker, its runs
        self._lost: deque[Experiment] = deque()  # to be handed out again
        self._deaths: dict[str, int] = {}  # workers that died of a run
        self._alone_since: Seconds | None = None

    def records(self, pending: Pending) -> Generator[Record, None, None]:
        """The record of each run as it ends or fails."""
        with ExitStack() as stack:
            stack.enter_context(_connected(self._ray, self._where))
            stack.callback(self._stop_workers)
            for _ in range(self._room(len(pending))):
                self._start_worker()
            while True:
                self._hand_out(pending)
                if not self._busy and (self._idle or self._stop.is_due()):
                    return
                if self._stop.interrupted:
                    return  # the workers are stopped with their runs
                yield from self._answers()

    def _room(self, runs: int) -> int:
        kind = "CPU" if self._device == "cpu" else "GPU"
        slots = int(self._ray.cluster_resources().get(kind, 0))
        if slots == 0:
            raise SettingsError(
                f"--on is {self._where!r}, and that Ray cluster has no {kind}; start nodes with "
                "one, or choose another --device"
            )
        return min(slots, self._workers or slots, runs)

    def _start_worker(self) -> None:
        amount = {"num_cpus": 1} if self._device == "cpu" else {"num_cpus": 0, "num_gpus": 1}
        actor = self._ray.remote(RayWorker).options(scheduling_strategy="SPREAD", **amount)
        worker = actor.remote(self._device, self._stacked, self._max_stack)
        self._starting[worker.ready.remote()] = worker

    def _hand_out(self, pending: Iterator[Experiment]) -> None:
        size = _STACKED_BATCH if self._stacked else 1
        while self._idle and (batch := self._batch(pending, size)):
            packed = [(e, self._sender.pack(build_problem(e))) for e in batch]
            worker = self._idle.pop()
            answer = worker.run.remote(packed, self._stop.seconds_left())
            self._busy[answer] = worker, batch

    def _batch(self, pending: Iterator[Experiment], size: int) -> list[Experiment]:
        if self._stop.is_due():
            return []
        batch = [self._lost.popleft() for _ in range(min(size, len(self._lost)))]
        return [*batch, *islice(pending, size - len(batch))]

    def _answers(self) -> Iterator[Record]:
        """Wait a little for workers' answers; those of the dead are replaced."""
        waited_for = [*self._busy, *self._starting]
        ready, _ = self._ray.wait(waited_for, num_returns=1, timeout=_LOOK_EVERY)
        for answer in ready:
            worker, batch = self._busy.pop(answer, (None, []))
            worker = worker or self._starting.pop(answer)
            try:
                given = self._ray.get(answer)
            except self._ray.exceptions.RayError as error:
                yield from self._on_worker_lost(worker, batch, error)
            else:
                self._idle.append(worker)
                yield from given if isinstance(given, list) else ()
        self._check_anybody_is_there()

    def _on_worker_lost(
        self, worker: Any, batch: list[Experiment], error: Exception
    ) -> Iterator[Record]:
        self._ray.kill(worker)  # it may only be out of reach: its run must not go on
        self._start_worker()
        for experiment in batch:
            key = experiment.key()
            self._deaths[key] = self._deaths.get(key, 0) + 1
            if self._deaths[key] < _ATTEMPTS:
                self._lost.append(experiment)
            else:
                reason = TaskFailed(f"{_ATTEMPTS} Ray workers died of it: {str(error)[:200]}")
                yield failed_record(experiment, reason, self._device)

    def _check_anybody_is_there(self) -> None:
        if self._busy or self._idle:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = monotonic()
        elif monotonic() - self._alone_since > _PATIENCE:
            raise TaskFailed(
                f"no worker has come up on the Ray cluster for {_PATIENCE:.0f} s; see `ray "
                "status`, and whether fedcompass is installed on its nodes"
            )

    def _stop_workers(self) -> None:
        busy = [worker for worker, _ in self._busy.values()]
        for worker in (*self._starting.values(), *self._idle, *busy):
            self._ray.kill(worker)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as later versions do
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray", "a sweep on a Ray cluster") from None
    return ray


@contextmanager
def _connected(ray: Any, where: str) -> Iterator[None]:
    """Be connected to a cluster meanwhile; one that this process has already is used and kept."""
    if ray.is_initialized():
        yield
        return
    address = cluster_address(where)
    try:
        ray.init(address, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise SettingsError(
            f"--on is {where!r}, and no Ray cluster answers there: {reason}"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def cluster_address(where: str) -> str:
    """What to give to `ray.init`: an address where somebody listens, or "local" for a new cluster.

    Ray itself waits minutes for a cluster that is not there.

    Args:
        where: "ray" (the cluster that $RAY_ADDRESS names, else the one that runs on this machine,
            else a new one), "ray://host:port" or "host:port".

    Raises:
        SettingsError: it is no address, or nobody listens there.
    """
    if where not in ("ray", "auto", "local") and ":" not in where:
        raise SettingsError(f"--on is {where!r}; allowed: ray, ray://HOST:PORT or HOST:PORT")
    named = os.environ.get("RAY_ADDRESS") if where == "ray" else where
    if named:
        if problem := _problem(named):
            setting = "--on" if named is where else "$RAY_ADDRESS"
            raise SettingsError(
                f"{setting} is {named!r}, and no Ray cluster answers there: {problem}; see "
                "whether it runs with `ray status`"
            )
        return named
    noted = _noted()
    return noted if noted and not _problem(noted) else "local"


def _noted() -> str | None:
    """The address of the cluster that this machine started last; it may be gone since.

    Ray's documentation of `ray.init` names the file. A cluster that crashed leaves it behind.
    """
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        return (Path(folder) / "ray" / "ray_current_cluster").read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _problem(address: str) -> str | None:
    """Why nobody can be reached there; None if somebody listens, or only Ray can tell."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return None
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECTING).close()
    except (OSError, OverflowError) as error:
        return str(error)
    return None
