"""The cluster that `--on` means, before Ray is asked: it waits minutes for one that is gone."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sweeps.small_sweeps import experiments

from fedcompass.errors import SettingsError
from fedcompass.sweeps.on_ray import cluster_address
from fedcompass.sweeps.running import run_all
from fedcompass.sweeps.store import Store


@pytest.fixture
def alive() -> Iterator[str]:
    """An address where somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def dead() -> Iterator[str]:
    """One where nobody does, nor can begin to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture(autouse=True)
def ray_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Ray notes the address of the newest cluster; nothing is noted at first."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path / "ray"


def note(folder: Path, address: str) -> None:
    folder.mkdir()
    (folder / "ray_current_cluster").write_text(address)


def test_a_cluster_that_answers_is_used_as_it_was_named(alive: str) -> None:
    assert cluster_address(alive) == alive
    assert cluster_address(f"ray://{alive}") == f"ray://{alive}"


def test_without_a_cluster_a_new_one_is_started() -> None:
    assert cluster_address("ray") == "local"


def test_the_cluster_that_runs_on_this_machine_is_used(ray_folder: Path, alive: str) -> None:
    note(ray_folder, alive)
    assert cluster_address("ray") == alive


def test_the_note_of_a_cluster_that_has_crashed_is_not_believed(
    ray_folder: Path, dead: str
) -> None:
    note(ray_folder, dead)
    assert cluster_address("ray") == "local"


def test_the_environment_comes_before_the_note(
    ray_folder: Path, alive: str, dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(ray_folder, dead)
    monkeypatch.setenv("RAY_ADDRESS", alive)
    assert cluster_address("ray") == alive
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert cluster_address("ray") == "local"


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_named_cluster_that_does_not_answer_is_one_line_at_once(
    scheme: str, dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = rf"is '{scheme}{dead}', and no Ray cluster answers there: .*refused; see whether"
    with pytest.raises(SettingsError, match=rf"^--on {refused}"):
        cluster_address(scheme + dead)
    monkeypatch.setenv("RAY_ADDRESS", scheme + dead)
    with pytest.raises(SettingsError, match=rf"^\$RAY_ADDRESS {refused}"):
        cluster_address("ray")


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"^--on is 'spark'; allowed: ray, ray://HOST:PORT or"):
        cluster_address("spark")


def test_a_sweep_does_not_wait_for_a_cluster_that_is_gone(tmp_path: Path, dead: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(SettingsError, match=r"no Ray cluster answers there: .*refused"):
        list(run_all(experiments(1), Store(tmp_path / "r.jsonl"), where=dead))
