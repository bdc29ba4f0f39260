"""A site that is a SuperNode alone: its ClientApp answers by itself, without a worker."""

from pathlib import Path

from fedcompass.deployment.flower_engine.supernode import supernode_program
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.supervision import Child


class LoneSuperNode:
    """Used like a `RunningSite`."""

    def __init__(self, site: SiteFolder) -> None:
        self._child = Child(
            supernode_program(
                site.settings.name,
                site.settings.server,
                site.state,
                site.state / "worker.sock",
                authority=site.authority,
                key=site.flower_key,
                client_app=site.settings.client_app,
                idle_seconds=site.settings.idle_seconds,
            ),
            restarts=1000,
            longest_pause=5.0,
        )

    @property
    def children(self) -> dict[str, int | None]:
        return {"supernode": self._child.pid}

    @property
    def log(self) -> Path:
        return self._child.program.log

    def start(self) -> None:
        self._child.start()

    def restart_dead(self) -> None:
        self._child.restart_if_dead()

    def stop(self) -> None:
        self._child.stop()
