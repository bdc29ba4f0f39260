"""`updates/`: accepted updates that the checkpoint does not cover yet, one file each.

`TASK.payload` is the payload that the site sent, moved here as it was, with one line of JSON after
it: the facts that tell whose it is, and the payload's SHA-256. `TASK.safetensors` has the tensors
of an update that was never a file.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedcompass.aggregation import Payload
from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.aggregation.saved_tensors import named_state, restored_state
from fedcompass.coordinator import Update
from fedcompass.deployment.wire.payloads import PayloadFile, read_payload
from fedcompass.errors import CheckpointError, LayoutMismatch, RunFolderError
from fedcompass.runs.checkpoint import load_checkpoint, save_checkpoint
from fedcompass.runs.files import append_whole, move, replacing
from fedcompass.runs.folder import RunFolder
from fedcompass.training.local import change_or_model
from fedcompass.vocabulary import TaskId

__all__ = ["AcceptedUpdates"]

_MOST_FACTS = 1 << 14  # bytes
_PIECE = 1 << 20


class AcceptedUpdates:
    """A run's updates on disk."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._path = folder.path / "updates"
        try:
            self._path.mkdir(exist_ok=True)
            self.count = sum(1 for _ in self._path.iterdir())
        except OSError as error:
            raise RunFolderError(f"{self._path} cannot be made: {error.strerror}") from None

    def keep(self, update: Update, run: str, file: PayloadFile | None = None) -> None:
        """Put an update of the run of that name on disk, before it is accepted.

        `file` is what it was read from, if that is a file: it is moved here.

        Raises:
            CheckpointError: it cannot be written; nothing was accepted.
        """
        facts = _facts_of(update, run)
        if file is None:
            assert update.tensors is not None  # what its site keeps is not kept here
            tensors = named_state("update", update.tensors)
            save_checkpoint(self._tensors_of(update.task), tensors, facts)
        else:
            self._take_over(self._payload_of(update.task), file, facts)
        self.count += 1

    def _take_over(self, path: Path, file: PayloadFile, facts: Mapping[str, Any]) -> None:
        line = json.dumps({**facts, "form": file.form, "digest": file.digest})
        try:
            with replacing(path) as beside:
                move(file.path, beside)
                with beside.open("ab") as grown:
                    append_whole(grown.fileno(), f"\n{line}\n".encode())
        except OSError as error:
            raise CheckpointError(
                f"{path} could not be written: {error}. Nothing was accepted; free some space, "
                "then resume."
            ) from None

    def tensors(
        self, update: Update, run: str, layout: Layout, start: FlatState, payload: Payload
    ) -> FlatState:
        """The tensors of an update that was accepted after the last checkpoint.

        Raises:
            CheckpointError: they are missing, damaged, or those of another update.
        """
        path, facts = self._payload_of(update.task), _facts_of(update, run)
        if not path.exists():
            path = self._tensors_of(update.task)
            saved = load_checkpoint(path)
            _check_facts(path, {**facts, **saved.facts}, facts)  # one of earlier versions has fewer
            return restored_state(saved.tensors, "update", layout.empty())
        size, found = _facts_after(path)
        _check_facts(path, found, facts)
        _check_digest(path, size, found["digest"])
        try:
            end = read_payload(path, layout, str(found["form"]), start, size)
        except LayoutMismatch as error:
            raise CheckpointError(f"{path} is damaged: {error}; restore a backup") from None
        return change_or_model(payload, start, end, out=end)

    def drop(self) -> None:
        """Remove all updates: the checkpoint covers them, or they were never accepted."""
        self._folder.remove(*self._path.iterdir())
        self.count = 0

    def _tensors_of(self, task: TaskId) -> Path:
        return self._path / f"{task}.safetensors"

    def _payload_of(self, task: TaskId) -> Path:
        return self._path / f"{task}.payload"


def _facts_of(update: Update, run: str) -> dict[str, Any]:
    """What tells an update of this run from every other."""
    return {
        "run": run,
        "client": update.client,
        "task": update.task,
        "version": update.version,
        "steps_done": update.steps_done,
    }


def _check_facts(path: Path, found: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    for name, value in facts.items():
        if found.get(name) != value:
            raise CheckpointError(
                f"{path} holds another update: its {name} is {found.get(name)!r}, the "
                f"journal has {value!r}; restore the run's folder from a backup"
            )


def _facts_after(path: Path) -> tuple[int, dict[str, Any]]:
    """The length of a file's payload, and the facts after it."""
    with path.open("rb") as file:
        whole = file.seek(0, os.SEEK_END)
        file.seek(max(0, whole - _MOST_FACTS))
        end = file.read()
    text = end[:-1].rpartition(b"\n")[2]
    with suppress(ValueError):
        found = json.loads(text)
        if end.endswith(b"\n") and isinstance(found, dict) and {"form", "digest"} <= found.keys():
            return whole - len(text) - 2, found
    raise CheckpointError(f"{path} is damaged at its end; restore it from a backup")


def _check_digest(path: Path, size: int, digest: object) -> None:
    found = hashlib.sha256()
    with path.open("rb") as file:
        for begin in range(0, size, _PIECE):
            found.update(file.read(min(_PIECE, size - begin)))
    if found.hexdigest() != digest:
        raise CheckpointError(
            f"{path} is damaged: its checksum is {str(digest)[:64]}, its content gives "
            f"{found.hexdigest()}; restore it from a backup"
        )
