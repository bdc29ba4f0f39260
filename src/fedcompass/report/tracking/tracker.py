"""What a tracking tool is told about a run."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from fedcompass.vocabulary import Seconds

__all__ = ["OpenTracker", "Status", "Tracker"]

Status: TypeAlias = Literal["finished", "stopped", "failed"]
"""How a run ended; a stopped one can be resumed."""


class Tracker(Protocol):
    """One run in a tracking tool."""

    def settings(self, values: Mapping[str, Any]) -> None:
        """Take the run's settings, by dotted key."""
        ...

    def metrics(self, values: Mapping[str, float], *, step: int, at: Seconds) -> None:
        """Take metrics of one global model, whose version is the step, at a time of the run."""
        ...

    def flush(self) -> None:
        """Send on what was kept back."""
        ...

    def close(self, summary: Mapping[str, float], status: Status) -> None:
        """Take what came out, if anything, and end."""
        ...


OpenTracker: TypeAlias = Callable[[str], Tracker]
"""Begins a run of that name in a tracking tool."""
