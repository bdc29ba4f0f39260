"""Strangers who take up all the files that a server may have open, and files that run out."""

import resource
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.child_processes import started
from tests.faults.tally import Row
from tests.faults.toy_federation import ToySites

from fedcompass.deployment.addresses import split_address

STRATEGY = {"name": "fedasync", "steps": 5}
FILES = 1024


def test_more_strangers_than_a_server_may_have_files_open(row: Row) -> None:
    with ToySites({"a": 0.02, "b": 0.03}, strategy=STRATEGY, min_clients=1) as federation:
        serve = f"ulimit -n {FILES}; exec {sys.executable} -m fedcompass deploy server"
        command = ["sh", "-c", f"{serve} {federation.project}"]
        log = federation.home / "told"
        with log.open("wb") as told, started(command, stderr=told) as server, ExitStack() as there:
            federation.start_site("a")
            federation.until_more("accepted", "a")
            for _ in range(FILES + 100):
                stranger = socket.create_connection(split_address(federation.address), 10)
                there.enter_context(stranger)
                row.injected += 1
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
            assert open_files(int(children)) < FILES * 3 // 4
            federation.until_more("accepted", "a", lines=5)  # while they are there
            federation.start_site("b")  # it gets in once the strangers' time is over
            federation.until_more("accepted", "b")
            assert server.poll() is None
            server.terminate()
            server.wait()
        assert "died" not in log.read_text(encoding="utf-8")
        federation.start_server(resume=True)
        federation.finish(row)


def test_a_server_that_may_open_no_more_files_for_a_while(row: Row) -> None:
    with ToySites(
        {"a": 0.02, "b": 0.03}, strategy=STRATEGY, min_clients=1, gone_after=1.0, return_within=5.0
    ) as federation:
        federation.start()
        federation.until_more("accepted", "b")
        assert federation.server is not None
        pid = federation.server.children["server"]
        assert pid is not None
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (8, usual[1]))
        row.injected = 1
        federation.sites.pop("b").stop()  # to say that it has left a file has to be opened
        federation.until_passed(4.0)
        assert federation.outcome is None
        resource.prlimit(federation.server.children["server"] or pid, resource.RLIMIT_NOFILE, usual)
        federation.until("it is said", lambda: federation.audit("left", "b"))
        federation.until_more("accepted", "a")
        federation.finish(row)


def open_files(process: int) -> int:
    return sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
