"""When a sweep is to stop: its budget is spent, or somebody pressed Ctrl-C or ended it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

from fedcompass.vocabulary import Seconds

__all__ = ["Stop"]

_HEEDED = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; `kill`, and batch systems when time is up


class Stop:
    """Becomes due once and stays so.

    interrupted: whether it was by a signal.
    """

    def __init__(self, budget: Seconds | None = None) -> None:
        self._ends = None if budget is None else monotonic() + budget
        self.interrupted = False

    def is_due(self) -> bool:
        """Whether to start nothing any more and to put away what runs."""
        return self.interrupted or (self._ends is not None and monotonic() >= self._ends)

    def seconds_left(self) -> Seconds | None:
        """What is left of the budget; None: there is none."""
        return None if self._ends is None else max(self._ends - monotonic(), 0.0)

    @contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """Meanwhile a first Ctrl-C or SIGTERM makes it due; a second one interrupts at once.

        A process that was started with SIGINT ignored, as by `&` in a script, goes on ignoring it.
        """
        elsewhere = threading.current_thread() is not threading.main_thread()
        heeded = () if elsewhere else _HEEDED  # signals reach the main thread only
        before = {
            number: signal.signal(number, self._on_signal)
            for number in heeded
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
