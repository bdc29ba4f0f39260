"""The server's two processes: a SuperLink, and a ServerApp for one run at a time."""

from pathlib import Path

from fedcompass.deployment.flower_engine.control import Control, Node, read_public_key
from fedcompass.deployment.flower_engine.flower_project import flower_app_bundle
from fedcompass.deployment.flower_engine.server_app import Assignment
from fedcompass.deployment.flower_engine.server_process import (
    ServerExit,
    read_exit,
    server_program,
)
from fedcompass.deployment.flower_engine.superlink import SuperLinkFiles, superlink_program
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.supervision import Child
from fedcompass.errors import ProcessFailed
from fedcompass.vocabulary import Seconds

__all__ = ["ServerEngine"]

_STOP: Seconds = 2.0  # the SuperLink waits for idle connections; its database can be cut off


class ServerEngine:
    """Starts the two, says which died, and stops them.

    Args:
        project: the server's folder.
    """

    def __init__(self, project: ServerProject) -> None:
        self._project = project
        self._files = SuperLinkFiles(project.secrets, project.certificates)
        self._superlink: Child | None = None
        self._server_app: Child | None = None
        self._control: Control | None = None

    @property
    def children(self) -> dict[str, int | None]:
        """The process ids, by name."""
        both = {"superlink": self._superlink, "server_app": self._server_app}
        return {name: child.pid for name, child in both.items() if child is not None}

    @property
    def dead(self) -> Child | None:
        """The process that died; the SuperLink if both did."""
        both = (self._superlink, self._server_app)
        return next((child for child in both if child is not None and not child.running), None)

    def ended(self) -> ServerExit:
        """How the run ended, once a process died."""
        if self.dead is self._superlink:
            return ServerExit("the SuperLink died", again=True)
        return read_exit(self._project.state)

    def serve(self, run: Path, *, resume: bool) -> None:
        """Serve a run, in place of the one before; a SuperLink that is not there is started.

        Raises:
            ProcessFailed: the SuperLink did not come up.
        """
        if self._server_app is not None:
            self._server_app.stop()
        if self._superlink is None or not self._superlink.running:
            self._start_superlink()
        assert self._control is not None
        program = server_program(
            self._project.network.own_address,
            self._authority,
            self._files.executor_secret,
            self._control.start_run(flower_app_bundle()),
            Assignment(self._project.folder, run, resume),
            self._project.state,
        )
        self._server_app = Child(program)
        self._server_app.start()

    def nodes(self) -> list[Node]:
        """The registered sites and whether they are connected; empty while it restarts."""
        try:
            return [] if self._control is None else self._control.nodes()
        except Exception:
            return []

    def stop(self) -> None:
        """End both processes."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._server_app is not None:
            self._server_app.stop()
        if self._superlink is not None:
            self._superlink.stop(_STOP)

    @property
    def _authority(self) -> Path | None:
        return None if self._project.network.insecure else self._files.authority

    def _start_superlink(self) -> None:
        network = self._project.network
        program = superlink_program(
            self._files,
            network.listen_host,
            network.port,
            self._project.state,
            insecure=network.insecure,
        )
        child = self._superlink = Child(program)
        child.start()
        token = self._files.token.read_text(encoding="ascii").strip()
        if self._control is not None:
            self._control.close()
        self._control = Control(network.own_address, token, self._authority)
        try:
            self._control.wait_until_ready(lambda: child.running)
        except ProcessFailed:
            raise child.failure("did not come up") from None
        if not network.insecure:
            keys = self._project.public_keys()
            self._control.register({name: read_public_key(path) for name, path in keys.items()})
