"""Flower's own programs on this machine, with a home, ports and processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.child_processes import ROOT

from fedcompass.deployment.supervision import free_port

QUICKSTART = Path(__file__).parent / "quickstart"
PATIENCE = 300.0  # seconds; each task costs stock Flower a new process, which loads torch
_PROGRAMS = Path(sys.executable).parent  # `flwr`, `flower-superlink` and what they start by name
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
}


class StockFlower:
    """A SuperLink, and whoever talks to it.

    Args:
        folder: gets Flower's home, its logs and the runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, folder / "runs"
        self._port = free_port()
        self._started: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            **_QUIET,
            "FLWR_HOME": str(folder / "home"),
            "PATH": os.pathsep.join([str(_PROGRAMS), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT / "src"),
        }

    def start_superlink(self, *options: str) -> None:
        """Start it, and have `flwr run` find it under the name `here`."""
        address = f"127.0.0.1:{self._port}"
        (self.folder / "home").mkdir()
        (self.folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{address}"\n'
            "insecure = true\n"
        )
        command = ["flower-superlink", "--insecure", "--host", "127.0.0.1"]
        self._start(*command, "--port", str(self._port), *options)
        wait_for(lambda: "startup complete" in self.log("flower-superlink"), "the SuperLink")

    def start_supernode(self, partition: int, partitions: int) -> None:
        """Start a SuperNode with its part of the data."""
        self._start(
            "flower-supernode",
            "--insecure",
            "--superlink",
            f"127.0.0.1:{self._port}",
            "--port",
            str(free_port()),
            "--node-config",
            f"partition-id={partition} num-partitions={partitions}",
            log=f"supernode-{partition}",
        )

    def run(self, settings: Mapping[str, Any], project: Path = QUICKSTART) -> Path:
        """`flwr run` with these settings of ours; returns the folder that the run will have."""
        changes = {"folder": str(self.runs), **settings}
        config = " ".join(f"fedcompass.{key}={json.dumps(value)}" for key, value in changes.items())
        command = ["flwr", "run", str(project), "here", "-c", config, "--format", "json"]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, str] = json.loads(done.stdout)
        return self.runs / (settings.get("resume") or answer["run-id"])

    def wait_until_over(self, run: Path) -> None:
        """Wait for a run's end, and tell what Flower said if it does not come."""
        try:
            wait_for((run / "summary.json").exists, f"the end of {run.name}")
        except AssertionError as error:
            logs = [self.log(path.stem)[-3000:] for path in sorted(self.folder.glob("*.log"))]
            raise AssertionError("\n".join([str(error), *logs])) from None

    def kill_app(self, program: str) -> None:
        """Kill the one process of this program that was started here."""
        (found,) = [
            pid for pid in self._processes() if f"/{program}\0".encode() in _said(pid, "cmdline")
        ]
        os.kill(found, signal.SIGKILL)

    def _processes(self) -> list[int]:
        """Everything that was started here, directly or not: Flower gives its apps new sessions."""
        ours = f"\0FLWR_HOME={self.folder / 'home'}\0".encode()
        numbers = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        return [pid for pid in numbers if ours in b"\0" + _said(pid, "environ")]

    def log(self, name: str) -> str:
        """What a program said."""
        path = self.folder / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def close(self) -> None:
        """End everything that was started, and what that has started."""
        for process in self._started:
            process.terminate()
        until = monotonic() + 5.0
        while self._processes() and monotonic() < until:
            sleep(0.1)
            for process in self._started:
                process.poll()  # else it stays listed
        until += PATIENCE
        while (left := self._processes()) and monotonic() < until:  # one may start another
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self._started:
                process.poll()
            sleep(0.05)
        for process in self._started:
            process.wait(PATIENCE)

    def _start(self, *command: str, log: str | None = None) -> None:
        with (self.folder / f"{log or command[0]}.log").open("wb") as output:
            process = subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._started.append(process)


@contextmanager
def stock_flower(folder: Path) -> Iterator[StockFlower]:
    """Flower's programs, which do not outlive a test."""
    flower = StockFlower(folder)
    try:
        yield flower
    finally:
        flower.close()


def wait_for(holds: Callable[[], bool], what: str) -> None:
    """Look until it holds."""
    until = monotonic() + PATIENCE
    while not holds():
        assert monotonic() < until, f"waited in vain for {what}"
        sleep(0.1)


def lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a .jsonl file that may still grow; none before it is there."""
    if not path.exists():
        return []
    return [
        json.loads(line) for line in path.read_text().splitlines(keepends=True) if line[-1] == "\n"
    ]


def _said(pid: int, what: str) -> bytes:
    """What the system says of a process; nothing of one that is gone, or another user's."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""
