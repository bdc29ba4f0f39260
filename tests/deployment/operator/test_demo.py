"""One real federation: a server, sites and their workers, with certificates."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest
from tests.deployment.endless_demo import ENDLESS, end_after

from fedcompass.deployment.operator.demo import Demo, DemoPlan, paces
from fedcompass.deployment.operator.run_view import RunView
from fedcompass.errors import SettingsError
from fedcompass.runs.journal import read_journal

PATIENCE = 180.0

PLAN = DemoPlan(
    sites=2,
    slowest=2.0,
    target=0.999,
    max_updates=ENDLESS,
    min_steps=2,
    max_steps=20,
    seconds_per_step=0.01,
)


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie that somebody has yet to wait for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def wait_until(true: Callable[[], bool], what: str) -> None:
    until = monotonic() + PATIENCE
    while not true():
        assert monotonic() < until, f"not in time: {what}"
        sleep(0.05)


def test_a_federation_finishes_survives_a_killed_server_and_leaves_nothing(tmp_path: Path) -> None:
    killed: list[int] = []
    seen: set[int] = set()
    told: list[str] = []

    def watch(view: RunView) -> None:
        view.refresh()
        seen.update(demo.children)
        if view.updates >= 2 and not killed:
            assert demo._server is not None
            victim = demo._server.children["server"]
            if victim is not None:
                end_after(4, demo)
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)

    with Demo(PLAN, tmp_path / "runs", told.append, watch) as demo:
        home = demo._home
        (run,) = demo.run()
    assert killed
    assert run.summary["global_updates"] >= 4  # answers that came together all count
    assert sorted(run.summary["sites"]) == ["site-1", "site-2"]
    assert not any(map(alive, seen))
    assert len(seen) >= 6  # two for each site, and a server twice
    assert not home.exists()
    merged = [
        tuple(source)
        for _, record in read_journal(run.folder / "journal.jsonl")
        if record.get("command") == "Commit"
        for source in record["contributions"]
    ]
    assert len(merged) == len({task for _, task, _ in merged}), "an update was merged twice"
    secrets = [p for p in run.folder.rglob("*") if p.suffix == ".key"]
    assert secrets == []


def test_a_killed_parent_leaves_no_process(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from fedcompass.deployment.operator.demo import Demo, DemoPlan\n"
        "plan = DemoPlan(sites=1, max_updates=1)\n"
        "demo = Demo(plan, Path(sys.argv[1]), print, print)\n"
        "from fedcompass.deployment.operator import running_server\n"
        "def started(self):\n"
        "    print(demo._home, *demo.children, flush=True)\n"
        "    sys.stdin.read()\n"
        "running_server.RunningServer.start = started\n"
        "demo.run()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "runs")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        for _ in range(2):  # what the demo says about its sites
            parent.stdout.readline()
        home, *pids = parent.stdout.readline().split()
        children = [int(pid) for pid in pids]
        assert len(children) == 2
        assert all(map(alive, children))
        parent.send_signal(signal.SIGKILL)
    try:
        wait_until(lambda: not any(map(alive, children)), "children die with their parent")
    finally:
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(home)  # what nobody was left to remove


def test_paces_go_from_the_fastest_to_the_slowest_by_equal_ratios() -> None:
    made = paces(DemoPlan(sites=4, slowest=8, seconds_per_step=0.5))
    assert made == pytest.approx([0.5, 1.0, 2.0, 4.0])
    assert paces(DemoPlan(sites=1, slowest=8, seconds_per_step=0.5)) == [0.5]


def test_a_plan_that_cannot_be_is_refused() -> None:
    with pytest.raises(SettingsError, match="sites is 0"):
        DemoPlan(sites=0)
    with pytest.raises(SettingsError, match=r"slowest is 0\.5"):
        DemoPlan(slowest=0.5)
