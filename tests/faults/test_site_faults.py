"""Sites that die, in the midst of a task or for good: the others go on."""

import os
import signal
from random import Random
from time import monotonic

import pytest
from tests.faults.loopback import Loopback
from tests.faults.tally import Row
from tests.faults.toy_federation import ToyFederation, ToySites

STRATEGY = {"name": "fedcompass", "min_steps": 10, "max_steps": 40}


@pytest.mark.parametrize(
    ("child", "made"), [("worker", Loopback), ("site", ToySites)], ids=["worker", "site"]
)
def test_a_site_killed_in_the_midst_of_a_task(child: str, made: type[Loopback], row: Row) -> None:
    with made({"quick": 0.02, "slow": 0.4}, strategy=STRATEGY) as federation:
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
def test_a_site_that_is_stopped_for_two_minutes_and_goes_on(row: Row) -> None:
    with Loopback({"quick": 0.02, "sleepy": 0.2}, strategy=STRATEGY) as federation:
        federation.start()
        federation.until("the sleepy site trains", lambda: federation.training("sleepy"))
        pids = [pid for pid in federation.sites["sleepy"].children.values() if pid is not None]
        began = monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        row.injected = 1
        federation.until_more("left", "sleepy")
        federation.until_more("accepted", "quick", lines=2)
        federation.until("two minutes pass", lambda: monotonic() - began >= 120)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        federation.until_more("accepted", "sleepy")
        federation.finish(row)


@pytest.mark.slow_faults
def test_a_hung_trainer(row: Row) -> None:
    """A worker that never goes on is given up with its task, killed, and started anew."""
    paces = {"quick": 0.02, "hung": 0.1}
    with Loopback(paces, strategy=STRATEGY, task_timeout=8.0) as federation:
        federation.start()
        federation.until("the site trains", lambda: federation.training("hung"))
        worker = federation.sites["hung"].children["worker"]
        assert worker is not None
        os.kill(worker, signal.SIGSTOP)
        row.injected = 1
        federation.until_more("left", "hung")
        federation.until_more("accepted", "hung")
        assert federation.sites["hung"].children["worker"] != worker
        federation.finish(row)


@pytest.mark.slow_faults
def test_ten_random_kills_of_sites_workers_and_the_server_in_two_minutes(row: Row) -> None:
    random = Random(0)
    paces = {"quick": 0.01, "middling": 0.02, "slow": 0.03}
    with ToyFederation(paces, strategy=STRATEGY, min_clients=1) as federation:
        federation.start()
        federation.until_more("accepted")
        began = monotonic()
        for number in range(10):
            moment = began + 12 * number + random.uniform(0, 6)
            federation.until("a random moment", lambda at=moment: monotonic() >= at)  # type: ignore[misc]
            kill_one_of_all(federation, random)
        row.injected = federation.injected
        for site in federation.honest:
            federation.until_more("accepted", site)
        federation.finish(row)
        assert federation.injected == 10


def kill_one_of_all(federation: ToyFederation, random: Random) -> None:
    """`kill -9` one process of all that run; the whole server, with its supervisor, among them."""
    assert federation.server is not None
    sites = [(c, s) for s in federation.honest for c in federation.sites[s].children]
    child, site = random.choice([*sites, ("server", None), ("all", None)])
    owner = federation.server if site is None else federation.sites[site]
    if child == "all":
        federation.crash()
        return
    federation.until(f"{child} runs", lambda: owner.children.get(child) is not None)
    federation.kill(child, site)
