"""What it takes to start a site's worker; no torch here, that is the worker's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.supervision import Program

__all__ = ["SETTINGS_VARIABLE", "WorkerPlan", "plan_of"]

SETTINGS_VARIABLE = "FEDCOMPASS_SITE_SETTINGS"
"""Environment variable with the site's settings as JSON: a command line is for all to see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """A worker to run.

    app: the user's app.py.
    name: the site's.
    log: where its output goes.
    data: the folder with the site's data.
    device: what torch calls it.
    threads: of torch; None leaves it to torch.
    settings: the site's own, handed to `trainer(site)`; JSON values.
    """

    app: Path
    name: str
    log: Path
    data: Path | None = None
    device: str = "cpu"
    threads: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def program(self) -> Program:
        """The process to start."""
        arguments = ["--app", str(self.app), "--name", self.name, "--device", self.device]
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


def plan_of(site: SiteFolder) -> WorkerPlan:
    """The worker of a site, as its site.toml says."""
    settings = site.settings
    return WorkerPlan(
        app=site.app,
        name=settings.name,
        log=site.state / "worker.log",
        data=site.data,
        device=settings.device,
        threads=settings.threads,
        settings=settings.settings,
    )
