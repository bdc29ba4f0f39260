"""The Flower ServerApp: `serve` on a Grid. What to serve comes from the process that started it."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fedcompass.deployment.flower_engine.flower_transport import FlowerTransport
from fedcompass.errors import MissingExtra, ProjectError

try:
    from flwr.serverapp import ServerApp
except ImportError:
    raise MissingExtra("flwr", "deploy", "a deployment") from None

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

__all__ = ["Assignment", "app", "main"]

_ASSIGNMENT = "FEDCOMPASS_ASSIGNMENT"

_SLACK = 1 << 20  # bytes for all that is not arrays; and a site may send a little too much

app = ServerApp()


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a ServerApp is to serve.

    project: the server's project folder.
    run: the run folder.
    resume: go on with the run that is there.
    """

    project: Path
    run: Path
    resume: bool

    def environment(self) -> dict[str, str]:
        """How to hand it to a process; nothing of it goes over the network."""
        record = {"project": str(self.project), "run": str(self.run), "resume": self.resume}
        return {_ASSIGNMENT: json.dumps(record)}

    @classmethod
    def given(cls) -> Self:
        """What this process was handed.

        Raises:
            ProjectError: nothing; the ServerApp was started by somebody else.
        """
        text = os.environ.get(_ASSIGNMENT)
        if text is None:
            raise ProjectError(
                "this ServerApp does not know what to serve; start it by `fedcompass deploy server`"
            )
        record = json.loads(text)
        return cls(Path(record["project"]), Path(record["run"]), record["resume"])


@app.main()
def main(grid: "Grid", context: "Context") -> None:  # noqa: ARG001  # Flower gives both
    """Serve the assigned run until it ends."""
    from fedcompass.aggregation import Layout
    from fedcompass.deployment.app.app_file import load_app
    from fedcompass.deployment.server.project import ServerProject
    from fedcompass.deployment.server.serve import serve
    from fedcompass.deployment.wire.arrays import most_bytes

    assignment = Assignment.given()
    project = ServerProject(assignment.project)
    app_file = load_app(project.app)
    largest = most_bytes(Layout.of(app_file.model())) + _SLACK
    serve(
        project.federation,
        app_file,
        FlowerTransport(grid, 2 * largest),
        assignment.run,
        resume=assignment.resume,
    )
