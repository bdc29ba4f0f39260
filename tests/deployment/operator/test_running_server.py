"""The server's processes: where they listen, and that one federation has one server."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace

import pytest
import tomli_w

from fedcompass.deployment.operator.project_files import init_project
from fedcompass.deployment.operator.running_server import RunningServer
from fedcompass.deployment.server.disk_room import lack_of_room
from fedcompass.deployment.server.project import NetworkSettings, ServerProject
from fedcompass.deployment.supervision import Child, Program, free_port
from fedcompass.errors import ProjectError, RunFolderError, SettingsError
from fedcompass.runs.files import FolderLock


def project_at(folder: Path, **network: object) -> ServerProject:
    """A federation whose sites reach the server by a name that this machine does not know."""
    address = f"fl.example:{free_port()}"
    init_project(folder, address, ["north"])
    settings = {"server": {"address": address, **network}, "federation": {"max_updates": 1}}
    (folder / "deployment.toml").write_text(tomli_w.dumps(settings))
    return ServerProject(folder)


@pytest.mark.parametrize(
    ("address", "listen", "listens"),
    [
        ("fl.example:1", "0.0.0.0", "0.0.0.0:1"),
        ("fl.example:1", "[::]", "[::]:1"),
        ("fl.example:1", "::", "[::]:1"),
        ("fl.example:1", "10.0.0.5", "10.0.0.5:1"),
        ("fl.example:1", "fd00::2", "[fd00::2]:1"),
        ("localhost:1", "0.0.0.0", "127.0.0.1:1"),
        ("127.0.0.2:1", "0.0.0.0", "127.0.0.2:1"),
        ("[::1]:1", "0.0.0.0", "[::1]:1"),
        ("127.0.0.1:1", "10.0.0.5", "10.0.0.5:1"),
    ],
)
def test_a_server_for_this_machine_alone_listens_on_loopback(
    address: str, listen: str, listens: str
) -> None:
    network = NetworkSettings(address=address, listen=listen)
    assert network.listen_address == listens


@pytest.mark.parametrize("listen", ["10.0.0.5:9092", "[::]:9092", "http://x", ""])
def test_the_address_to_listen_on_has_no_port(listen: str) -> None:
    with pytest.raises(SettingsError, match=r"listen is .*; allowed: an address of this machine"):
        NetworkSettings(listen=listen)


def test_a_large_log_is_moved_aside_while_the_server_goes_on_writing(tmp_path: Path) -> None:
    run = tmp_path / "f" / "run"
    server = RunningServer(project_at(tmp_path / "f", listen="127.0.0.1"), run)
    log = server.project.state / "server.log"
    try:
        server.start()
        until(lambda: server.poll() is not None or (run / "checkpoint.safetensors").exists())
        with log.open("ab") as file:
            file.write(b"words\n" * 2_000_000)
        whole = log.read_bytes()
        assert server.poll() is None
        assert log.with_name("server.log.1").read_bytes() == whole
    finally:
        server.stop()
    assert log.read_text() == "ERROR: the server was stopped\n"


@pytest.mark.parametrize("listen", ["127.0.0.2", "::1"])
def test_a_server_that_listens_on_one_address_comes_up(tmp_path: Path, listen: str) -> None:
    run = tmp_path / "f" / "run"
    server = RunningServer(project_at(tmp_path / "f", listen=listen), run)
    try:
        server.start()
        begun = run / "checkpoint.safetensors"  # it listens by then
        until(lambda: server.poll() is not None or begun.exists())
        assert begun.exists()
        with socket.create_connection((listen, server.project.network.port), 10.0):
            pass
    finally:
        server.stop()


def test_a_second_server_is_refused_in_one_line_and_changes_nothing(tmp_path: Path) -> None:
    project = project_at(tmp_path / "f")
    project.state.mkdir()
    outcome = project.state / "outcome.json"
    outcome.write_text("the first server's")
    first = FolderLock(project.folder)
    second = RunningServer(project, project.folder / "run")
    try:
        with pytest.raises(ProjectError, match="a server is running already from ") as caught:
            second.start()
    finally:
        second.stop()
        first.release()
    assert "\n" not in str(caught.value)
    assert outcome.read_text() == "the first server's"
    assert (second.restarted, second.children) == (0, {})
    assert [path.name for path in project.state.iterdir()] == ["outcome.json"]


def test_a_server_that_was_stopped_lets_another_have_its_folder(tmp_path: Path) -> None:
    project = project_at(tmp_path / "f")
    (project.folder / "run").mkdir()
    (project.folder / "run" / "summary.json").write_text("{}")
    for _ in range(2):
        server = RunningServer(project, project.folder / "run")
        with pytest.raises(RunFolderError, match="is finished"):
            server.start()
        server.stop()


def fill_disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    usage = SimpleNamespace(free=free)
    monkeypatch.setattr("fedcompass.deployment.server.disk_room.shutil.disk_usage", lambda _: usage)


def test_a_full_disk_under_the_state_is_told_at_once_and_ends_the_server_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_at(tmp_path / "f")
    run = project.folder / "run"
    run.mkdir()
    audit = run / "audit.jsonl"
    audit.write_text('{"at": 7.5, "what": "accepted", "who": "north"}\n{"at": 8.0, "wh')
    server = RunningServer(project, run)
    server._child = Child(Program("x", "no.such.module", tmp_path / "x"))
    fill_disk(monkeypatch, free=0)
    outcome = server.poll()
    assert outcome is not None
    assert outcome.error == (
        f"the disk of {project.state} is full: 0 bytes are left, the run and an answer need "
        "1,048,576; nothing accepted is lost. Free some space, then resume"
    )
    assert (outcome.again, server.restarted) == (False, 0)
    last = json.loads(audit.read_text().splitlines()[-1])
    assert (last["what"], last["at"], last["why"]) == ("disk full", 7.5, outcome.error)


def test_a_server_does_not_start_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_at(tmp_path / "f")
    fill_disk(monkeypatch, free=5)
    server = RunningServer(project, project.folder / "run")
    with pytest.raises(RunFolderError, match=r"is full: 5 bytes are left.*Free some space"):
        server.start()
    server.stop()
    assert server.children == {}


def test_room_is_measured_by_the_runs_own_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, free=3_000_000)
    assert lack_of_room(tmp_path, tmp_path / "run") is None
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint.safetensors").write_bytes(bytes(4_000_000))
    full = lack_of_room(tmp_path, tmp_path / "run") or ""
    assert "3,000,000 bytes are left, the run and an answer need 12,000,000" in full


def test_what_sites_are_sending_does_not_stop_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, free=1_000_000)
    assert lack_of_room(tmp_path, tmp_path / "run") is not None
    (tmp_path / "wire" / "uploads").mkdir(parents=True)
    (tmp_path / "wire" / "uploads" / "x.part").write_bytes(bytes(100_000))
    assert lack_of_room(tmp_path, tmp_path / "run") is None


def until(happened: Callable[[], bool]) -> None:
    end = monotonic() + 120.0
    while not happened():
        assert monotonic() < end, "it did not happen"
        sleep(0.05)
