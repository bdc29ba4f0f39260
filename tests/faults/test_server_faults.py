"""Servers that die, at any point, and servers that are one too many."""

import os
import signal
from random import Random

import pytest
from tests.faults.kill_points import POINTS
from tests.faults.loopback import Loopback
from tests.faults.tally import Row
from tests.faults.toy_federation import ToySites

from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.operator.running_server import RunningServer
from fedcompass.deployment.server.project import ServerProject
from fedcompass.deployment.supervision import free_port

SITES = {"quick": 0.02, "middling": 0.05, "slow": 0.1}
COMPASS = {"name": "fedcompass", "min_steps": 5, "max_steps": 20}
BUFFERED = {"name": "fedbuff", "buffer_size": 3, "steps": 8}


def test_a_server_killed_twice_once_with_its_supervisor(row: Row) -> None:
    with ToySites(SITES, strategy=COMPASS) as federation:
        federation.start()
        for whole in (False, True):
            federation.until_more("accepted")
            federation.crash() if whole else federation.kill("server")
            federation.until_more("resumed")
        row.injected = federation.injected
        federation.finish(row, 2)


@pytest.mark.slow_faults
def test_a_second_server_on_one_run_folder_refuses(row: Row) -> None:
    with Loopback({"only": 0.05}, strategy=COMPASS) as federation:
        federation.start()
        federation.until("the run has begun", lambda: federation.accepted() > 0)
        other = federation.home / "other"
        init_project(other, f"127.0.0.1:{free_port()}", ["only"])
        second = RunningServer(ServerProject(other), federation.run, resume=True)
        try:
            second.start()
            federation.until("it has ended", lambda: second.children["server"] is None)
            outcome = second.poll()
        finally:
            second.stop()
        row.injected = 1
        assert outcome is not None
        assert outcome.error is not None
        assert outcome.error.startswith(f"another process is running {federation.run}")
        federation.finish(row)


@pytest.mark.slow_faults
@pytest.mark.parametrize("strategy", [COMPASS, BUFFERED], ids=["fedcompass", "fedbuff"])
def test_servers_killed_ten_times_at_random_points(strategy: dict[str, object], row: Row) -> None:
    random = Random(str(strategy["name"]))
    with Loopback(SITES, strategy=strategy) as federation:
        federation.start()
        federation.until("the run has begun", lambda: federation.accepted() > 0)
        for _ in range(10):
            point = random.choice(list(POINTS))
            federation.until(point, POINTS[point](federation, random), tick=0.001)
            federation.crash() if random.random() < 0.5 else federation.kill("server")
            federation.until_more("resumed")
        row.injected = federation.injected
        federation.finish(row, 2)
        assert federation.injected == 10


@pytest.mark.slow_faults
def test_a_server_that_is_stopped_for_75_seconds_and_goes_on(row: Row) -> None:
    with Loopback(SITES, strategy=COMPASS) as federation:
        federation.start()
        federation.until_more("accepted")
        assert federation.server is not None
        pid = federation.server.children["server"]
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        row.injected = 1
        federation.until_passed(75)
        os.kill(pid, signal.SIGCONT)
        for site in federation.sites:
            federation.until_more("accepted", site)
        assert not federation.audit("left")  # they were there, and came back at once
        assert federation.server.restarted == 0
        federation.finish(row)
