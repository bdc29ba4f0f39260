"""`runs/NAME/`: everything about a run in files that outlive it.

experiment.toml     the complete settings
journal.jsonl       every event and command
metrics.jsonl       one line per evaluation
checkpoint.safetensors   where an unfinished run can be resumed
summary.json        what came out; written last, so its presence means "finished"
final.safetensors, best.safetensors    the model at the end and at its best
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w
from torch import Tensor

from fedcompass.errors import RunFolderError
from fedcompass.experiment import Experiment
from fedcompass.finite_json import json_text
from fedcompass.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fedcompass.runs.files import FolderLock, write_whole
from fedcompass.simulation.result import Result, make_folder

__all__ = ["RunFolder"]


class RunFolder:
    """One run's files, from `create` or `resume`; a folder is never overwritten unasked."""

    def __init__(self, path: Path, experiment: Experiment) -> None:
        self.path = path
        self.experiment = experiment
        self._metric_lines = 0  # written by this process

    @classmethod
    def create(cls, path: Path, experiment: Experiment, *, overwrite: bool = False) -> "RunFolder":
        """Start a run's folder.

        Raises:
            RunFolderError: there is something at the path already, or it cannot be made.
        """
        if path.exists():
            if not overwrite:
                raise RunFolderError(
                    f"{path} exists already. Choose another name, resume it, or overwrite it "
                    "(--name, --resume, --overwrite)"
                )
            _remove_run(path)
        make_folder(path)
        folder = cls(path, experiment)
        folder.set_experiment(experiment)
        return folder

    @classmethod
    def resume(cls, path: Path) -> "RunFolder":
        """Open an unfinished run's folder.

        Raises:
            RunFolderError: it is not a run's, or the run is finished.
        """
        _check_is_run(path)
        folder = cls(path, Experiment.from_toml(path / "experiment.toml"))
        if not folder.journal.is_file():
            raise RunFolderError(f"{path} has no journal: nothing was begun there to resume")
        folder.check_unfinished()
        return folder

    def set_experiment(self, experiment: Experiment) -> None:
        """Write down another experiment than the folder was made for; nothing has begun yet."""
        self.experiment = experiment
        write_whole(self.path / "experiment.toml", tomli_w.dumps(experiment.to_record()))

    def remove_if_not_begun(self) -> None:
        """Leave nothing behind of a run that could not begin."""
        if not self.journal.exists():
            shutil.rmtree(self.path)

    def check_unfinished(self) -> None:
        """Refuse to go on with a run that is over."""
        if (self.path / "summary.json").exists():
            raise RunFolderError(
                f"{self.path} is finished; see its summary.json, or give a new name"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from running the same folder; a process that dies lets go.

        Raises:
            RunFolderError: another one is running it.
        """
        try:
            lock = FolderLock(self.path)
        except BlockingIOError:
            raise RunFolderError(
                f"another process is running {self.path}; wait for it, or stop it first"
            ) from None
        with lock:
            yield

    @property
    def journal(self) -> Path:
        """Where the journal is."""
        return self.path / "journal.jsonl"

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is one; `simulate` makes the first before anything happens."""
        return (self.path / "checkpoint.safetensors").exists()

    def checkpoint(self) -> Checkpoint | None:
        """The latest checkpoint, None if there is none."""
        path = self.path / "checkpoint.safetensors"
        return load_checkpoint(path) if self.has_checkpoint else None

    def save_checkpoint(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Replace the checkpoint."""
        save_checkpoint(self.path / "checkpoint.safetensors", tensors, facts)

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Append the rows that are not in the file yet; the first time, write it anew."""
        lines = [json_text(row) + "\n" for row in rows[self._metric_lines :]]
        mode = "a" if self._metric_lines else "w"
        with (self.path / "metrics.jsonl").open(mode, encoding="utf-8") as file:
            file.writelines(lines)
        self._metric_lines = len(rows)

    def finish(self, result: Result) -> None:
        """Write what came out; the run can no longer be resumed, nor need it be."""
        self.write_metrics(result.curve)
        result.summary["journal_bytes"] = self.journal.stat().st_size  # to tell if it is cut later
        result.write(self.path)
        (self.path / "checkpoint.safetensors").unlink(missing_ok=True)


_FILES = {
    "experiment.toml",
    "journal.jsonl",
    "metrics.jsonl",
    "clients.json",
    "summary.json",
    "checkpoint.safetensors",
    "final.safetensors",
    "best.safetensors",
    "report.html",  # `fedcompass report` puts it there
}
"""What a run writes: all that may be there when a folder is overwritten."""


def _remove_run(path: Path) -> None:
    """Remove a run's folder if it holds a run, nothing else, and nobody is running it.

    Raises:
        RunFolderError: otherwise; nothing was removed.
    """
    _check_is_run(path)
    foreign = sorted(entry.name for entry in path.iterdir() if not _is_of_a_run(entry.name))
    if foreign or path.is_symlink():
        raise RunFolderError(
            f"{path} is not overwritten: it also holds {', '.join(foreign[:3]) or 'a link'}, "
            "which no run wrote; choose another name"
        )
    with RunFolder(path, Experiment()).locked():
        shutil.rmtree(path)


def _is_of_a_run(name: str) -> bool:
    """Whether a file's name is one of a run's, or that of one half written (`.NAME.…`)."""
    return name in _FILES or any(name.startswith(f".{known}.") for known in _FILES)


def _check_is_run(path: Path) -> None:
    if not (path / "experiment.toml").is_file():
        raise RunFolderError(f"{path} is not a run's folder: it has no experiment.toml")
