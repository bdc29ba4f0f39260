"""Clocks that jump: the run's time is its own."""

import pytest
from tests.faults.clock import WallClock
from tests.faults.federation_files import whole_lines
from tests.faults.loopback import Loopback
from tests.faults.tally import Row

HOUR = 3600
STRATEGY = {"name": "fedcompass", "min_steps": 5, "max_steps": 20}


def work_goes_on(federation: Loopback) -> None:
    for site in federation.sites:
        federation.until_more("accepted", site, lines=2)


@pytest.mark.slow_faults
def test_wall_clocks_that_jump(row: Row) -> None:
    with Loopback({"a": 0.02, "b": 0.05}, strategy=STRATEGY) as federation:
        server = WallClock(federation.home, "server")
        sites = WallClock(federation.home, "sites")
        federation.server_environment |= server.environment
        federation.site_environment |= sites.environment
        federation.start()
        work_goes_on(federation)
        for jump in (HOUR, -HOUR, 0):
            # One machine, or all of them by the same wrong NTP server.
            server.set_ahead(jump)
            sites.set_ahead(jump)
            row.injected += 1
            work_goes_on(federation)
        for alone in (HOUR, -HOUR, 0):
            server.set_ahead(alone)
            row.injected += 1
            work_goes_on(federation)
        federation.finish(row)
        check_run_time(federation)


def check_run_time(federation: Loopback) -> None:
    """The journal's time never went back, and never jumped."""
    events = [r["at"] for r in whole_lines(federation.run / "journal.jsonl") if "event" in r]
    assert events == sorted(events)
    assert events[-1] < HOUR / 2
