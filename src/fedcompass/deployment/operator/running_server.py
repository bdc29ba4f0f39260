"""`fedcompass deploy server`: a SuperLink and a ServerApp, kept running until the run is over.

Whichever of the two dies is started again and the run resumed; what was accepted is on disk.
"""

from pathlib import Path
from time import monotonic, sleep

from fedcompass.deployment.flower_engine.control import Control, Node, read_public_key
from fedcompass.deployment.flower_engine.flower_project import flower_app_bundle
from fedcompass.deployment.flower_engine.server_app import Assignment
from fedcompass.deployment.flower_engine.server_process import Outcome, read_outcome, server_program
from fedcompass.deployment.flower_engine.superlink import SuperLinkFiles, superlink_program
from fedcompass.deployment.operator.certificates import check_dates
from fedcompass.deployment.operator.disk_room import lack_of_room, tell_audit
from fedcompass.deployment.project import RENEW, ServerProject
from fedcompass.deployment.supervision import Child
from fedcompass.errors import ProcessFailed, ProjectError, RunFolderError
from fedcompass.runs.files import FolderLock
from fedcompass.runs.folder import RunFolder
from fedcompass.vocabulary import Seconds

__all__ = ["RunningServer"]

_SHORT: Seconds = 30.0  # a ServerApp that lives longer than this has recovered
_STOP: Seconds = 2.0  # the SuperLink waits for idle connections; its database can be cut off


class RunningServer:
    """One run of a federation. Make it, call `tend` often, and `stop` it whatever happens.

    Args:
        project: the server's folder.
        run: the run folder.
        resume: go on with the run that is there.
        restarts: how many deaths in a row are forgiven.
    """

    def __init__(
        self, project: ServerProject, run: Path, *, resume: bool = False, restarts: int = 10
    ) -> None:
        self.project, self.run = project, run
        self._resume = resume
        self._restarts = self._restarts_left = restarts
        self.restarted = 0  # how often something died and was started again
        self._files = SuperLinkFiles(project.secrets)
        self._superlink: Child | None = None
        self._server_app: Child | None = None
        self._control: Control | None = None
        self._app_started: Seconds = 0.0
        self._lock: FolderLock | None = None  # held from start to stop; a process that dies lets go

    @property
    def address(self) -> str:
        """Where the processes of this machine reach the SuperLink."""
        return self.project.network.own_address

    @property
    def children(self) -> dict[str, int | None]:
        """The process ids, by name."""
        both = {"superlink": self._superlink, "server_app": self._server_app}
        return {name: child.pid for name, child in both.items() if child is not None}

    def start(self) -> None:
        """Start both processes.

        Raises:
            ProjectError: a server is running already, the folder is not safe, has no sites, or a
                certificate that sites would refuse.
            RunFolderError: there is a run already, or none to resume, or no room on the disk.
            ProcessFailed: the SuperLink did not come up.
        """
        self._take_folder()
        self.project.check_secrets()
        if not self.project.public_keys() and not self.project.network.insecure:
            raise ProjectError(
                f"{self.project.folder}/keys has no sites' keys; "
                "add one: fedcompass deploy init --site NAME"
            )
        _check_run(self.run, self._resume)
        self._check_certificate()
        self._make_state()
        full = lack_of_room(self.project.state, self.run)
        if full is not None:
            raise RunFolderError(full)
        self._start_superlink()
        self._start_app()

    def go_on_with(self, project: ServerProject, run: Path) -> None:
        """Begin another run with the sites that are connected, once one is over.

        Args:
            project: the same folder, read again.
            run: a new run folder.
        """
        _check_run(run, resume=False)
        self.project, self.run, self._resume = project, run, False
        if self._server_app is not None:
            self._server_app.stop()
        self._start_app()

    def tend(self) -> Outcome | None:
        """Restart what has died; how the run ended, None while it goes on.

        A full disk ends it in order: the run can be resumed.

        Raises:
            ProcessFailed: something died too often in a row.
        """
        assert self._superlink is not None
        assert self._server_app is not None
        full = lack_of_room(self.project.state, self.run)
        if full is not None and not RunFolder(self.run).finished:
            self.stop()  # in order: what was accepted is in the run folder
            tell_audit(self.run, full)
            return Outcome(full, again=False)
        if self._superlink.running and self._server_app.running:
            return None
        if RunFolder(self.run).finished:
            return Outcome(None, again=False)  # whatever died on the way out
        if not self._superlink.running:
            self._check_certificate()
            self._forgive(self._superlink)
            self._server_app.stop()
            self._start_superlink()
            self._start_app()
            return None
        outcome = read_outcome(self.project.state)
        if not outcome.again:
            return outcome
        self._forgive(self._server_app)
        self._start_app()
        return None

    def nodes(self) -> list[Node]:
        """The registered sites and whether they are connected; empty while it restarts."""
        try:
            return [] if self._control is None else self._control.nodes()
        except Exception:
            return []

    def stop(self) -> None:
        """End both processes; the run can be resumed unless it is over."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._server_app is not None:
            self._server_app.stop()
        if self._superlink is not None:
            self._superlink.stop(_STOP)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take_folder(self) -> None:
        """Keep other servers from this folder: they would share a port, a database and logs.

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
        if not self.project.network.insecure:
            check_dates(self.project.secrets / "server.pem", RENEW)

    def _start_superlink(self) -> None:
        network = self.project.network
        program = superlink_program(
            self._files,
            network.listen_host,
            network.port,
            self.project.state,
            insecure=network.insecure,
        )
        child = self._superlink = Child(program)
        child.start()
        authority = None if network.insecure else self._files.authority
        token = self._files.token.read_text(encoding="ascii").strip()
        if self._control is not None:
            self._control.close()
        self._control = Control(self.address, token, authority)
        try:
            self._control.wait_until_ready(lambda: child.running)
        except ProcessFailed:
            raise child.failure("did not come up") from None
        if not network.insecure:
            keys = self.project.public_keys()
            self._control.register({name: read_public_key(path) for name, path in keys.items()})

    def _start_app(self) -> None:
        assert self._control is not None
        resume = self._resume or (self.run / "deployment.toml").exists()
        network = self.project.network
        program = server_program(
            self.address,
            None if network.insecure else self._files.authority,
            self._files.executor_secret,
            self._control.start_run(flower_app_bundle()),
            Assignment(self.project.folder, self.run, resume),
            self.project.state,
        )
        self._server_app = Child(program)
        self._server_app.start()
        self._app_started = monotonic()

    def _forgive(self, child: Child) -> None:
        """Count a death; wait a little longer after each in a row."""
        if monotonic() - self._app_started > _SHORT:
            self._restarts_left = self._restarts
        if self._restarts_left == 0:
            raise child.failure(f"died {self._restarts + 1} times in a row")
        sleep(min(0.2 * 2 ** (self._restarts - self._restarts_left), 10.0))
        self._restarts_left -= 1
        self.restarted += 1


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
