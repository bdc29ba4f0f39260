"""A run folder that lost a file, or in which one was damaged or swapped, is refused in one line."""

import json
import re
import shutil
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import save_file
from tests.deployment.exactly_once import check_exactly_once
from tests.deployment.fake_network import Clock, FakeNetwork, federation, run_until, settings, sites

from fedcompass.deployment.operator.running_server import _check_run
from fedcompass.errors import CheckpointError, FedcompassError, JournalError, RunFolderError

pytestmark = pytest.mark.usefixtures("quick_disk")

BUFFERED = settings({"name": "fedbuff", "buffer_size": 6}, max_updates=4)


@pytest.fixture
def network(request: pytest.FixtureRequest, tmp_path: Path) -> FakeNetwork:
    files = getattr(request, "param", False)
    return FakeNetwork(Clock(), sites(0.1, 0.25, uploads=tmp_path / "uploads" if files else None))


both_ways = pytest.mark.parametrize("network", [False, True], ids=["memory", "file"], indirect=True)
"""Updates came in memory, or as files."""


@pytest.fixture
def stopped(tmp_path: Path, network: FakeNetwork) -> Path:
    """A run stopped with some updates accepted after its last checkpoint."""
    folder = tmp_path / "run"
    running = federation(folder, network, BUFFERED)
    updates = folder / "updates"
    run_until(running, lambda f: f.coordinator.version >= 1 and len(list(updates.iterdir())) >= 3)
    running.close()
    network.restart()
    return folder


def refusal(folder: Path, network: FakeNetwork, kind: type[FedcompassError]) -> str:
    """Why the folder is not resumed; nothing in it has changed."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(kind) as caught:
        federation(folder, network, BUFFERED, resume=True)
    assert "\n" not in str(caught.value)
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert kept == before
    return str(caught.value)


def test_a_run_whose_checkpoint_is_gone_is_not_begun_anew(
    stopped: Path, network: FakeNetwork
) -> None:
    (stopped / "checkpoint.safetensors").unlink()
    message = refusal(stopped, network, RunFolderError)
    assert "has events in its journal but no checkpoint.safetensors" in message
    for resume in (True, False):
        with pytest.raises(RunFolderError, match="restore that from a backup, or begin a new run"):
            _check_run(stopped, resume)


def test_a_server_stopped_before_the_first_event_begins_anew(
    tmp_path: Path, network: FakeNetwork
) -> None:
    federation(tmp_path, network, BUFFERED).close()
    (tmp_path / "checkpoint.safetensors").unlink()
    federation(tmp_path, network, BUFFERED, resume=True).run()
    check_exactly_once(tmp_path, BUFFERED)


@pytest.mark.parametrize("line", [3, -2], ids=["before the checkpoint", "after it"])
def test_a_changed_number_in_the_journal_is_named_by_its_line(
    stopped: Path, network: FakeNetwork, line: int
) -> None:
    path = stopped / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert json.loads(lines[line])["at"] >= 0
    lines[line] = re.sub(r'"at":\d', '"at":7', lines[line])
    path.write_text("".join(lines))
    number = line % len(lines) + 1
    assert f"journal.jsonl: line {number} is damaged" in refusal(stopped, network, JournalError)


def test_a_lost_line_of_the_journal_is_found(stopped: Path, network: FakeNetwork) -> None:
    path = stopped / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:-4], *lines[-3:]]))
    message = refusal(stopped, network, JournalError)
    assert f"journal.jsonl: line {len(lines) - 3} is damaged" in message


def test_a_last_line_cut_by_a_crash_costs_nothing(stopped: Path, network: FakeNetwork) -> None:
    path = stopped / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    federation(stopped, network, BUFFERED, resume=True).run()
    check_exactly_once(stopped, BUFFERED)


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "updates"])
def test_one_flipped_bit_in_a_checkpoint_or_an_update_is_found(
    stopped: Path, network: FakeNetwork, name: str
) -> None:
    path = stopped / name if name != "updates" else sorted((stopped / name).iterdir())[0]
    flip(path, -6)  # in the last tensor
    message = refusal(stopped, network, CheckpointError)
    assert f"{path.name} is damaged: its checksum is" in message


@pytest.mark.parametrize("network", [True], indirect=True)
def test_one_flipped_bit_anywhere_in_the_file_that_a_site_sent_is_found(
    stopped: Path, network: FakeNetwork
) -> None:
    path = sorted((stopped / "updates").iterdir())[0]
    whole = path.read_bytes()
    for place in (*range(0, len(whole), 7), len(whole) - 1, len(whole) - 2):
        flip(path, place)
        assert path.name in refusal(stopped, network, CheckpointError), place
        path.write_bytes(whole)
    for length in (0, 9, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert path.name in refusal(stopped, network, CheckpointError), length
        path.write_bytes(whole)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_checkpoint_of_another_run_is_refused(
    stopped: Path, network: FakeNetwork, tmp_path: Path
) -> None:
    other = federation(tmp_path / "other", network, BUFFERED)
    run_until(other, lambda f: f.coordinator.version >= 1)
    other.close()
    network.restart()
    shutil.copy(tmp_path / "other" / "checkpoint.safetensors", stopped)
    assert "restore both from the same backup" in refusal(stopped, network, JournalError)


@both_ways
def test_swapped_updates_are_refused(stopped: Path, network: FakeNetwork) -> None:
    first, second = sorted((stopped / "updates").iterdir())[:2]
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    message = refusal(stopped, network, CheckpointError)
    assert re.search(r"\d+\.\w+ holds another update: its \w+ is .*, the journal", message)


@both_ways
def test_an_update_of_another_run_is_refused(
    stopped: Path, network: FakeNetwork, tmp_path: Path
) -> None:
    again = FakeNetwork(Clock(), network.sites)
    other = federation(tmp_path / "other", again, BUFFERED)
    mine = sorted((stopped / "updates").iterdir())[0]
    run_until(other, lambda _: (tmp_path / "other" / "updates" / mine.name).exists())
    other.close()
    shutil.copy(tmp_path / "other" / "updates" / mine.name, mine)
    assert "its run is 'other-" in refusal(stopped, network, CheckpointError)


def test_a_folder_from_before_there_were_checksums_is_resumed(
    stopped: Path, network: FakeNetwork
) -> None:
    journal = stopped / "journal.jsonl"
    before = journal.read_text()
    journal.write_text(re.sub(r',"crc":\d+}', "}", before))
    for path in [stopped / "checkpoint.safetensors", *(stopped / "updates").iterdir()]:
        as_before_checksums(path, before)
    federation(stopped, network, BUFFERED, resume=True).run()
    check_exactly_once(stopped, BUFFERED)


def as_before_checksums(path: Path, journal: str) -> None:
    """Write a checkpoint or an update as earlier versions did."""
    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()["fedcompass"])
        del facts["crc"]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if facts.pop("journal_crc", None) is not None:
        covered = journal[: facts["journal_bytes"]]
        facts["journal_bytes"] = len(re.sub(r',"crc":\d+}', "}", covered))
    for name in ("version", "steps_done"):
        facts.pop(name, None)
    if "client" in facts:
        del facts["run"]
    save_file(tensors, path, {"fedcompass": json.dumps(facts)})
