"""A site behind a link of 1 Mbit/s: slow, and not given up."""

from contextlib import closing
from time import monotonic

import pytest
from tests.faults.links import Links, loop_in_thread
from tests.faults.tally import Row
from tests.faults.toy_federation import ToyFederation
from tests.faults.toy_training import APP

MEGABIT = 125_000.0  # bytes per second
LARGE = APP.replace("4096", "40960")  # a model of 1.8 MB: a quarter of a minute each way


@pytest.mark.slow_faults
def test_a_link_of_1_mbit_per_second(row: Row) -> None:
    paces = {"near": 0.05, "far": 0.05}
    strategy = {"name": "fedasync", "steps": 5}
    with (
        ToyFederation(paces, LARGE, strategy=strategy, min_clients=1, task_timeout=300.0) as made,
        loop_in_thread() as loop,
        closing(Links(loop, made.port, made.honest)) as links,
    ):
        made.route(links)
        links.of["far"].rate = MEGABIT
        began = monotonic()
        made.start()
        made.until_more("accepted", "near")
        made.until_more("accepted", "far", lines=2)
        row.injected = 1
        assert links.of["far"].passed / 2 <= MEGABIT * (monotonic() - began)
        assert made.audit("left", "far") == []
        made.finish(row)
