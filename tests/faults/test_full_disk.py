"""A disk that is full when the server writes: one clear error, nothing lost, and it goes on."""

import asyncio
import os
import resource
from pathlib import Path
from secrets import token_hex
from time import monotonic

import pytest
from tests.deployment.wire.loopback_wire import Caller, answer_to
from tests.faults.apps import app_of_width
from tests.faults.links import beside
from tests.faults.loopback import Loopback
from tests.faults.small_disks import fill, small_disk
from tests.faults.tally import Row
from tests.faults.toy_federation import ToyFederation

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.payloads import payload_bytes

SITES = {"a": 0.05, "b": 0.05}
STRATEGY = {"name": "fedbuff", "buffer_size": 2, "steps": 5}
APP = app_of_width(8192)  # half a megabyte; a checkpoint holds it at least twice
ASYNC, PAYLOAD = {"name": "fedasync", "steps": 5}, 180_232  # bytes of a toy's answer
UPDATE, CHECKPOINT = 500_000, 980_000  # bytes: an update is smaller, a checkpoint larger


@pytest.mark.slow_faults
def test_a_checkpoint_that_does_not_fit(row: Row) -> None:
    with Loopback(SITES, strategy=STRATEGY, app=APP) as federation:
        federation.start()
        checkpoint = federation.run / "checkpoint.safetensors"
        federation.until(
            "the first merge is on disk",
            lambda: checkpoint.exists() and checkpoint.stat().st_size > CHECKPOINT,
        )
        assert federation.server is not None
        server = federation.server.children["server"]
        assert server is not None
        limit = (UPDATE + CHECKPOINT) // 2
        resource.prlimit(server, resource.RLIMIT_FSIZE, (limit, limit))
        row.injected = 1
        check_stopped(federation)
        assert any((federation.run / "updates").iterdir())  # it was the checkpoint that failed
        go_on(federation)
        federation.finish(row)


@pytest.mark.slow_faults
def test_a_disk_that_is_full_within_an_updates_last_line(row: Row) -> None:
    with Loopback(SITES, strategy=STRATEGY, app=APP) as federation:
        federation.start()
        federation.until_more("merged")
        for room in (0, 10, 100):
            limit = payload_bytes(federation.twin().layout, "model") + room
            assert limit > 2 * (federation.run / "journal.jsonl").stat().st_size
            assert federation.server is not None
            server = federation.server.children["server"]
            assert server is not None
            resource.prlimit(server, resource.RLIMIT_FSIZE, (limit, limit))
            row.injected += 1
            check_stopped(federation)
            go_on(federation)
        federation.finish(row)


@pytest.mark.slow_faults
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_a_disk_that_is_full(row: Row) -> None:
    with Loopback(SITES, strategy=STRATEGY, app=APP) as federation, small_disk(federation.run):
        federation.start()
        for room in (UPDATE + CHECKPOINT // 2, UPDATE // 2, 0):
            federation.until_more("merged")
            ballast = federation.run / "ballast"
            fill(ballast, leave=room)
            row.injected += 1
            check_stopped(federation)
            ballast.unlink()
            go_on(federation)
        federation.finish(row)


@pytest.mark.slow_faults
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_a_full_disk_under_the_servers_state(row: Row) -> None:
    with Loopback(SITES, strategy=STRATEGY, app=APP) as federation:
        state = federation.project / "state"
        with small_disk(state, "24m"):
            federation.start()
            federation.until_more("merged")
            fill(state / "ballast", leave=0)
            row.injected = 1
            began = monotonic()
            federation.until("the server ends", lambda: federation.outcome is not None)
            assert monotonic() - began < 30
            assert federation.outcome is not None
            assert f"the disk of {state} is full" in (federation.outcome.error or "")
            assert len(federation.audit("disk full")) == 1
            (state / "ballast").unlink()
            go_on(federation)
            federation.finish(row)
            federation.stop_server()


@pytest.mark.slow_faults
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_a_site_that_begins_hundreds_of_answers_and_ends_none(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin_many(caller: Caller, task: pb.Task) -> None:
        for _ in range(100):
            answer = answer_to(task.id, payload_bytes=PAYLOAD, digest=token_hex(32))
            call = caller.open_submit()
            await caller.write(call, answer)
            await call.read()
            await caller.write_piece(call, bytes(PAYLOAD - 1))
            await asyncio.sleep(0.02)
            call.cancel()
            row.injected += 1

    with small_disk(tmp_path / "disk", "12m"):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "disk"))
        with ToyFederation({"a": 0.1, "b": 0.15}, strategy=ASYNC, min_clients=1) as federation:
            federation.start()
            federation.until_more("accepted", "a")
            rogue = federation.rogue()
            rogue.do_task = begin_many
            uploads = federation.project / "state" / "wire" / "uploads"
            most = 0

            def has_begun_hundreds() -> bool:
                nonlocal most
                most = max(most, len(list(uploads.iterdir())))
                return row.injected >= 250

            with beside(rogue.live()):
                federation.until("it has begun hundreds", has_begun_hundreds, tick=0.01)
                assert most <= 2 * 3  # one of each site, and one that is being taken in
                for site in federation.honest:
                    federation.until_more("accepted", site)
            assert federation.server is not None
            assert federation.server.restarted == 0
            federation.finish(row)


def check_stopped(federation: Loopback) -> None:
    """The server ends by itself, with one line that says what to do."""
    federation.until("the server ends", lambda: federation.outcome is not None)
    assert federation.outcome is not None
    error = federation.outcome.error
    assert error is not None
    assert "\n" not in error
    assert str(federation.run) in error
    assert "free some space" in error


def go_on(federation: Loopback) -> None:
    federation.stop_server()
    federation.start_server(resume=True)
    federation.until_more("accepted")
