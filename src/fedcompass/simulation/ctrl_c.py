"""Ctrl-C goes to every process of a terminal; only the first of them is to hear it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["kept_from_children"]


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Processes that are started in here have SIGINT blocked from birth: the mask is inherited."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
