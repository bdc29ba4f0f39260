"""What holds for every process that a simulation or sweep starts."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["end_with_parent", "kept_from_children"]


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Processes that are started in here have SIGINT blocked from birth: the mask is inherited.

    Ctrl-C goes to every process of a terminal; only the first of them is to hear it.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_with_parent() -> None:
    """From now on, end this process as soon as its parent has, even in the midst of a task."""
    threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)
