"""`updates/TASK.safetensors`: accepted updates that the checkpoint does not cover yet."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.aggregation.saved_tensors import named_state, restored_state
from fedcompass.coordinator import Update
from fedcompass.errors import CheckpointError, RunFolderError
from fedcompass.runs.checkpoint import load_checkpoint, save_checkpoint
from fedcompass.runs.folder import RunFolder
from fedcompass.vocabulary import TaskId

__all__ = ["AcceptedUpdates"]


class AcceptedUpdates:
    """A run's updates on disk, one file each."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._path = folder.path / "updates"
        try:
            self._path.mkdir(exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self._path} cannot be made: {error.strerror}") from None

    def keep(self, update: Update, run: str) -> None:
        """Put an update of the run of that name on disk, before it is accepted.

        Raises:
            CheckpointError: it cannot be written; nothing was accepted.
        """
        facts = {
            "run": run,
            "client": update.client,
            "task": update.task,
            "version": update.version,
            "steps_done": update.steps_done,
        }
        assert update.tensors is not None  # what a site keeps itself is not accepted
        save_checkpoint(self._of(update.task), named_state("update", update.tensors), facts)

    def tensors(self, task: TaskId, layout: Layout, facts: Mapping[str, Any]) -> FlatState:
        """The tensors of an update that was accepted after the last checkpoint.

        Args:
            task: the task it answered.
            layout: the model's.
            facts: what the journal says about it, by the names that `keep` gives.

        Raises:
            CheckpointError: they are missing, damaged, or those of another update.
        """
        path = self._of(task)
        saved = load_checkpoint(path)
        for name, value in facts.items():
            if saved.facts.get(name, value) != value:  # a file may be from before a fact was kept
                raise CheckpointError(
                    f"{path} holds another update: its {name} is {saved.facts[name]!r}, the "
                    f"journal has {value!r}; restore the run's folder from a backup"
                )
        return restored_state(saved.tensors, "update", layout.empty())

    def drop(self) -> None:
        """Remove all updates: the checkpoint covers them, or they were never accepted."""
        self._folder.remove(*self._path.iterdir())

    def _of(self, task: TaskId) -> Path:
        return self._path / f"{task}.safetensors"
