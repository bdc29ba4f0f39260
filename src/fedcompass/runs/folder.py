"""A run's folder: everything about a run in files that outlive it.

journal.jsonl            every event and command
metrics.jsonl            one line per evaluation
checkpoint.safetensors   where an unfinished run can be resumed; the first stands before any event
summary.json             what came out; written last, so its presence means "finished"
final.safetensors, best.safetensors    the model at the end and at its best

Of a simulation also experiment.toml (the complete settings) and clients.json; of a federation
deployment.toml (the server's settings), audit.jsonl, updates/ and readmit/.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from torch import Tensor

from fedcompass.errors import RunFolderError
from fedcompass.finite_json import json_text
from fedcompass.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint, save_model
from fedcompass.runs.curve import Row
from fedcompass.runs.files import FolderLock, LineFile, make_folder, write_whole
from fedcompass.runs.journal import FileJournal, holds_events

__all__ = ["RunFolder"]


class RunFolder:
    """One run's files, which both drivers write; `lock` it while a run goes on there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "journal.jsonl"
        self.metrics = path / "metrics.jsonl"
        self._checkpoint = path / "checkpoint.safetensors"
        self._summary = path / "summary.json"
        self._metrics: LineFile | None = None  # once this process has written it
        self._metric_lines = 0

    @property
    def begun(self) -> bool:
        """Whether anything can have happened: there is a checkpoint."""
        return self._checkpoint.exists()

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        return self._summary.exists()

    def make(self, *, exist_ok: bool = False) -> None:
        """Make the folder and those above it, or say why that cannot be."""
        make_folder(self.path, exist_ok=exist_ok)

    def lock(self) -> FolderLock:
        """Keep other processes from running the same folder.

        Raises:
            RunFolderError: another one is running it.
        """
        try:
            return FolderLock(self.path)
        except BlockingIOError:
            raise RunFolderError(
                f"another process is running {self.path}; wait for it, stop it, or choose another "
                "folder"
            ) from None

    def check_unfinished(self) -> None:
        """Refuse to go on with a run that is over."""
        if self.finished:
            raise RunFolderError(
                f"{self.path} is finished; see its summary.json, or choose another folder"
            )

    def check_nothing_lost(self) -> None:
        """Refuse to begin a run anew where one had begun and only its checkpoint is gone.

        Raises:
            RunFolderError: the folder's journal has events.
            JournalError: it is damaged.
        """
        if holds_events(self.journal):
            raise RunFolderError(
                f"{self.path} has events in its journal but no checkpoint.safetensors to resume "
                "from; restore that from a backup, or begin a new run in another folder"
            )

    def write_settings(self, name: str, settings: Mapping[str, Any]) -> None:
        """Write down all settings as TOML."""
        write_whole(self.path / name, tomli_w.dumps(settings))

    def new_journal(self, header: dict[str, Any]) -> FileJournal:
        """Begin the journal; one of a run that was stopped before its first event is replaced.

        Raises:
            RunFolderError: the run had begun, or the folder cannot be written to.
        """
        self.check_nothing_lost()
        self.remove(self.journal)
        return FileJournal(self.journal, header, durable=True)

    def checkpoint(self) -> Checkpoint:
        """The latest checkpoint."""
        return load_checkpoint(self._checkpoint)

    def save_checkpoint(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Replace the checkpoint.

        Raises:
            CheckpointError: it cannot be written; the one before is untouched.
        """
        save_checkpoint(self._checkpoint, tensors, facts)

    def write_metrics(self, rows: list[Row]) -> None:
        """Append the rows that are not in the file yet; the first time, write it anew.

        Raises:
            RunFolderError: it cannot be written.
        """
        if self._metrics is None:
            write_whole(self.metrics, "".join(json_text(row) + "\n" for row in rows))
            self._metrics = LineFile(self.metrics)
        else:
            self._metrics.append(rows[self._metric_lines :])
        self._metric_lines = len(rows)

    def save_model(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Write a model as tensors by name, as `load_state_dict` takes them.

        Raises:
            CheckpointError: it cannot be written.
        """
        save_model(self.path / f"{name}.safetensors", tensors)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write what came out; the run can no longer be resumed, nor need it be."""
        write_whole(self._summary, json_text(dict(summary), indent=2) + "\n")
        self.remove(self._checkpoint)

    def remove(self, *paths: Path) -> None:
        """Remove files, if they are there."""
        try:
            for path in paths:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.path} cannot be written to: {error.strerror}") from None

    def remove_if_not_begun(self) -> bool:
        """Leave nothing behind of a run that could not begin; says whether it could not."""
        if self.journal.exists():
            return False
        shutil.rmtree(self.path)
        return True
