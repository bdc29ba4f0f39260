"""`fedcompass deploy site`: a worker and a SuperNode, each started again when it dies."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

from fedcompass.deployment.flower_engine.supernode import supernode_program
from fedcompass.deployment.private_files import check_private
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.site.worker_plan import WorkerPlan
from fedcompass.deployment.site.worker_socket import MOST_PATH_BYTES
from fedcompass.deployment.supervision import Child
from fedcompass.errors import ProjectError
from fedcompass.runs.files import FolderLock
from fedcompass.vocabulary import Seconds

__all__ = ["RunningSite", "is_running"]

_RESTARTS = 1_000_000  # a site tries again for as long as it is asked to run
_LONGEST_PAUSE: Seconds = 30.0
_NOT_ADMITTED = "[code: 2004]"  # of Flower: the node is online already, or its key unknown
_NOT_ADMITTED_WORDS = (
    "the server still counts the old connection as alive (for up to a minute), or does not know "
    "this site's key; it tries again"
)


def is_running(site: SiteFolder) -> bool:
    """Whether some process has started this site and not stopped it."""
    try:
        FolderLock(site.state).release()
    except BlockingIOError:
        return True
    except OSError:  # never started, or another user's
        pass
    return False


class RunningSite:
    """A site's two processes. Call `restart_dead` often, and `stop` it whatever happens.

    Args:
        site: the folder the site was given.
    """

    def __init__(self, site: SiteFolder) -> None:
        self.site = site
        self.restarted: dict[str, int] = {"worker": 0, "supernode": 0}
        settings, state = site.settings, site.state
        self._short: Path | None = None  # made for the socket, removed at the end
        self._lock: FolderLock | None = None  # held from start to stop
        self.socket = socket = self._socket()
        plan = WorkerPlan(
            app=site.app,
            socket=socket,
            name=settings.name,
            log=state / "worker.log",
            data=site.data,
            device=settings.device,
            threads=settings.threads,
            settings=settings.settings,
        )
        supernode = supernode_program(
            settings.name,
            settings.server,
            state,
            socket,
            authority=site.authority,
            key=site.flower_key,
            client_app=settings.client_app,
            folder=site.folder,
            idle_seconds=settings.idle_seconds,
        )
        self._children = {
            "worker": Child(plan.program(), restarts=_RESTARTS, longest_pause=_LONGEST_PAUSE),
            "supernode": Child(supernode, restarts=_RESTARTS, longest_pause=_LONGEST_PAUSE),
        }

    def _socket(self) -> Path:
        """Where the worker listens: in the state folder, or elsewhere if that path is too long."""
        usual = self.site.state / "worker.sock"
        if len(os.fsencode(usual)) <= MOST_PATH_BYTES:
            return usual
        self._short = Path(tempfile.mkdtemp(prefix="fedcompass-"))  # for this user alone
        return self._short / "worker.sock"

    @property
    def children(self) -> dict[str, int | None]:
        """The process ids, by name."""
        return {name: child.pid for name, child in self._children.items()}

    @property
    def running(self) -> dict[str, bool]:
        """Which of the two run now."""
        return {name: child.running for name, child in self._children.items()}

    def log_of(self, name: str) -> Path:
        """A process's log."""
        return self._children[name].program.log

    def start(self) -> None:
        """Start both.

        Raises:
            ProjectError: the site's key can be read by others, or it is running already.
        """
        if self.site.flower_key is not None:
            check_private(self.site.flower_key)
        self.site.state.mkdir(mode=0o700, exist_ok=True)
        try:
            self._lock = FolderLock(self.site.state)
        except BlockingIOError:
            name, folder = self.site.settings.name, self.site.folder
            raise ProjectError(f"site {name} is running already from {folder}; stop it") from None
        for child in self._children.values():
            child.start()

    def restart_dead(self) -> list[str]:
        """Start again what has died; the names of those this call started."""
        again = [name for name, child in self._children.items() if child.restart_if_dead()]
        for name in again:
            self.restarted[name] += 1
        return again

    def last_error(self, name: str) -> str:
        """Why a process died, as far as its log says."""
        words = self._children[name].last_error
        if _NOT_ADMITTED in words:
            return _NOT_ADMITTED_WORDS
        return words or f"it said nothing; see {self.log_of(name)}"

    def drop_task(self) -> None:
        """Have the worker end its task now; it is started again and ready for another."""
        self._children["worker"].kill(signal.SIGTERM)

    def ask_to_stop(self) -> None:
        """Have both begin to end, without waiting: many sites stop sooner so."""
        for child in self._children.values():
            child.kill(signal.SIGTERM)

    def stop(self) -> None:
        """End both: the SuperNode first, so that the server hears of it."""
        for name in ("supernode", "worker"):
            self._children[name].stop()
        if self._short is not None:
            shutil.rmtree(self._short, ignore_errors=True)
        if self._lock is not None:
            self._lock.release()
