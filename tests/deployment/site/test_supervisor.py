"""A worker as a process of its own: killed, restarted, stopped, and never left behind."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import pytest
from tests.deployment.site_apps import SLOW_APP, order, start_arrays

from fedcompass.deployment.site import forwarder
from fedcompass.deployment.site.worker_plan import WorkerPlan
from fedcompass.deployment.supervision import Child
from fedcompass.deployment.wire.messages import Facts
from fedcompass.errors import ProcessFailed, WorkerLost, WorkerRefused

SOON = 120.0  # seconds; only a failing test waits so long
AT_ONCE = 10.0  # seconds; a busy machine is slow, but nobody waited for a patience to end


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, as sockets need it, for this user alone."""
    with TemporaryDirectory(prefix="fc") as name:
        yield Path(name)


def plan_in(folder: Path, app: str = SLOW_APP) -> WorkerPlan:
    (folder / "app.py").write_text(app)
    return WorkerPlan(
        app=folder / "app.py",
        socket=folder / "s",
        name="here",
        log=folder / "worker.log",
        data=folder,
        threads=1,
        settings={"secret": "hunter2"},
    )


def until(happened: Callable[[], bool]) -> None:
    end = monotonic() + SOON
    while not happened():
        assert monotonic() < end, "it did not happen"
        sleep(0.01)


def in_training(folder: Path) -> bool:
    return (folder / "steps").exists()


def train(folder: Path, facts: Facts) -> Facts:
    return forwarder.train(folder / "s", facts, start_arrays(), patience=SOON)[0]


def lives(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet reaped by its parent does not."""
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False


def start_task(pool: ThreadPoolExecutor, folder: Path, task: int) -> "Future[Facts]":
    """A task without end, once its first step is done."""
    (folder / "steps").unlink(missing_ok=True)
    started = pool.submit(train, folder, order(steps=100_000, task=task))
    until(lambda: in_training(folder))
    return started


@contextmanager
def running(plan: WorkerPlan, restarts: int = 5) -> Iterator[Child]:
    """The worker of a plan, ready to train."""
    child = Child(plan.program(), restarts=restarts)
    child.start()
    try:
        yield child
    finally:
        child.stop()


def test_a_worker_killed_mid_task_is_reported_at_once_and_restarted(folder: Path) -> None:
    plan = plan_in(folder)
    with running(plan) as worker, ThreadPoolExecutor(1) as pool:
        assert forwarder.query(plan.socket, patience=SOON)["samples"] == 8
        first = worker.pid
        assert first is not None
        assert b"hunter2" not in Path(f"/proc/{first}/cmdline").read_bytes()
        task = start_task(pool, folder, 1)
        os.kill(first, signal.SIGKILL)
        killed = monotonic()
        with pytest.raises(WorkerLost, match="went away during a train"):
            task.result(SOON)
        assert monotonic() - killed < AT_ONCE
        until(worker.restart_if_dead)
        assert train(folder, order(steps=3))["steps_done"] == 3  # waits for the next worker
        second = worker.pid
        assert second not in (None, first)
        # Stopped, it sends what it has.
        task = start_task(pool, folder, 2)
        worker.stop(SOON)
        done = task.result(SOON)["steps_done"]
        assert done == len((folder / "steps").read_text())
    assert second is not None
    assert not lives(second)
    assert not plan.socket.exists()
    log = plan.log.read_text()
    assert f"task 2: {done} of 100000 steps" in log
    assert "hunter2" not in log
    assert plan.log.stat().st_mode & 0o077 == 0


PARENT = """
import sys
from pathlib import Path
from fedcompass.deployment.supervision import Child
from fedcompass.deployment.site.worker_plan import WorkerPlan
at = Path(sys.argv[1])
plan = WorkerPlan(app=at / "app.py", socket=at / "s", name="here", log=at / "worker.log", data=at)
child = Child(plan.program())
child.start()
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_nothing_is_left_behind_when_the_parent_is_killed(folder: Path) -> None:
    (folder / "app.py").write_text(SLOW_APP)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with parent, ThreadPoolExecutor(1) as pool:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        task = start_task(pool, folder, 1)
        assert lives(worker)
        parent.kill()
        with pytest.raises(WorkerLost):
            task.result(SOON)
        until(lambda: not lives(worker))


def test_a_mistake_in_training_names_the_apps_file_and_line_but_no_folder(folder: Path) -> None:
    home = folder / "north ward"
    home.mkdir()
    app = SLOW_APP.replace("time.sleep(0.02)", "self.counted.with_name('a.csv').read_text()")
    plan = replace(plan_in(home, app), socket=folder / "s", data=home)
    with running(plan), pytest.raises(WorkerRefused) as caught:
        train(folder, order(steps=3))
    told = str(caught.value)
    assert re.search(r"app\.py:\d+ in train_step: FileNotFoundError: .*'a\.csv'", told)
    assert "ward" not in told
    assert str(home) in plan.log.read_text()  # at the site, whole


def test_a_mistake_in_the_app_is_told_in_one_line_with_its_place(folder: Path) -> None:
    plan = plan_in(folder, "import torch\n\nx = torch.nothing\n")
    with running(plan, restarts=0) as worker:
        until(lambda: not worker.running)
        with pytest.raises(ProcessFailed) as caught:
            worker.restart_if_dead()
    told = str(caught.value)
    assert told.startswith("worker of here died")
    assert f"{plan.app}:3 in <module>: AttributeError: module 'torch' has no" in told
    assert "\n" not in told
