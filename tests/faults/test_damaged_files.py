"""What the server keeps, damaged while it is down: one line says so, and a backup helps."""

import shutil
from pathlib import Path

import pytest
from tests.faults.loopback import Loopback
from tests.faults.tally import Row
from tests.faults.toy_federation import ToyFederation

STRATEGY = {"name": "fedbuff", "buffer_size": 3, "steps": 5}


def newest_update(run: Path) -> Path:
    return max((run / "updates").iterdir(), key=lambda path: path.stat().st_mtime)


def damaged_file(run: Path, what: str) -> Path:
    return newest_update(run) if what == "update" else run / NAMES[what]


NAMES = {"journal": "journal.jsonl", "checkpoint": "checkpoint.safetensors"}


@pytest.mark.slow_faults  # test_federation_damage.py has every byte of it without processes
@pytest.mark.parametrize("what", ["journal", "checkpoint", "update"])
def test_a_corrupted_file_of_the_server(what: str, row: Row) -> None:
    with ToyFederation({"a": 0.05, "b": 0.08}, strategy=STRATEGY, min_clients=1) as federation:
        federation.start()
        federation.until_more("merged", lines=2)
        federation.until("an update waits", lambda: any((federation.run / "updates").iterdir()))
        stop_with_an_update(federation)
        backup = federation.home / "backup"
        shutil.copytree(federation.run, backup)
        path = damaged_file(federation.run, what)
        content = path.read_bytes()
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :])
        row.injected = 1
        check_told(federation, path)
        shutil.rmtree(federation.run)
        backup.rename(federation.run)
        federation.start_server(resume=True)
        federation.until_more("accepted")
        federation.finish(row)


@pytest.mark.slow_faults  # test_wire_records.py has every byte of it without processes
def test_a_corrupted_book_of_tasks(row: Row) -> None:
    with ToyFederation({"a": 0.05, "b": 0.08}, strategy=STRATEGY, min_clients=1) as federation:
        federation.start()
        book = federation.project / "state" / "wire" / "tasks.jsonl"
        for every in (1, 2, 3):
            federation.until_more("merged", lines=2)
            federation.kill("server")
            federation.stop_server()
            lines = book.read_bytes().splitlines(keepends=True)
            for number in range(0, len(lines), every):  # the newest among them
                line = lines[-1 - number]
                lines[-1 - number] = line[:20] + bytes([line[20] ^ 1]) + line[21:]
            book.write_bytes(b"".join(lines))
            row.injected += 1
            federation.start_server(resume=True)
            for site in federation.honest:
                federation.until_more("accepted", site)
        log = (federation.project / "state" / "server.log").read_text(encoding="utf-8")
        assert log.count("damaged lines were left out; their tasks are given again") == 3
        federation.finish(row)


def stop_with_an_update(federation: ToyFederation) -> None:
    """Kill the server while an accepted update is not in its checkpoint yet."""
    while True:
        federation.kill("server")
        federation.stop_server()
        if any((federation.run / "updates").iterdir()):
            return
        federation.start_server(resume=True)
        federation.until_more("accepted")


def check_told(federation: ToyFederation, path: Path) -> None:
    """The next server does not start; it names the file in one line."""
    federation.start_server(resume=True)
    assert federation.server is not None
    Loopback.until(federation, "it has ended", lambda: federation.server.children["server"] is None)  # type: ignore[union-attr]
    outcome = federation.server.poll()
    federation.stop_server()
    assert outcome is not None
    assert outcome.error is not None
    assert "\n" not in outcome.error
    assert str(path) in outcome.error
