import errno
import json
import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.memory_journal import MemoryJournal

from fedcompass.errors import JournalError
from fedcompass.runs.journal import (
    SCHEMA,
    FileJournal,
    NoJournal,
    lines_after,
    read_journal,
)
from fedcompass.scheduling.commands import Quarantine
from fedcompass.scheduling.events import ClientJoined, ClientLost

JOINED = ClientJoined(at=0.0, client="a", samples=3)
QUARANTINE = Quarantine(at=1.0, client="a")
LEFT = ClientLost(at=2.0, client="a")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def written(path: Path) -> FileJournal:
    journal = FileJournal(path, {"run": "r"})
    journal.event(JOINED)
    journal.command(QUARANTINE, weight=0.5)
    return journal


def test_a_journal_is_a_header_with_the_schema_then_a_line_for_each_event_and_command(
    path: Path,
) -> None:
    written(path).close()
    assert path.read_text() == (
        '{"journal":1,"run":"r","crc":2975645473}\n'
        '{"event":"ClientJoined","at":0.0,"client":"a","samples":3,"crc":889464799}\n'
        '{"command":"Quarantine","at":1.0,"client":"a","weight":0.5,"crc":2166084530}\n'
    )
    assert [number for number, _ in read_journal(path)] == [1, 2, 3]


def test_going_on_at_a_remembered_size_forgets_what_came_after_it(path: Path) -> None:
    journal = written(path)
    size = journal.flush()
    journal.event(LEFT)
    journal.close()
    resumed = FileJournal(path, {"run": "r"}, resume_at=size)
    resumed.event(JOINED)
    resumed.close()
    events = [record.get("event") for _, record in read_journal(path)]
    assert events == [None, "ClientJoined", None, "ClientJoined"]


def test_flush_gives_the_size_of_the_file_durable_or_not(tmp_path: Path) -> None:
    for durable in (False, True):
        path = tmp_path / f"durable-{durable}"
        journal = FileJournal(path, {}, durable=durable)
        journal.event(JOINED)
        assert journal.flush() == path.stat().st_size
        journal.close()
        journal.close()  # twice does no harm


def test_a_journal_shorter_than_the_checkpoint_says_is_refused_and_left_alone(path: Path) -> None:
    written(path).close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"has \d+ bytes, the checkpoint was made at 5000"):
        FileJournal(path, {}, resume_at=5000)
    assert path.read_bytes() == before


def test_a_new_journal_never_overwrites_a_file(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(JournalError, match="File exists"):
        FileJournal(path, {})
    assert path.read_text() == "precious"


def test_a_journal_to_resume_that_is_not_there_is_one_clear_line(path: Path) -> None:
    with pytest.raises(JournalError, match=r"journal\.jsonl cannot be written: No such file"):
        FileJournal(path, {}, resume_at=10)


@pytest.fixture
def no_room() -> Iterator[None]:
    """Files cannot grow beyond some bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_without_room_is_one_clear_line_naming_the_journal(
    path: Path, no_room: None
) -> None:
    journal = written(path)
    with pytest.raises(JournalError, match=r"journal\.jsonl cannot be written: File too large"):
        journal.flush()
    with pytest.raises(JournalError, match="File too large"):
        journal.close()
    journal.close()


def test_a_disk_without_room_is_noticed_while_writing_too(path: Path, no_room: None) -> None:
    journal = FileJournal(path, {})
    with pytest.raises(JournalError, match="File too large"):
        journal.event(ClientJoined(at=0.0, client="a" * 100_000, samples=1))
    journal.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that has no length")
def test_a_journal_that_cannot_be_cut_is_one_clear_line() -> None:
    with pytest.raises(JournalError, match="/dev/full cannot be written: Invalid argument"):
        FileJournal(Path("/dev/full"), {}, resume_at=0)


def test_a_disk_that_cannot_be_waited_for_is_one_clear_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(path, {}, durable=True)

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match="No space left on device"):
        journal.flush()
    monkeypatch.undo()
    journal.close()


def test_a_last_line_cut_off_by_a_crash_is_left_out(path: Path) -> None:
    written(path).close()
    whole = path.read_bytes()
    for cut in range(1, 20):
        path.write_bytes(whole[:-cut])
        assert [number for number, _ in read_journal(path)] == [1, 2]


def test_a_damaged_line_in_the_middle_is_named(path: Path) -> None:
    written(path).close()
    lines = path.read_bytes().splitlines(keepends=True)
    for damage in (
        lines[1][:20] + b"\n",
        b"\x00\x00\n",
        b"\xff\xfe{}\n",
        b"\n",
        b"[" * 9999 + b"\n",
    ):
        path.write_bytes(lines[0] + damage + lines[2])
        with pytest.raises(JournalError, match="line 2 is damaged"):
            list(read_journal(path))
    path.write_bytes(lines[0] + b"[1, 2]\n")
    with pytest.raises(JournalError, match=r"line 2 is not an object: \[1, 2\]"):
        list(read_journal(path))


def test_any_changed_byte_is_found_and_its_line_named(path: Path) -> None:
    written(path).close()
    whole = path.read_bytes()
    for place, byte in enumerate(whole[:-1]):
        path.write_bytes(whole[:place] + bytes([byte ^ 1]) + whole[place + 1 :])
        number = whole[:place].count(b"\n") + 1
        with pytest.raises(JournalError) as caught:
            list(read_journal(path))
        named = re.search(r"line (\d+) ", str(caught.value))
        assert named is not None, caught.value
        assert int(named[1]) in (number, number + 1)


def test_a_line_that_is_missing_doubled_or_moved_is_found(path: Path) -> None:
    written(path).close()
    header, joined, quarantine = path.read_bytes().splitlines(keepends=True)
    for lines in (
        [header, quarantine],
        [header, joined, joined, quarantine],
        [header, quarantine, joined],
        [joined, quarantine],
    ):
        path.write_bytes(b"".join(lines))
        with pytest.raises(JournalError, match=r"line [123] is"):
            list(read_journal(path))


def test_a_journal_from_before_lines_had_checksums_is_read_and_gone_on_with(path: Path) -> None:
    path.write_text('{"journal":1}\n{"event":"ClientLost","at":2.0,"client":"a"}\n')
    journal = FileJournal(path, {}, resume_at=path.stat().st_size)
    journal.event(JOINED)
    journal.close()
    assert [record.get("event") for _, record in read_journal(path)] == [
        None,
        "ClientLost",
        "ClientJoined",
    ]
    path.write_text(path.read_text().replace('"ClientLost","at":2.0', '"ClientLost","at":2.5'))
    with pytest.raises(JournalError, match="line 3 is damaged, or one right before it"):
        list(read_journal(path))


def test_a_line_without_a_checksum_among_lines_with_one_is_damaged(path: Path) -> None:
    written(path).close()
    with path.open("a") as file:
        file.write('{"event":"ClientLost","at":2.0,"client":"a"}\n')
    with pytest.raises(JournalError, match="line 4 is damaged: it has no checksum"):
        list(read_journal(path))


def test_what_follows_a_checkpoint_is_given_only_of_the_journal_it_was_made_with(
    path: Path, tmp_path: Path
) -> None:
    journal = written(path)
    size, crc = journal.flush(), journal.crc
    journal.event(LEFT)
    journal.close()
    assert [line.record["event"] for line in lines_after(path, size, crc)] == ["ClientLost"]
    assert len(lines_after(path, size, None)) == 1  # a checkpoint from before it knew the checksum
    other = tmp_path / "other.jsonl"
    FileJournal(other, {"run": "s"}).close()
    other.write_bytes(other.read_bytes() + b"x" * size)
    with pytest.raises(JournalError, match="is not the journal that the checkpoint"):
        lines_after(other, size, crc)
    path.write_bytes(b"abc")
    with pytest.raises(JournalError, match="has 3 bytes, the checkpoint was made at"):
        lines_after(path, size, crc)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no header line"),
        (b"hello", "has no header line"),
        (b'{"journal":1', "has no header line"),
        (b"time,event\n", "line 1 is damaged"),
        (b"\x89PNG\r\n\x1a\n", "line 1 is damaged"),
        (b"42\n", "line 1 is not an object"),
        (b'{"name":"x"}\n', "line 1 is not a journal's header"),
        (b'{"journal":99}\n', "line 1 says schema 99; this version reads schema 1"),
        (b'{"journal":"1"}\n', "line 1 says schema '1'"),
    ],
)
def test_a_file_that_is_not_a_journal_gives_one_clear_line(
    path: Path, content: bytes, message: str
) -> None:
    path.write_bytes(content)
    with pytest.raises(JournalError, match=message) as caught:
        list(read_journal(path))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_file_or_a_folder_gives_one_clear_line(path: Path, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"No such file or directory; give a run's"):
        list(read_journal(path))
    with pytest.raises(JournalError, match="Is a directory"):
        list(read_journal(tmp_path))


def test_a_memory_journal_keeps_records_and_no_journal_keeps_nothing() -> None:
    memory, nothing = MemoryJournal({"run": "r"}), NoJournal()
    for journal in (memory, nothing):
        journal.event(JOINED)
        journal.command(QUARANTINE, weight=0.5)
    assert memory.records[0] == {"journal": SCHEMA, "run": "r"}
    assert [json.dumps(record)[:10] for record in memory.records[1:]] == [
        '{"event": ',
        '{"command"',
    ]
