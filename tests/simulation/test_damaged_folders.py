"""A stopped run that lost a file, or in which one was damaged or swapped, is not resumed."""

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import tomli_w
from safetensors import safe_open
from safetensors.torch import save_file
from tests.simulation.tiny_runs import (
    assert_same_run,
    eventful,
    experiment,
    problem,
    resumed,
    stopped_run,
)

from fedcompass.errors import CheckpointError, FedcompassError, JournalError, RunFolderError
from fedcompass.experiment import record_key
from fedcompass.runs.folder import RunFolder
from fedcompass.simulation.run import simulate

pytestmark = pytest.mark.whatever_is_learned  # files, names and twins


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    path = tmp_path / "stopped"
    stopped_run(experiment(), path, saved=12, stopped=16)
    return path


def refusal(path: Path, kind: type[FedcompassError]) -> str:
    """Why the folder is not resumed; nothing in it has changed."""
    before = {file: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(kind) as caught:
        resumed(path)
    assert "\n" not in str(caught.value)
    assert {file: file.read_bytes() for file in path.iterdir()} == before
    return str(caught.value)


def test_a_run_whose_checkpoint_is_gone_is_not_started_over(stopped: Path) -> None:
    (stopped / "checkpoint.safetensors").unlink()
    message = refusal(stopped, RunFolderError)
    assert "has events in its journal but no checkpoint.safetensors to resume from" in message


@pytest.mark.parametrize("line", [4, -3], ids=["before the checkpoint", "after it"])
def test_a_changed_number_in_the_journal_is_named_by_its_line(stopped: Path, line: int) -> None:
    path = stopped / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[line] = re.sub(r'"at":\d', '"at":7', lines[line])
    path.write_text("".join(lines))
    message = refusal(stopped, JournalError)
    assert f"journal.jsonl: line {line % len(lines) + 1} is damaged" in message


def test_one_flipped_bit_in_a_checkpoint_is_found(stopped: Path) -> None:
    path = stopped / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)
    message = refusal(stopped, CheckpointError)
    assert "checkpoint.safetensors is damaged: its checksum is" in message


def test_a_checkpoint_from_elsewhere_in_another_run_is_refused(
    stopped: Path, tmp_path: Path
) -> None:
    """Of the same settings, but not of this journal: the clients dropped out otherwise."""
    other = tmp_path / "other"
    stopped_run(eventful("fedcompass"), other, saved=12, stopped=16)
    shutil.copy(other / "journal.jsonl", stopped)
    message = refusal(stopped, JournalError)
    assert "is not the journal that the checkpoint beside it was made with" in message


def test_a_folder_from_before_there_were_checksums_is_resumed(
    stopped: Path, tmp_path: Path
) -> None:
    simulate(experiment(), problem=problem(), folder=tmp_path / "whole")
    without_checksums(stopped)
    resumed(stopped)
    for folder in (stopped, tmp_path / "whole"):
        path = folder / "journal.jsonl"
        path.write_text(re.sub(r',"crc":\d+}', "}", path.read_text()))
        text = (folder / "summary.json").read_text()
        (folder / "summary.json").write_text(re.sub(r'"journal_bytes": \d+', "", text))
    assert_same_run(tmp_path / "whole", stopped)


def test_a_run_that_a_version_with_fewer_settings_began_is_resumed(
    stopped: Path, tmp_path: Path
) -> None:
    simulate(experiment(), problem=problem(), folder=tmp_path / "whole")
    with_fewer_settings(stopped)
    resumed(stopped)
    shutil.copy(tmp_path / "whole" / "experiment.toml", stopped)  # all but that is the same
    assert_same_run(tmp_path / "whole", stopped)


def test_a_changed_setting_is_noticed_in_a_folder_of_an_earlier_version(stopped: Path) -> None:
    with_fewer_settings(stopped)
    path = stopped / "experiment.toml"
    path.write_text(path.read_text().replace("horizon = ", "horizon = 1"))
    assert "experiment.toml was changed after the run began" in refusal(stopped, RunFolderError)


def with_fewer_settings(folder: Path) -> None:
    """Write a stopped run's settings and checkpoint as a version did that had not all settings."""
    path = folder / "experiment.toml"
    record = tomllib.loads(path.read_text())
    del record["stop_late_by"], record["fleet"]["nap_seconds"]
    path.write_text(tomli_w.dumps(record))
    run = RunFolder(folder)
    saved = run.checkpoint()
    facts = {**saved.facts, "experiment": record_key(record), "statistics": {"clients": {}}}
    del facts["made_with"]["strategy"]["scheduling"]["warm_up"]
    run.save_checkpoint(saved.tensors, facts)


def without_checksums(folder: Path) -> None:
    """Write a stopped run's journal and checkpoint as earlier versions did."""
    journal, path = folder / "journal.jsonl", folder / "checkpoint.safetensors"
    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()["fedcompass"])
        del facts["crc"]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    covered = journal.read_text()[: facts["journal_bytes"]]
    facts["journal_bytes"] = len(re.sub(r',"crc":\d+}', "}", covered))
    del facts["journal_crc"], facts["problem"]
    save_file(tensors, path, {"fedcompass": json.dumps(facts)})
    journal.write_text(re.sub(r',"crc":\d+}', "}", journal.read_text()))
