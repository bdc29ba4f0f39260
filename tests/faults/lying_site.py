"""A site that speaks the wire as it should and lies in its answers; trains nothing, has no torch.

python -m tests.faults.lying_site FOLDER LIE
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.supervision import Child, Program, die_with_parent
from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.site_link import SiteLink

LIES: dict[str, Callable[[bytes], bytes]] = {
    "nan": lambda model: np.float32(np.nan).tobytes() + model[4:],
    "huge": lambda model: np.full(len(model) // 4, 3e38, np.float32).tobytes(),
    "ten_times_the_bytes": lambda model: model * 10,
    "half_the_bytes": lambda model: model[: len(model) // 2],
    "a_billion_steps": lambda model: model,
}


class LyingSite:
    """Used like a `RunningSite`."""

    def __init__(self, site: SiteFolder, lie: str) -> None:
        program = Program(
            f"site {site.settings.name}",
            "tests.faults.lying_site",
            site.state / "site.log",
            [str(site.folder), lie],
        )
        self._child = Child(program, restarts=1000, longest_pause=5.0)

    @property
    def children(self) -> dict[str, int | None]:
        return {"site": self._child.pid}

    def start(self) -> None:
        self._child.start()

    def restart_dead(self) -> bool:
        return self._child.restart_if_dead()

    def stop(self) -> None:
        self._child.stop()


async def _lie(site: SiteFolder, lie: str) -> None:
    async def train(task: pb.Task, model: Path, payload: Path) -> pb.Answer:
        payload.write_bytes(LIES[lie](model.read_bytes()))
        steps = 10**9 if lie == "a_billion_steps" else task.steps
        return pb.Answer(steps_done=steps, seconds=0.1, samples=40, loss=0.5)

    link = SiteLink(
        site.state / "wire",
        site.settings.server,
        site.identity,
        samples=40,
        layout=site.settings.settings["layout"],
        train=train,
        notice=print,
    )
    await link.run()


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(_lie(SiteFolder(Path(sys.argv[1])), sys.argv[2]))
