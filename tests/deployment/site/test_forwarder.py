"""The forwarder: light, and quick to notice that the worker is gone."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import pytest

from fedcompass.deployment.site import forwarder
from fedcompass.deployment.site.worker_frames import Frame, greet, receive, send
from fedcompass.deployment.site.worker_socket import listen_at
from fedcompass.errors import WorkerLost, WorkerRefused

LIGHT = """
import json, sys
import fedcompass.deployment.{module}
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with TemporaryDirectory(prefix="fc") as folder:
        yield Path(folder) / "s"


def modules_after(module: str) -> set[str]:
    """Everything that importing one of our modules loads, in a fresh interpreter."""
    code = LIGHT.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "module", ["site.forwarder", "site.worker_plan", "flower_engine.client_app"]
)
def test_what_runs_for_every_message_loads_no_torch(module: str) -> None:
    loaded = modules_after(module)
    assert "torch" not in loaded
    ours = {name for name in loaded if name.startswith("fedcompass")}
    assert not {n for n in ours if n.startswith(("fedcompass.training", "fedcompass.aggregation"))}
    if not module.endswith("client_app"):  # Flower itself loads these
        assert not loaded & {"numpy", "pydantic", "flwr"}


class Peer:
    """A worker that greets (after some connections that it closes), and may read and answer."""

    def __init__(
        self, place: Path, *, reads: bool, answer: bytes | Frame | None, silent: int = 0
    ) -> None:
        self.listener = listen_at(place)
        self.reads, self.answer, self.silent = reads, answer, silent
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        for _ in range(self.silent):
            self.listener.accept()[0].close()
        connection, _ = self.listener.accept()
        with connection:
            greet(connection)
            if self.reads:
                receive(connection, 1 << 20)
            if isinstance(self.answer, Frame):
                send(connection, self.answer)
            elif self.answer is not None:
                connection.sendall(self.answer)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.join()
        self.listener.close()


def test_a_worker_that_closes_without_an_answer_is_lost(place: Path) -> None:
    with Peer(place, reads=True, answer=None), pytest.raises(WorkerLost, match="during a query"):
        forwarder.query(place)


def test_a_worker_that_dies_in_the_midst_of_its_answer_is_lost(place: Path) -> None:
    with Peer(place, reads=True, answer=b"FCW1\0\0"), pytest.raises(WorkerLost, match="EOFError"):
        forwarder.query(place)


def test_a_worker_that_closes_before_it_has_read_is_lost(place: Path) -> None:
    with Peer(place, reads=False, answer=None), pytest.raises(WorkerLost):
        forwarder.query(place, {"filler": "x" * (1 << 20)})


def test_a_refusal_is_heard_though_the_request_was_not_read(place: Path) -> None:
    refusal = Frame("error", {"reason": "too much"})
    with Peer(place, reads=False, answer=refusal), pytest.raises(WorkerRefused, match="too much"):
        forwarder.query(place, {"filler": "x" * (1 << 20)})


def test_an_answer_larger_than_what_was_sent_is_refused(place: Path) -> None:
    answer = b"FCW1" + (2).to_bytes(4, "big") + (1 << 40).to_bytes(8, "big")
    with (
        Peer(place, reads=True, answer=answer),
        pytest.raises(WorkerRefused, match="answered badly: a message's arrays have 1099511627776"),
    ):
        forwarder.query(place)


def test_a_worker_that_is_not_there_is_waited_for(place: Path) -> None:
    def appear() -> None:
        with Peer(place, reads=True, answer=Frame("facts", {"samples": 3})):
            pass

    late = threading.Timer(0.2, appear)
    late.start()
    assert forwarder.query(place, patience=60.0) == {"samples": 3}
    late.join()


def test_a_worker_that_dies_before_it_greets_costs_no_task(place: Path) -> None:
    answer = Frame("facts", {"samples": 3})
    with Peer(place, silent=2, reads=True, answer=answer):
        assert forwarder.query(place, patience=60.0) == {"samples": 3}


def test_waiting_for_a_worker_ends(place: Path) -> None:
    began = monotonic()
    with pytest.raises(WorkerLost, match=r"no worker answers at .*, after 0.1 s; is `fedcompass"):
        forwarder.query(place, patience=0.1)
    assert monotonic() - began >= 0.1


def test_a_socket_that_cannot_be_opened_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(WorkerLost, match="cannot be used"):
        forwarder.query(tmp_path / ("x" * 200))


def test_a_stale_socket_counts_as_no_worker(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place))
    with pytest.raises(WorkerLost, match="no worker answers"):
        forwarder.query(place, patience=0.0)
