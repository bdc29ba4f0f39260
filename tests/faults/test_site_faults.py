"""Sites that die, in the midst of a task or for good: the others go on."""

import os
import signal

import pytest
from tests.faults.loopback import Loopback
from tests.faults.tally import Row

STRATEGY = {"name": "fedcompass", "min_steps": 10, "max_steps": 40}


@pytest.mark.parametrize("child", ["worker", "site"])
def test_a_site_killed_in_the_midst_of_a_task(child: str, row: Row) -> None:
    with Loopback({"quick": 0.02, "slow": 0.4}, strategy=STRATEGY) as federation:
        federation.start()
        federation.until("the slow site trains", lambda: federation.training("slow"))
        federation.kill(child, "slow")
        federation.until_more("accepted", "slow")
        if child == "worker":
            assert "WorkerLost" in federation.audit("task lost", "slow")[0]["why"]
        row.injected = federation.injected
        federation.finish(row)


@pytest.mark.slow_faults
def test_a_site_killed_for_good(row: Row) -> None:
    with Loopback({"a": 0.02, "b": 0.05, "doomed": 0.4}, strategy=STRATEGY) as federation:
        federation.start()
        federation.until("the doomed site trains", lambda: federation.training("doomed"))
        federation.abandon("doomed")
        for site in ("a", "b"):
            federation.until_more("accepted", site, lines=2)
        federation.until("it is given up", lambda: federation.audit("left", "doomed"))
        federation.until_more("accepted")
        row.injected = federation.injected
        federation.finish(row)


@pytest.mark.slow_faults
def test_the_server_and_all_sites_killed_at_once(row: Row) -> None:
    with Loopback({"a": 0.02, "b": 0.05}, strategy=STRATEGY) as federation:
        federation.start()
        federation.until_more("accepted", "b")
        for site in federation.sites:
            federation.kill("site", site)
        federation.crash()
        for site in federation.sites:
            federation.until_more("accepted", site)
        row.injected = federation.injected
        federation.finish(row)


@pytest.mark.slow_faults
def test_a_site_that_is_stopped_for_a_minute_and_goes_on(row: Row) -> None:
    with Loopback({"quick": 0.02, "sleepy": 0.2}, strategy=STRATEGY) as federation:
        federation.start()
        federation.until("the sleepy site trains", lambda: federation.training("sleepy"))
        pids = [pid for pid in federation.sites["sleepy"].children.values() if pid is not None]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        row.injected = 1
        federation.until_more("left", "sleepy")
        federation.until_more("accepted", "quick", lines=2)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        federation.until_more("accepted", "sleepy")
        federation.finish(row)
