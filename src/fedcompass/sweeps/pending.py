"""What is still to be run of a list of experiments, while others may be at the same list."""

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from fedcompass.experiment import Experiment
from fedcompass.simulation.problems import build_problem
from fedcompass.sweeps.pausable import discard_folder
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.stopping import Stop
from fedcompass.sweeps.store import Store
from fedcompass.training.bound import build_module

__all__ = ["Pending"]


class Pending(Iterator[Experiment]):
    """Gives out each experiment that is not done, nor claimed by another process, until a stop.

    It may have nothing to give now and something later, when another process has died.
    """

    def __init__(
        self, experiments: Sequence[Experiment], store: Store, stop: Stop, folder: Path | None
    ) -> None:
        self._store, self._stop, self._folder = store, stop, folder
        store.refresh()
        unique = {e.key(): e for e in experiments}
        self._waiting = deque(e for key, e in unique.items() if store.finished(key) is None)
        self._claimed: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def check(self) -> None:
        """Build one problem and model of each kind, so that what is missing is said at once.

        Raises:
            FedcompassError: naming it.
        """
        kinds = {
            (e.data.name, e.data.root, e.model, e.loss, e.fleet.clients, e.partition.kind): e
            for e in reversed(self._waiting)
        }
        for experiment in kinds.values():
            build_module(build_problem(experiment), experiment.seed)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Experiment:
        for _ in range(len(self._waiting)):
            if self._stop.is_due():
                break
            experiment = self._waiting.popleft()
            key = experiment.key()
            if not self._store.claim(key):
                self._waiting.append(experiment)
                continue
            self._store.refresh()  # after the claim: whoever had it before has appended by now
            if self._store.finished(key) is None:
                self._claimed[key] = None
                return experiment
            self._store.release(key)
        raise StopIteration

    def settle(self, record: Record) -> bool:
        """Keep a record, and let go of its run; False if the store had it already."""
        added = self._store.append(record)
        if self._folder is not None:
            discard_folder(self._folder / record.key)
        self._release(record.key)
        return added

    def release_all(self) -> None:
        """Leave what was given out and did not end to others."""
        for key in list(self._claimed):
            self._release(key)

    def _release(self, key: str) -> None:
        self._claimed.pop(key, None)
        self._store.release(key)
