"""A whole federation on this machine: a server's process, sites' processes and workers, mutual TLS.

A task's seconds beyond compute are those from one answer to the next, of a site that trains all
the time, less what its steps took: everything in between (update and journal on disk, merge,
checkpoint, the new model down, the worker, the answer up) is in them.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks.resident import resident
from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.operator.running_server import RunningServer
from fedcompass.deployment.operator.running_site import RunningSite
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.supervision import free_port
from fedcompass.runs.journal import read_journal

__all__ = ["FinishedRun", "federation", "resident_mb"]

_TENSORS = 20
_PATIENCE = 500.0  # seconds
_APP = """\
from functools import partial

import torch
from torch import nn

from fedcompass import Samples
from fedcompass.deployment import Site, Trainer


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ParameterList(torch.randn({part}) for _ in range({tensors}))


class Idle(Trainer):
    def train_step(self, model, optimizer, batch, generator):
        with torch.no_grad():
            model.parts[0][0] += 1.0
        return torch.zeros(())


def model() -> nn.Module:
    return Model()


def trainer(site: Site) -> Trainer:
    data = Samples(torch.zeros(8, 1), torch.zeros(8, dtype=torch.long))
    optimizer = partial(torch.optim.SGD, lr=0.1)
    return Idle(data=data, optimizer=optimizer)
"""


@dataclass
class FinishedRun:
    """A federation that has run."""

    run: Path
    peak_mb: dict[str, float]  # memory of the server, the first site and its worker

    def seconds_beyond_compute(self, *, warm: int) -> list[float]:
        """Of each task, those of the first few left out, from journal and reports."""
        last: dict[str, float] = {}
        found = []
        for record in self.updates():
            client, at = record["client"], record["at"]
            if client in last:
                found.append(at - last[client] - record["compute_seconds"])
            last[client] = at
        return found[warm - 1 :]

    def updates(self) -> list[dict[str, Any]]:
        """The accepted ones, as the journal has them."""
        records = (record for _, record in read_journal(self.run / "journal.jsonl"))
        return [record for record in records if record.get("event") == "UpdateArrived"]


@contextmanager
def federation(model_bytes: int, *, updates: int, sites: int = 1) -> Iterator[FinishedRun]:
    """Run a federation of sites that only move models, for so many global updates."""
    home = Path(tempfile.mkdtemp(prefix="fedcompass-"))
    running: list[RunningSite] = []
    server: RunningServer | None = None
    try:
        names = [f"site-{i + 1}" for i in range(sites)]
        project = home / "federation"
        address = f"127.0.0.1:{free_port()}"
        init_project(project, address, names)
        _write_app(project, address, names, model_bytes)
        record: dict[str, Any] = {
            "server": ServerProject(project).network.model_dump(),
            "federation": {
                "strategy": {"name": "fedavg", "steps": 1},
                "min_clients": sites,
                "max_updates": updates,
                "max_seconds": _PATIENCE,
            },
        }
        (project / "deployment.toml").write_text(tomli_w.dumps(record), encoding="utf-8")
        running = [RunningSite(SiteFolder(project / "sites" / name)) for name in names]
        for site in running:
            site.start()
        _until(lambda: all(site.ready for site in running))
        server = RunningServer(ServerProject(project), home / "run")
        server.start()
        made = FinishedRun(home / "run", {})
        while (ended := server.poll()) is None:
            for name, pid in {**server.children, **running[0].children}.items():
                peak = resident_mb(pid)
                made.peak_mb[name] = max(peak, made.peak_mb.get(name, 0.0))
            time.sleep(0.1)
        if ended.error is not None:
            raise SystemExit(f"the federation failed: {ended.error}")
        yield made
    finally:
        for site in running:
            site.ask_to_stop()
        for site in running:
            site.stop()
        if server is not None:
            server.stop()
        shutil.rmtree(home, ignore_errors=True)


def _write_app(project: Path, address: str, names: list[str], model_bytes: int) -> None:
    part = model_bytes // 4 // _TENSORS
    text = _APP.format(part=part, tensors=_TENSORS)
    (project / "app.py").write_text(text, encoding="utf-8")
    for name in names:
        folder = project / "sites" / name
        (folder / "app.py").write_text(text, encoding="utf-8")
        site = {"name": name, "server": address, "threads": 1}
        (folder / "site.toml").write_text(tomli_w.dumps(site), encoding="utf-8")


def _until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE
    while not is_so():
        if time.monotonic() > until:
            raise SystemExit("the sites did not come up")
        time.sleep(0.1)


def resident_mb(pid: int | None) -> float:
    """The most memory that a process ever had; 0 if it is gone."""
    if pid is None:
        return 0.0
    try:
        return resident("VmHWM", pid) / 2**20
    except OSError:
        return 0.0
