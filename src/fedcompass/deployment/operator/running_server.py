"""`fedcompass deploy server`: the server's process, kept running until the run is over.

If it dies it is started again and the run resumed; what was accepted is on disk.
"""

from pathlib import Path

from fedcompass.deployment.certificate_dates import check_dates
from fedcompass.deployment.server.disk_room import lack_of_room, tell_audit
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.server.server_process import ServerExit, read_exit, server_program
from fedcompass.deployment.supervision import Child
from fedcompass.errors import ProjectError, RunFolderError
from fedcompass.runs.files import FolderLock
from fedcompass.runs.folder import RunFolder
from fedcompass.vocabulary import Seconds

__all__ = ["RunningServer"]

_RECOVERED: Seconds = 30.0  # a server that lives longer than this has recovered
_LONGEST_PAUSE: Seconds = 10.0  # between two starts
_STOP: Seconds = 10.0  # for what is being written


class RunningServer:
    """One run of a federation. Make it, call `poll` often, and `stop` it whatever happens.

    Args:
        project: the server's folder.
        run: the run folder.
        resume: go on with the run that is there.
        restarts: so often in a row, at most.
    """

    def __init__(
        self, project: ServerProject, run: Path, *, resume: bool = False, restarts: int = 10
    ) -> None:
        self.project, self.run = project, run
        self._resume, self._restarts = resume, restarts
        self.restarted = 0  # how often it died and was started again
        self._child: Child | None = None
        self._lock: FolderLock | None = None  # held from start to stop; a process that dies lets go

    @property
    def children(self) -> dict[str, int | None]:
        """The process id, by name."""
        return {} if self._child is None else {"server": self._child.pid}

    def start(self) -> None:
        """Start the server.

        Raises:
            ProjectError: a server is running already, the folder is not safe, has no sites, or a
                certificate that sites would refuse.
            RunFolderError: there is a run already, or none to resume, or no room on the disk.
        """
        self._take_folder()
        self.project.check_secrets()
        if not self.project.site_names():
            raise ProjectError(
                f"{self.project.roster} lists no site; "
                f"add one: fedcompass deploy add-site {self.project.folder} NAME"
            )
        _check_run(self.run, self._resume)
        self._check_certificate()
        self._make_state()
        full = lack_of_room(self.project.state, self.run)
        if full is not None:
            raise RunFolderError(full)
        self._serve()

    def go_on_with(self, project: ServerProject, run: Path) -> None:
        """Begin another run with the same sites, once one is over; `project` was read again."""
        _check_run(run, resume=False)
        if self._child is not None:
            self._child.stop(_STOP)
        self.project, self.run = project, run
        self._serve()

    def poll(self) -> ServerExit | None:
        """Restart it if it has died; how the run ended, None while it goes on.

        A full disk ends it in order: the run can be resumed.

        Raises:
            ProcessFailed: it died too often in a row.
        """
        full = lack_of_room(self.project.state, self.run)
        if full is not None and not RunFolder(self.run).finished:
            self.stop()  # in order: what was accepted is in the run folder
            tell_audit(self.run, full)
            return ServerExit(full, again=False)
        if self._child is None:
            return None
        self._child.keep_log_small()
        if self._child.running:
            return None
        if RunFolder(self.run).finished:
            return ServerExit(None, again=False)  # whatever happened on the way out
        ended = read_exit(self.project)
        if not ended.again:
            return ended
        self._check_certificate()
        self.restarted += self._child.restart_if_dead()
        return None

    def stop(self) -> None:
        """End the server; the run can be resumed unless it is over."""
        if self._child is not None:
            self._child.stop(_STOP)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _serve(self) -> None:
        self._child = Child(
            server_program(self.project, self.run),
            restarts=self._restarts,
            longest_pause=_LONGEST_PAUSE,
            recovered_after=_RECOVERED,
        )
        self._child.start()

    def _take_folder(self) -> None:
        """Keep other servers from this folder: they would share a port and logs.

        Raises:
            ProjectError: one has it already.
        """
        folder = self.project.folder
        try:
            self._lock = FolderLock(folder) if self._lock is None else self._lock
        except BlockingIOError:
            raise ProjectError(
                f"a server is running already from {folder}; stop it, or look at it: "
                f"fedcompass deploy status {folder}"
            ) from None
        except OSError as error:
            raise ProjectError(f"{folder} cannot be used: {error.strerror}") from None

    def _make_state(self) -> None:
        state = self.project.state
        try:
            state.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ProjectError(f"{state} cannot be made: {error.strerror}") from None

    def _check_certificate(self) -> None:
        """Say at once what every site, and this machine, would refuse a minute later."""
        check_dates(self.project.identity.certificate, self.project.renew)


def _check_run(run: Path, resume: bool) -> None:
    """Say what is wrong with a run folder before anything is started."""
    folder = RunFolder(run)
    if folder.finished:
        raise RunFolderError(f"{run} is finished; see its summary.json, or choose another --run")
    if folder.begun and not resume:
        raise RunFolderError(f"{run} holds a run already; add --resume, or choose another --run")
    if not folder.begun:
        folder.check_nothing_lost()
    if resume and not (run / "deployment.toml").exists():
        raise RunFolderError(f"{run} has no run to resume; leave out --resume")
