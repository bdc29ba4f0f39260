"""A site's process beside this one, started again when it dies: of the demo, and of tests."""

import signal
from pathlib import Path

from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.site.site_process import site_program, worker_is_up
from fedcompass.deployment.supervision import Child

__all__ = ["RunningSite"]


class RunningSite:
    """A site's process. Call `restart_dead` often, and `stop` it whatever happens."""

    def __init__(self, site: SiteFolder) -> None:
        self.site = site
        self._child = Child(site_program(site))

    @property
    def children(self) -> dict[str, int | None]:
        """The process ids of the site and its worker, by name."""
        return {"site": self._child.pid, "worker": _child_of(self._child.pid)}

    @property
    def ready(self) -> bool:
        """Whether its worker has loaded model and data."""
        return worker_is_up(self.site)

    @property
    def has_left(self) -> bool:
        """Whether it has ended in order: its privacy budget is spent."""
        return self._child.exit_code == 0

    def start(self) -> None:
        """Start it."""
        self._child.start()

    def restart_dead(self) -> bool:
        """Start it again if it has died; True if this call did. One that has left stays away."""
        return not self.has_left and self._child.restart_if_dead()

    def ask_to_stop(self) -> None:
        """Have it begin to end, without waiting: many sites stop sooner so."""
        self._child.kill(signal.SIGTERM)

    def stop(self) -> None:
        """End it, and its worker with it."""
        self._child.stop()


def _child_of(pid: int | None) -> int | None:
    """The process that another one has started; None: none."""
    if pid is None:
        return None
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return None
    return int(found[0]) if found else None
