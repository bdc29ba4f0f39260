"""Sites that die, in the midst of a task or for good: the others go on."""

import pytest
from tests.faults.loopback import Loopback
from tests.faults.tally import Row

STRATEGY = {"name": "fedcompass", "min_steps": 10, "max_steps": 40}


@pytest.mark.parametrize(
    "child",
    [
        "worker",
        # Flower lets a SuperNode that was killed return when its heartbeat is overdue: a minute.
        pytest.param("supernode", marks=pytest.mark.slow_faults),
    ],
)
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
