"""Ctrl-C: the first stops a command cleanly; later ones do not interrupt that."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

import typer

from fedcompass.vocabulary import Seconds

__all__ = ["going_on_later", "ignore_further", "stop_cleanly_at"]

_PATIENCE: Seconds = 10.0  # for a command to stop cleanly
_STOPPING = b"stopping; Ctrl-C after 10 s ends it at once\n"
_INTERRUPTED = 130  # the exit code, as a shell's

_stopping_since: Seconds | None = None


def stop_cleanly_at(number: int) -> None:
    """Make a signal raise `KeyboardInterrupt` once; an ignored signal (nohup) stays ignored."""
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, _on_signal)


@contextmanager
def going_on_later(tell: Callable[[], None]) -> Iterator[None]:
    """At Ctrl-C let `tell` say what is left and how to go on, then exit as a shell expects it."""
    try:
        yield
    except KeyboardInterrupt:
        tell()
        raise typer.Exit(_INTERRUPTED) from None


def ignore_further() -> None:
    """Ignore Ctrl-C from now on, while the command ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # as signal calls it
    global _stopping_since
    if _stopping_since is None:
        _stopping_since = monotonic()
        raise KeyboardInterrupt
    if monotonic() - _stopping_since > _PATIENCE:
        os._exit(_INTERRUPTED)
    os.write(2, _STOPPING)  # print is not safe in a signal's handler
