"""A federation's run folder: everything that has to outlive a crash.

deployment.toml          the server's settings
journal.jsonl            every event and command; on disk before anything is acknowledged
updates/TASK.safetensors accepted updates that the checkpoint does not cover yet
checkpoint.safetensors   the whole state at the last merge
audit.jsonl              who joined, what was accepted or refused and why, every merge
metrics.jsonl            one line per evaluation
readmit/SITE             an operator's request, until the server takes it up
summary.json             what came out; written last, so its presence means "finished"
final.safetensors, best.safetensors    the model at the end and at its best
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from torch import Tensor

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.aggregation.saved_tensors import named_state, restored_state
from fedcompass.coordinator import Update
from fedcompass.deployment.server_settings import FederationSettings
from fedcompass.errors import CheckpointError, RunFolderError
from fedcompass.finite_json import json_text
from fedcompass.runs.checkpoint import (
    Checkpoint,
    check_nothing_lost,
    load_checkpoint,
    save_checkpoint,
    save_model,
)
from fedcompass.runs.files import FolderLock, write_whole
from fedcompass.vocabulary import TaskId

__all__ = ["RunStore"]


class RunStore:
    """One run's files, held by one server at a time; `close` or the process's end lets go.

    Args:
        path: the folder; made unless it is to be resumed.
        settings: written to deployment.toml.
        resume: go on with what is there.

    Raises:
        RunFolderError: another server has it, it holds a run already (or, to resume, none or a
            finished one), or it cannot be written.
    """

    def __init__(self, path: Path, settings: FederationSettings, *, resume: bool = False) -> None:
        self.path = path
        if resume and not (path / "deployment.toml").is_file():
            raise RunFolderError(
                f"{path} has no run to resume: no deployment.toml; leave out --resume to start one"
            )
        self._lock = _locked(path)
        try:
            self._check(resume)
            (path / "updates").mkdir(exist_ok=True)
            write_whole(path / "deployment.toml", tomli_w.dumps(settings.to_record()))
        except OSError as error:
            self.close()
            raise RunFolderError(f"{path} cannot be written to: {error.strerror}") from None
        except RunFolderError:
            self.close()
            raise

    def _check(self, resume: bool) -> None:
        if self.finished:
            raise RunFolderError(
                f"{self.path} is finished; see its summary.json, or choose another folder"
            )
        if not resume and self.begun:
            raise RunFolderError(
                f"{self.path} holds a run already; resume it (--resume) or choose another folder"
            )

    @property
    def begun(self) -> bool:
        """Whether anything can have happened: the first checkpoint stands before all else."""
        return (self.path / "checkpoint.safetensors").exists()

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        return (self.path / "summary.json").exists()

    @property
    def journal(self) -> Path:
        """Where the journal is."""
        return self.path / "journal.jsonl"

    def keep_update(self, update: Update, run: str) -> None:
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
        save_checkpoint(self._update(update.task), named_state("update", update.tensors), facts)

    def update(self, task: TaskId, layout: Layout, facts: Mapping[str, Any]) -> FlatState:
        """The tensors of an update that was accepted after the last checkpoint.

        Args:
            task: the task it answered.
            layout: the model's.
            facts: what the journal says about it, by the names that `keep_update` gives.

        Raises:
            CheckpointError: they are missing, damaged, or those of another update.
        """
        path = self._update(task)
        saved = load_checkpoint(path)
        for name, value in facts.items():
            if saved.facts.get(name, value) != value:  # a file may be from before a fact was kept
                raise CheckpointError(
                    f"{path} holds another update: its {name} is {saved.facts[name]!r}, the "
                    f"journal has {value!r}; restore the run's folder from a backup"
                )
        return restored_state(saved.tensors, "update", layout.empty())

    def drop_updates(self) -> None:
        """Remove all updates: the checkpoint covers them, or they were never accepted."""
        self._remove(*(self.path / "updates").iterdir())

    def _remove(self, *paths: Path) -> None:
        try:
            for path in paths:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.path} cannot be written to: {error.strerror}") from None

    def _update(self, task: TaskId) -> Path:
        return self.path / "updates" / f"{task}.safetensors"

    def checkpoint(self) -> Checkpoint:
        """The latest checkpoint."""
        return load_checkpoint(self.path / "checkpoint.safetensors")

    def save_checkpoint(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Replace the checkpoint.

        Raises:
            CheckpointError: it cannot be written; the one before is untouched.
        """
        save_checkpoint(self.path / "checkpoint.safetensors", tensors, facts)

    def save_model(self, name: str, layout: Layout, model: FlatState) -> None:
        """Write a model as tensors by name, as `load_state_dict` takes them.

        Raises:
            CheckpointError: it cannot be written.
        """
        save_model(self.path / f"{name}.safetensors", layout.unflatten(model))

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the summary; the run can no longer be resumed, nor need it be."""
        write_whole(self.path / "summary.json", json_text(summary, indent=2) + "\n")
        self._remove(*(self.path / "updates").iterdir(), self.path / "checkpoint.safetensors")

    def start_over(self) -> None:
        """Remove what a server left that was stopped before the run began.

        Raises:
            RunFolderError: the run had begun: its journal has events.
        """
        check_nothing_lost(self.path)
        self._remove(*(self.path / "updates").iterdir(), self.journal)

    def close(self) -> None:
        """Let another server have the folder."""
        self._lock.release()


def _locked(path: Path) -> FolderLock:
    try:
        path.mkdir(parents=True, exist_ok=True)
        return FolderLock(path)
    except BlockingIOError:
        raise RunFolderError(
            f"another server is running {path}; wait for it, stop it, or choose another folder"
        ) from None
    except OSError as error:
        raise RunFolderError(f"{path} cannot be made: {error.strerror}") from None
