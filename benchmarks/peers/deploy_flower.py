"""Stock Flower over TLS: a SuperLink, a SuperNode, its FedAvg, and a client that moves arrays.

`python -m benchmarks.peers.deploy_flower BYTES ROUNDS` prints the seconds of each round. The client
loads torch, as every PyTorch project's does; Flower starts a process for each message.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.peers.papers import make_papers
from fedcompass.deployment.supervision import free_port

__all__ = ["seconds_per_round"]

_PATIENCE = 420.0  # seconds
_TENSORS = 20
_PROGRAMS = Path(sys.executable).parent
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
}
_PROJECT = """\
[project]
name = "moving"
version = "1.0.0"
dependencies = []

[tool.flwr.app]
publisher = "benchmark"

[tool.flwr.app.components]
serverapp = "moving.server_app:app"
clientapp = "moving.client_app:app"

[tool.flwr.app.config]
"""
_SERVER = """\
import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()
ended = []


def stamp(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    ended.append(time.time())
    return MetricRecord({{}})


@app.main()
def main(grid: Grid, context: Context) -> None:
    part = np.random.default_rng(0).standard_normal({part}, np.float32)
    arrays = ArrayRecord({{f"part{{i}}": Array(part) for i in range({tensors})}})
    strategy = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=1, min_evaluate_nodes=0, min_available_nodes=1
    )
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds={rounds}, evaluate_fn=stamp)
    Path({result!r}).write_text(json.dumps([b - a for a, b in zip(ended, ended[1:])]))
"""
_CLIENT = """\
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    state = message.content["arrays"].to_torch_state_dict()
    content = RecordDict(
        {"arrays": ArrayRecord(state), "metrics": MetricRecord({"num-examples": 1})}
    )
    return Message(content=content, reply_to=message)
"""


def seconds_per_round(model_bytes: int, rounds: int) -> list[float]:
    """Seconds of each round with one SuperNode, the first left out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = folder / "result.json"
        _write_project(folder / "project", model_bytes, rounds + 1, result)
        make_papers(folder)
        started: list[subprocess.Popen[bytes]] = []
        try:
            _run(folder, started)
            _until(result.exists, folder)
        finally:
            _stop(folder, started)
        seconds: list[float] = json.loads(result.read_text(encoding="utf-8"))
        return seconds[1:]


def _write_project(project: Path, model_bytes: int, rounds: int, result: Path) -> None:
    package = project / "moving"
    package.mkdir(parents=True)
    part = model_bytes // 4 // _TENSORS
    server = _SERVER.format(part=part, tensors=_TENSORS, rounds=rounds, result=str(result))
    (project / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
    (package / "__init__.py").touch()
    (package / "server_app.py").write_text(server, encoding="utf-8")
    (package / "client_app.py").write_text(_CLIENT, encoding="utf-8")


def _run(folder: Path, started: list[subprocess.Popen[bytes]]) -> None:
    home, port = folder / "home", free_port()
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\n'
        f'root-certificates = "{folder}/ca.crt"\n',
        encoding="utf-8",
    )
    secured = [f"--ssl-ca-certfile={folder}/ca.crt", f"--ssl-certfile={folder}/server.crt"]
    secured += [f"--ssl-keyfile={folder}/server.key", "--host", "127.0.0.1", "--port", str(port)]
    started.append(_start(folder, "flower-superlink", *secured))
    _until(lambda: "startup complete" in _log(folder, "flower-superlink"), folder)
    link = ["--root-certificates", f"{folder}/ca.crt", "--superlink", f"127.0.0.1:{port}"]
    started.append(_start(folder, "flower-supernode", *link, "--port", str(free_port())))
    asked = _start(folder, "flwr", "run", str(folder / "project"), "here")
    started.append(asked)
    if asked.wait(_PATIENCE) != 0:
        raise SystemExit(f"flwr run failed: {_log(folder, 'flwr')[-1500:]}")


def _environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(_PROGRAMS), os.environ["PATH"]])
    return {**os.environ, **_QUIET, "FLWR_HOME": str(folder / "home"), "PATH": path}


def _start(folder: Path, *command: str) -> "subprocess.Popen[bytes]":
    with (folder / f"{command[0]}.log").open("wb") as output:
        return subprocess.Popen(
            command, env=_environment(folder), stdout=output, stderr=subprocess.STDOUT, cwd=folder
        )


def _log(folder: Path, name: str) -> str:
    path = folder / f"{name}.log"
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _until(holds: Callable[[], bool], folder: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"Flower did not go on: {_log(folder, 'flower-superlink')[-3000:]}")
        time.sleep(0.1)


def _stop(folder: Path, started: list[subprocess.Popen[bytes]]) -> None:
    """End what was started, and what that has started: Flower gives its apps new sessions."""
    for process in started:
        process.terminate()
    for process in started:
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
    ours = f"\0FLWR_HOME={folder / 'home'}\0".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if ours in b"\0" + (path / "environ").read_bytes():
                os.kill(int(path.name), 9)
    for process in started:
        process.wait(10)


if __name__ == "__main__":
    print(json.dumps(seconds_per_round(int(sys.argv[1]), int(sys.argv[2]))))
