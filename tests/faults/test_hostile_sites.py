"""A site on the roster that breaks rules, and strangers: the others work on, and nothing counts."""

import asyncio
import json
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest
from tests.deployment.wire.loopback_wire import Caller, answer_to
from tests.faults.links import beside
from tests.faults.masking_liar import MaskingLiar
from tests.faults.rogue import LIES, MISDEEDS, DoTask, Rogue
from tests.faults.soak import foreign_certificate
from tests.faults.strangers import Strangers
from tests.faults.tally import Row
from tests.faults.toy_federation import ToyFederation

from fedcompass.deployment.operator import demo
from fedcompass.deployment.operator.running_site import RunningSite
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.runs.replay import replay

STRATEGY = {"name": "fedasync", "steps": 5}
SMALL = 64 << 20  # bytes by which a server may grow whatever a site sends
REPEATS = [name for name in MISDEEDS if "sent" in name or "old" in name or "another site" in name]
AT_ONCE = [name for name in LIES if "3e38" not in name]  # after that a site waits, more and more
BREAKS = [name for name in MISDEEDS if name not in (*REPEATS, *LIES)]

pytestmark = pytest.mark.slow_faults  # test_wire_attacks.py has most of it without processes


@contextmanager
def federation() -> Iterator[ToyFederation]:
    with ToyFederation({"a": 0.02, "b": 0.03}, strategy=STRATEGY, min_clients=1) as made:
        made.start()
        made.until_more("accepted", "a")
        yield made


def until_each(made: ToyFederation, faults: list[str], times: int = 2) -> None:
    made.until("every fault was caused", lambda: all(made.ledger.times(f) >= times for f in faults))
    for site in made.honest:
        made.until_more("accepted", site)


def finish(made: ToyFederation, row: Row, rogue: Rogue) -> None:
    row.injected = made.ledger.count
    made.finish(row)
    made.check_lies(rogue)


@pytest.mark.parametrize(
    "misdeeds",
    [REPEATS, BREAKS, AT_ONCE],
    ids=[
        "another's task, old and repeated answers",
        "damaged, broken off, garbage",
        "not finite, 10^9 steps, another size, another form",
    ],
)
def test_a_site_that_breaks_rules(misdeeds: list[str], row: Row) -> None:
    with federation() as made:
        rogue = made.rogue(misdeeds, pause=0.1)
        with beside(rogue.live()):
            until_each(made, misdeeds)
        finish(made, row, rogue)


def test_wrong_shapes_of_the_same_size_and_a_second_process_with_the_same_certificate(
    row: Row,
) -> None:
    with federation() as made:
        rogue = made.rogue(pause=60.0)
        faults = [
            "a site: its model has other shapes of the same size",
            "a site: a second process with its certificate",
        ]
        with beside(rogue.live()):
            until_each(made, faults, times=1)
        finish(made, row, rogue)


def test_garbage_half_open_tls_and_foreign_certificates(row: Row) -> None:
    with federation() as made:
        strangers = Strangers(
            made.address, foreign_certificate(made), made.ledger, Random(0), pause=0.1
        )
        with beside(strangers.live()):
            until_each(made, list(strangers.ways), times=3)
        assert made.server is not None
        assert made.server.restarted == 0
        finish(made, row, made.rogue())


def test_1000_connections_at_once(row: Row) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with federation() as made, ExitStack() as open_ones:
        before = made.ledger.accepted
        for _ in range(1000):
            plain = socket.create_connection(("127.0.0.1", made.port), 10)
            open_ones.enter_context(plain)
        row.injected = 1
        for site in made.honest:
            made.until_more("accepted", site)
        assert made.ledger.accepted > before
        assert made.server is not None
        assert made.server.restarted == 0
        made.finish(row)


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "not announced"])
def test_a_site_that_sends_300_mb_for_a_small_model(announced: bool, row: Row) -> None:
    piece = bytes(1 << 20)

    async def flood(caller: Caller, task: pb.Task) -> None:
        fields = {"payload_bytes": 300 * len(piece)} if announced else {"payload_bytes": 180_232}
        call = caller.open_submit()
        await caller.write(call, answer_to(task.id, b"", **fields), *[piece] * 300)
        row.injected += 1
        await asyncio.sleep(1)
        call.cancel()

    _bothered(row, flood)


def test_a_site_that_sends_a_byte_a_second(row: Row) -> None:
    async def trickle(caller: Caller, task: pb.Task) -> None:
        call = caller.open_submit()
        await caller.write(call, answer_to(task.id, b"", payload_bytes=180_232))
        await call.read()  # `proceed`: how the call ends is told behind it
        while not call.done():  # the server ends it
            await caller.write_piece(call, b"x")
            await asyncio.sleep(1)
        row.injected += 1

    _bothered(row, trickle)


def _bothered(row: Row, bother: DoTask) -> None:
    """Let a site do something to its first tasks; the others go on and the server stays small."""
    with federation() as made:
        assert made.server is not None
        before = _memory(made)
        rogue = made.rogue(pause=0.0)
        rogue.do_task = bother
        with beside(rogue.live()):
            made.until("it has done it", lambda: row.injected >= 1)
            for site in made.honest:
                made.until_more("accepted", site)
            assert _memory(made) - before < SMALL
            assert made.server.restarted == 0
        made.finish(row)


def _memory(made: ToyFederation) -> int:
    """Bytes of the server that are in memory."""
    assert made.server is not None
    status = Path(f"/proc/{made.server.children['server']}/status").read_text(encoding="ascii")
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return int(kilobytes) * 1024


def test_a_site_that_masks_its_updates_falsely_is_found_and_put_into_quarantine(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four sites, in groups; what its sums took along is lost, and said."""
    liar, run = "site-2", tmp_path / "runs" / "fedcompass"

    def site(folder: SiteFolder) -> RunningSite:
        return (MaskingLiar if folder.settings.name == liar else RunningSite)(folder)

    monkeypatch.setattr(demo, "RunningSite", site)
    plan = demo.DemoPlan(
        sites=4,
        slowest=1.5,
        strategies=("fedcompass",),
        target=1.0,
        seconds_per_step=0.004,
        min_steps=10,
        max_steps=40,
        max_updates=8,
        max_seconds=400.0,
        secure=True,
    )
    with demo.Demo(plan, tmp_path / "runs", lambda _: None, lambda _: None) as all_:
        (done,) = all_.run()
    audit = [json.loads(line) for line in (run / "audit.jsonl").read_text().splitlines()]
    failed = [line for line in audit if line["what"] == "sum failed" and line["members"]]
    assert failed
    assert all(liar in line["members"] for line in failed)
    assert failed[0]["lost"], "shares were revealed for it: its updates are spent"
    assert [line["who"] for line in audit if line["what"] == "spoiler found"] == [liar]
    assert [line["who"] for line in audit if line["what"] == "quarantined"] == [liar]
    merged = [line for line in audit if line["what"] == "merged"]
    assert [line["version"] for line in merged] == list(range(1, 9))
    assert all(liar != client for line in merged for client, _, _ in line["contributors"])
    assert done.summary["reason"] == "max_updates"
    assert done.summary["quarantined"] == [liar]
    assert done.summary["lost_updates"] == sum(len(line["lost"]) for line in failed)
    replay(run / "journal.jsonl")
    row.injected, row.accepted = len(failed), done.summary["updates"]
    row.lost = done.summary["lost_updates"]
