"""When a sweep is to stop: its budget is spent, or somebody pressed Ctrl-C."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

from fedcompass.vocabulary import Seconds

__all__ = ["Stop"]


class Stop:
    """Becomes due once and stays so.

    interrupted: whether it was by Ctrl-C.
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
    def heeding_ctrl_c(self) -> Iterator[None]:
        """Meanwhile a first Ctrl-C makes it due; a second one interrupts at once.

        A process that was started with SIGINT ignored, as by `&` in a script, goes on ignoring it.
        """
        elsewhere = threading.current_thread() is not threading.main_thread()
        if elsewhere or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            yield  # signals reach the main thread only
            return
        before = signal.signal(signal.SIGINT, self._on_ctrl_c)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _on_ctrl_c(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
