"""A process without threads that has torch loaded and forks a worker in milliseconds.

Importing torch and making its first optimizer takes about three seconds a process. `spawn` pays
that for every worker and runs the user's script once more in each; `fork` of the simulation's own
process is fast but unsafe, because torch's thread pools do not survive it. So one clean process
imports torch once, is kept for all later executors, and workers are forked from that.
"""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from fedcompass.simulation.ctrl_c import kept_from_children

__all__ = ["ALLOCATOR", "IN_WORKER", "fork_worker", "main"]

IN_WORKER = "FEDCOMPASS_WORKER"
"""Environment variable that tells a worker process apart."""

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fedcompass.simulation.executors.zygote import main; main(int(sys.argv[2]))"
)
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
}
"""For glibc: keep freed activations for the next step instead of returning them to the kernel,
whose page faults otherwise cost a tenth to a quarter of the MNIST CNN's step."""

_ENVIRONMENT = {
    IN_WORKER: "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    **ALLOCATOR,
}
_DESCRIPTORS = 5  # four for the worker, and the folder that it is to be in


@dataclass(frozen=True, slots=True)
class _Zygote:
    """A running zygote, the socket on which it takes requests, and who started it."""

    process: subprocess.Popen[bytes]
    line: socket.socket
    parent: int


_zygote: _Zygote | None = None


def fork_worker(descriptors: Sequence[int]) -> None:
    """Have a worker started on four descriptors: connection, orders, states, goods.

    It is in our present folder, as a user's own file may be named relative to that.
    """
    here = os.open(".", os.O_RDONLY)
    try:
        socket.send_fds(_running().line, [b"w"], [*descriptors, here])
    except OSError:  # the zygote was killed: start another, once
        _end()
        socket.send_fds(_running().line, [b"w"], [*descriptors, here])
    finally:
        os.close(here)


def main(descriptor: int) -> None:
    """Load torch, then fork a worker per request until the simulation's process is gone."""
    import torch

    from fedcompass.simulation.executors.worker import work

    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # loads what every optimizer loads
    gc.freeze()  # what is loaded stays shared with the workers
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a worker ended
    line = socket.socket(fileno=descriptor)
    while True:
        request, descriptors, _, _ = socket.recv_fds(line, 1, _DESCRIPTORS)
        if not request:
            return
        if os.fork() == 0:
            line.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection, *others, here = descriptors
            os.fchdir(here)
            os.close(here)
            with suppress(EOFError, ConnectionError):  # the executor was closed meanwhile
                work(Connection(connection), *others)
            return
        for received in descriptors:
            os.close(received)


def _running() -> _Zygote:
    global _zygote
    if _zygote is None or _zygote.parent != os.getpid():  # a forked copy of us must not share it
        _zygote = _start()
    return _zygote


def _start() -> _Zygote:
    ours, theirs = socket.socketpair()
    with kept_from_children(), theirs:  # the simulation ends its workers itself
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps(sys.path), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT},
        )
    atexit.register(_end)
    return _Zygote(process, ours, os.getpid())


def _end() -> None:
    """End the zygote; workers it has forked live on."""
    global _zygote
    if _zygote is not None and _zygote.parent == os.getpid():
        _zygote.line.close()
        _zygote.process.kill()
        _zygote.process.wait()
    _zygote = None
