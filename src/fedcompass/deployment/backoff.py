"""How long to wait before the next try: twice as long after every failure in a row."""

from dataclasses import dataclass

from fedcompass.vocabulary import Seconds

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pause after the first failure, and the longest."""

    first: Seconds
    longest: Seconds

    def after(self, failures: int) -> Seconds:
        """The pause after so many failures in a row."""
        return min(self.first * 2.0 ** min(failures - 1, 30), self.longest) if failures else 0.0
