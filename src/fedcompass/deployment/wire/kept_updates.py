"""A site's updates that wait for a sum: on its own disk, until a sum has them or they are old.

`rounds.json` says which merges were begun and which updates were revealed; it is on disk before
the message that it is about leaves the site.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedcompass.errors import WireError
from fedcompass.runs.files import force, write_whole
from fedcompass.secure_aggregation.vectors import WaitingUpdate
from fedcompass.vocabulary import TaskId

__all__ = ["KeptUpdates", "write_update"]

_MOST_KEPT = 16  # updates; older ones were merged, or given up by the server
_MOST_SPENT = 1000


def write_update(path: Path, update: WaitingUpdate) -> None:
    """Write an update where the site's process finds it."""
    with path.open("wb") as file:
        np.savez(file, trainable=update.trainable, averaged=update.averaged)


class KeptUpdates:
    """A folder of updates, made when it is not there."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "rounds.json"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.rounds: dict[str, Any] = {"last_merges": {}}  # what `MaskingMember.to_json` gave last
        self._spent: list[str] = []
        if self._file.exists():
            facts = json.loads(self._file.read_text(encoding="utf-8"))
            self.rounds, self._spent = facts["rounds"], facts["spent"]

    def note_rounds(self, rounds: dict[str, Any]) -> None:
        """Put on disk that a merge is begun, before its keys are sent."""
        self.rounds = rounds
        self._write()

    def keep(self, run: str, task: TaskId, trained: Path) -> None:
        """Take over a file with an update.

        Raises:
            WireError: an update of this task was revealed in a sum; it is not offered again.
            OSError: the disk.
        """
        path = self._path(run, task)
        if path.stem in self._spent:
            raise WireError(f"the update of task {task} was in a sum; it is not offered again")
        if trained.exists():  # else it is here from a try before this one
            force(trained)
            trained.replace(path)
            force(self._folder)  # before the answer that promises it is sent
        kept = sorted(self._folder.glob("*.npz"), key=lambda each: each.stat().st_mtime)
        for old in kept[:-_MOST_KEPT]:
            old.unlink()

    def update(self, run: str, task: TaskId) -> WaitingUpdate | None:
        """An update that may be offered, None if there is none."""
        path = self._path(run, task)
        if path.stem in self._spent or not path.exists():
            return None
        with np.load(path, allow_pickle=False) as arrays:
            return WaitingUpdate(trainable=arrays["trainable"], averaged=arrays["averaged"])

    def spend(self, run: str, tasks: Iterable[TaskId]) -> None:
        """Put on disk that these updates are in a sum, before the shares that open it are sent."""
        paths = [self._path(run, task) for task in tasks]
        self._spent = [*self._spent, *(path.stem for path in paths)][-_MOST_SPENT:]
        self._write()
        for path in paths:
            path.unlink(missing_ok=True)

    def _write(self) -> None:
        write_whole(self._file, json.dumps({"rounds": self.rounds, "spent": self._spent}))

    def _path(self, run: str, task: TaskId) -> Path:
        return self._folder / f"{run}.{task}.npz"
