"""Runs in TensorBoard: one folder of event files per run."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from fedcompass.errors import MissingExtra, SettingsError
from fedcompass.report.tracking.followed_run import OpenTracker, Status
from fedcompass.vocabulary import Seconds

__all__ = ["TensorBoardTracker", "tensorboard_opener"]


def tensorboard_opener(root: Path) -> OpenTracker:
    """Writes runs below a folder, for `tensorboard --logdir ROOT`.

    Raises:
        MissingExtra: TensorBoard is not installed.
        SettingsError: the folder cannot be made.
    """
    try:
        from torch.utils import tensorboard  # noqa: F401  # says whether it is there
    except ImportError:
        raise MissingExtra("tensorboard", "tensorboard", "--tensorboard") from None
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"--tensorboard is {str(root)!r}, which cannot be made: {error.strerror}; "
            "give another folder"
        ) from None
    return partial(TensorBoardTracker, root)


class TensorBoardTracker:
    """One run's event files.

    A point's time is the tracker's start plus the run's own time, so that TensorBoard's RELATIVE
    axis shows the run's time. A run written to the same folder before is hidden, not mixed in.
    """

    keeps_files = False

    def __init__(self, root: Path, name: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(root / name), purge_step=0)
        self._settings: dict[str, Any] = {}
        self._began = time()

    def settings(self, values: Mapping[str, Any]) -> None:
        """Keep the settings for the table of runs, and show them as text."""
        self._settings = dict(values)
        lines = [f"| {key} | {value} |" for key, value in values.items()]
        if lines:
            table = "\n".join(["| setting | value |", "|---|---|", *lines])
            self._writer.add_text("settings", table, 0)

    def metrics(self, values: Mapping[str, float], *, step: int, at: Seconds) -> None:
        """Write one point for each metric."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step, walltime=self._began + at)

    def flush(self) -> None:
        """Write to disk."""
        self._writer.flush()

    def files(self, paths: Sequence[Path]) -> None:
        """Keep none: TensorBoard has no place for them."""

    def close(self, summary: Mapping[str, float], status: Status) -> None:
        """Put a run that is over into the table of runs (HPARAMS)."""
        if summary:
            self._writer.add_hparams(self._settings, dict(summary), run_name=".")
        self._writer.close()
