"""The folder of a simulated run: made for an experiment, and never overwritten unasked."""

import shutil
from pathlib import Path

from fedcompass.errors import RunFolderError
from fedcompass.experiment import Experiment, read_experiment, record_key
from fedcompass.runs.folder import RunFolder
from fedcompass.runs.origin import ORIGIN_FILE

__all__ = [
    "check_same_code",
    "create_run",
    "experiment_of",
    "is_run_of",
    "resume_run",
    "write_experiment",
]

_SETTINGS = "experiment.toml"
_FILES = {
    _SETTINGS,
    ORIGIN_FILE,
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


def create_run(path: Path, experiment: Experiment, *, overwrite: bool = False) -> RunFolder:
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
    folder = RunFolder(path)
    folder.make()
    write_experiment(folder, experiment)
    return folder


def resume_run(path: Path) -> RunFolder:
    """An unfinished run's folder.

    Raises:
        RunFolderError: it is not a run's, or the run is finished.
    """
    folder = RunFolder(path)
    experiment_of(folder)
    if not folder.journal.is_file():
        raise RunFolderError(f"{path} has no journal: nothing was begun there to resume")
    folder.check_unfinished()
    return folder


def experiment_of(folder: RunFolder) -> Experiment:
    """What a folder was made for.

    Raises:
        RunFolderError: it is not a run's.
        SettingsError: its settings are damaged.
    """
    _check_is_run(folder.path)
    return Experiment.from_toml(folder.path / _SETTINGS)


def check_same_code(folder: RunFolder, kept: Experiment) -> None:
    """Refuse to go on with a run whose user's own files have changed since it began.

    Raises:
        RunFolderError: naming them.
    """
    changed = kept.changed_code()
    if changed:
        files = sorted({name.partition(":")[0] for name in changed})
        raise RunFolderError(
            f"{folder.path} was begun with another {' and '.join(files)}, which has changed since "
            "(or is gone); put it back to resume, or start a new run"
        )


def is_run_of(folder: RunFolder, key: object, experiment: Experiment) -> bool:
    """Whether a run that was begun under a key is one of this experiment.

    An earlier version had fewer settings, and so another key for the same experiment: that of the
    folder's file as it stands.
    """
    if key == experiment.key():
        return True
    written = read_experiment(folder.path / _SETTINGS)
    return key == record_key(written) and Experiment(**written) == experiment


def write_experiment(folder: RunFolder, experiment: Experiment) -> None:
    """Write down what a folder is for; nothing has begun yet."""
    folder.write_settings(_SETTINGS, experiment.to_record())


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
    with RunFolder(path).lock():
        shutil.rmtree(path)


def _is_of_a_run(name: str) -> bool:
    """Whether a file's name is one of a run's, or that of one half written (`.NAME.…`)."""
    return name in _FILES or any(name.startswith(f".{known}.") for known in _FILES)


def _check_is_run(path: Path) -> None:
    if not (path / _SETTINGS).is_file():
        raise RunFolderError(f"{path} is not a run's folder: it has no {_SETTINGS}")
