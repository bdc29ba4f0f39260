"""Which faults were caused when, counted from several threads."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from tests.faults.tally import Row

BEFORE = "before the first fault"


class Ledger:
    """Faults in their order; each stands for the updates that were accepted after it."""

    def __init__(self) -> None:
        self.accepted = 0  # updates so far, as the audit log tells them
        self._lock = threading.Lock()
        self._caused: list[tuple[str, int]] = []  # the fault, and how many were accepted before
        self._wrong: dict[str, list[str]] = {}

    def caused(self, fault: str) -> None:
        """A fault has just been caused."""
        with self._lock:
            self._caused.append((fault, self.accepted))

    def went_wrong(self, fault: str, what: str) -> None:
        """A fault had a consequence that it may not have."""
        with self._lock:
            self._wrong.setdefault(fault, []).append(what)

    @property
    def count(self) -> int:
        return len(self._caused)

    def times(self, fault: str) -> int:
        """How often a fault was caused."""
        with self._lock:
            return sum(caused == fault for caused, _ in self._caused)

    @property
    def wrong(self) -> list[str]:
        return [f"{fault}: {what}" for fault, found in self._wrong.items() for what in found]

    @property
    def latest(self) -> str:
        return self._caused[-1][0] if self._caused else BEFORE

    def rows(self, accepted: Iterable[int], counted: Mapping[int, int]) -> list[Row]:
        """A line for each kind of fault.

        Args:
            accepted: the tasks of the accepted updates, in order.
            counted: how often each of them was merged or is pending.
        """
        times = Counter(fault for fault, _ in self._caused)
        rows = {fault: Row(fault, times[fault]) for fault in sorted(times)}
        rows[BEFORE] = Row(BEFORE)
        latest, ahead = BEFORE, list(reversed(self._caused))
        for number, task in enumerate(accepted):
            while ahead and ahead[-1][1] <= number:
                latest = ahead.pop()[0]
            row = rows[latest]
            row.accepted += 1
            row.lost += counted.get(task, 0) == 0
            row.duplicated += max(counted.get(task, 0) - 1, 0)
        for fault, found in self._wrong.items():
            rows[fault].outcome = f"FAILED: {found[0]}"
        return list(rows.values())
