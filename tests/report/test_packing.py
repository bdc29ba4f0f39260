"""Lines packed into the page."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fedcompass.errors import JournalError, RunFolderError
from fedcompass.report.packing import Packed, pack
from fedcompass.report.run_files import RunFiles


def unpacked(text: str) -> list[dict[str, Any]]:
    lines = gzip.decompress(base64.b64decode(text)).decode().splitlines()
    return [json.loads(line) for line in lines]


def pack_journal(path: Path, limit: int) -> Packed:
    return pack(RunFiles(path.parent).records(), limit)


def pack_metrics(path: Path, limit: int) -> Packed:
    return pack(RunFiles(path.parent).evaluations(), limit)


def journal_of(path: Path, lines: int) -> Path:
    """A journal of so many lines after its header, hard to compress."""
    with path.open("w") as file:
        file.write('{"journal":1}\n')
        for number in range(lines):
            at = (number * 0.6180339887498949) % 1 * 1000
            record = {"event": "UpdateArrived", "at": at, "client": str(number), "nested": [[at]]}
            file.write(json.dumps(record) + "\n")
    return path


def test_lines_survive_packing_with_nine_digits(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "journal.jsonl", 3)
    packed = pack_journal(path, 10**6)
    header, _, second, third = unpacked(packed.text)
    assert header == {"journal": 1}
    assert second["at"] == 618.033989
    assert third["nested"] == [[236.067977]]
    assert packed.left_out == 0


def test_a_journal_that_is_too_long_loses_its_end_and_says_how_much(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "journal.jsonl", 8_000)
    packed = pack_journal(path, 40_000)
    kept = unpacked(packed.text)
    assert len(packed.text) < 100_000
    assert packed.left_out > 0
    assert len(kept) + packed.left_out == 8_001
    assert kept[:2] == unpacked(pack_journal(path, 10**7).text)[:2]


def test_the_same_lines_give_the_same_bytes(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "journal.jsonl", 50)
    assert pack_journal(path, 10**6) == pack_journal(path, 10**6)


def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "journal.jsonl", 2)
    path.write_text(path.read_text() + '{"event":"Upda')
    assert len(unpacked(pack_journal(path, 10**6).text)) == 3
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"time": 0.0, "accuracy": null}\n{"time": 1.')
    assert unpacked(pack_metrics(metrics, 10**6).text) == [{"time": 0.0, "accuracy": None}]


def test_what_is_not_there_is_empty(tmp_path: Path) -> None:
    assert pack_journal(tmp_path / "journal.jsonl", 10).text == ""
    assert pack_metrics(tmp_path / "metrics.jsonl", 10).text == ""


def test_damage_is_named(tmp_path: Path) -> None:
    journal, metrics = tmp_path / "journal.jsonl", tmp_path / "metrics.jsonl"
    journal.write_text('{"journal":1}\n{\n{}\n')
    metrics.write_text('{"time": 0}\nnonsense\n')
    with pytest.raises(JournalError, match="line 2 is damaged"):
        pack_journal(journal, 10**6)
    with pytest.raises(RunFolderError, match="line 2 is damaged"):
        pack_metrics(metrics, 10**6)
