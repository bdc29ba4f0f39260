"""Runs in Weights & Biases: settings as config, metrics by version; report and models at last."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedcompass.errors import MissingExtra, SettingsError
from fedcompass.report.tracking.followed_run import OpenTracker, Status
from fedcompass.vocabulary import Seconds

__all__ = ["WandbTracker", "usual_project", "wandb_opener"]

_STEP = "version"  # what metrics are drawn over: an evaluation may come after later merges
_EXIT_CODES: dict[Status, int] = {"finished": 0, "stopped": 255, "failed": 1}


def usual_project() -> str:
    """$WANDB_PROJECT, else fedcompass."""
    return os.environ.get("WANDB_PROJECT") or "fedcompass"


def wandb_opener(project: str) -> OpenTracker:
    """Logs runs to a project; with `WANDB_MODE=offline` to the folder wandb/ alone.

    Raises:
        MissingExtra: wandb is not installed.
        SettingsError: nobody is logged in, so that wandb would ask for a key.
    """
    try:
        import wandb
    except ImportError:
        raise MissingExtra("wandb", "wandb", "--wandb") from None
    os.environ.setdefault(
        "WANDB_ERROR_REPORTING", "false"
    )  # nothing is sent that was not asked for
    mode = os.environ.get("WANDB_MODE", "online")
    if mode not in ("offline", "disabled") and wandb.api.api_key is None:
        raise SettingsError(
            "--wandb needs a login; run `wandb login`, or set WANDB_MODE=offline and send the runs "
            "later by `wandb sync`"
        )
    return partial(WandbTracker, wandb, project)


class WandbTracker:
    """One run; several may be open in one process."""

    keeps_files = True

    def __init__(self, wandb: Any, project: str, name: str) -> None:
        self._wandb = wandb
        quiet = wandb.Settings(silent=True, console="off", disable_git=True, save_code=False)
        self._run = wandb.init(project=project, name=name, settings=quiet, reinit="create_new")
        self._run.define_metric(_STEP)
        self._run.define_metric("*", step_metric=_STEP)

    def settings(self, values: Mapping[str, Any]) -> None:
        """Log the settings as config."""
        self._run.config.update(dict(values))

    def metrics(self, values: Mapping[str, float], *, step: int, at: Seconds) -> None:
        """Log one point for each metric."""
        self._run.log({**values, _STEP: step, "time": at})

    def flush(self) -> None:
        """Nothing is kept back: wandb sends by itself."""

    def files(self, paths: Sequence[Path]) -> None:
        """Log the files as one artifact."""
        artifact = self._wandb.Artifact(f"run-{self._run.id}", type="run")
        for path in paths:
            artifact.add_file(str(path))
        self._run.log_artifact(artifact)

    def close(self, summary: Mapping[str, float], status: Status) -> None:
        """Log the summary and end the run."""
        self._run.summary.update(dict(summary))
        self._run.finish(exit_code=_EXIT_CODES[status])
