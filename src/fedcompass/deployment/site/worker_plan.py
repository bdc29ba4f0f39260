"""What it takes to start a site's worker; no torch here, that is the worker's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcompass.deployment.supervision import Program

__all__ = ["SETTINGS_VARIABLE", "WorkerPlan"]

SETTINGS_VARIABLE = "FEDCOMPASS_SITE_SETTINGS"
"""Environment variable with the site's settings as JSON: a command line is for all to see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """A worker to run.

    app: the user's app.py.
    socket: where it listens, in a folder for this user alone.
    name: the site's.
    log: where its output goes.
    data: the folder with the site's data.
    device: what torch calls it.
    threads: of torch; None leaves it to torch.
    settings: the site's own, handed to `trainer(site)`; JSON values.
    """

    app: Path
    socket: Path
    name: str
    log: Path
    data: Path | None = None
    device: str = "cpu"
    threads: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def program(self) -> Program:
        """The process to start."""
        arguments = ["--app", str(self.app), "--socket", str(self.socket), "--name", self.name]
        arguments += ["--device", self.device]
        if self.data is not None:
            arguments += ["--data", str(self.data)]
        if self.threads is not None:
            arguments += ["--threads", str(self.threads)]
        return Program(
            f"worker of {self.name}",
            "fedcompass.deployment.site.site_worker",
            self.log,
            arguments,
            {SETTINGS_VARIABLE: json.dumps(dict(self.settings))},
        )
