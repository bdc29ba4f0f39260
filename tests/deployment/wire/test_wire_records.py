"""What the wire keeps on disk: the roster, tasks and receipts, files in pieces, answers."""

import asyncio
import hashlib
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire import task_book
from fedcompass.deployment.wire.arriving import ArrivingFile, OneBehind, write_hashed
from fedcompass.deployment.wire.limits import Limits, Transfer
from fedcompass.deployment.wire.model_files import ModelFiles
from fedcompass.deployment.wire.outbox import Outbox
from fedcompass.deployment.wire.published_models import PublishedModels
from fedcompass.deployment.wire.site_roster import (
    RosterFile,
    fingerprint_of,
    read_roster,
    roster_text,
)
from fedcompass.deployment.wire.task_book import GivenTask, TaskBook
from fedcompass.errors import ProjectError, WireError

A, B = "a" * 64, "b" * 64
CONTENT = bytes(range(256)) * 10


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# The roster.


def test_a_roster_names_sites_by_their_certificates() -> None:
    text = roster_text({"north": [A], "south.lab-2": [B, "c" * 64]})
    assert read_roster(text).names == {A: "north", B: "south.lab-2", "c" * 64: "south.lab-2"}


def test_a_roster_keeps_the_order_of_sites_and_of_a_sites_certificates() -> None:
    sites = {"south": ["c" * 64, B], "north": [A]}
    read = read_roster(roster_text(sites)).fingerprints
    assert read == sites
    assert list(read) == ["south", "north"]


def test_fingerprints_may_be_written_as_openssl_prints_them() -> None:
    printed = ":".join(["AB"] * 32)
    assert read_roster(f'north = ["{printed}"]').names == {"ab" * 32: "north"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("north", "not TOML"),
        (f'"no/rth" = ["{A}"]', "'no/rth' is no site's name"),
        (f'north = "{A}"', "north has no list of fingerprints"),
        ('north = ["ab"]', "north: 'ab' is no SHA-256 fingerprint"),
        (f'north = ["{A}"]\nsouth = ["{A}"]', "north and south have the same certificate"),
    ],
)
def test_a_roster_that_cannot_be_right_is_refused(text: str, told: str) -> None:
    with pytest.raises(ProjectError, match=told):
        read_roster(text)


@given(st.text(max_size=200))
def test_no_text_whatever_does_more_than_be_refused(text: str) -> None:
    with suppress(ProjectError):
        read_roster(text)


def test_a_roster_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "roster.toml"
    path.write_text(roster_text({"north": [A]}))
    file = RosterFile(path)
    path.write_text(roster_text({"north": [A], "south": [B]}))
    assert file.refresh() is None
    assert set(file.roster.names) == {A, B}
    path.unlink()
    problem = file.refresh()
    assert problem is not None
    assert "No such file" in problem
    assert set(file.roster.names) == {A, B}


def test_a_missing_roster_is_told_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=f"roster {tmp_path}/roster.toml: No such file"):
        RosterFile(tmp_path / "roster.toml")


def test_a_fingerprint_is_of_a_certificate() -> None:
    with pytest.raises(ProjectError, match="not a certificate in the PEM format"):
        fingerprint_of(b"hello")


# How slow a transfer may be.


def test_a_transfer_has_some_grace_and_then_needs_its_rate() -> None:
    limits = Limits(grace=30.0, least_rate=1000.0, stall=60.0)
    transfer = Transfer(limits, began=100.0)
    assert transfer.seconds_allowed(100.0) == 30.0
    assert transfer.seconds_allowed(129.0) == 1.0
    assert transfer.seconds_allowed(131.0) < 0
    transfer.moved = 10_000
    assert transfer.seconds_allowed(131.0) == 9.0
    transfer.moved = 10**9
    assert transfer.seconds_allowed(131.0) == 60.0


# Tasks and receipts.


def give(book: TaskBook, site: str = "north", number: int = 1) -> GivenTask:
    task = GivenTask(
        site=site,
        run="trial",
        number=number,
        steps=5,
        version=0,
        model=A,
        model_bytes=10,
        form="model",
        payload_bytes=10,
    )
    return book.give(task)


def answer(task: GivenTask, content: str = B) -> pb.Answer:
    return pb.Answer(task=task.id, form="model", payload_bytes=10, digest=content)


def test_a_task_is_given_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    book = TaskBook(tmp_path / "tasks.jsonl")
    task = give(book)
    assert give(book) == task
    assert give(TaskBook(tmp_path / "tasks.jsonl")) == task
    assert give(book, number=2).id != task.id
    assert give(book, site="south").id != task.id


def test_only_its_site_finds_a_task_open(tmp_path: Path) -> None:
    book = TaskBook(tmp_path / "tasks.jsonl")
    task = give(book)
    assert book.look_up("north", answer(task)) == task
    assert book.open_task("south", task.id) is None
    refusal = pb.Receipt(task=task.id, reason="this site has no task of this id")
    assert book.look_up("south", answer(task)) == refusal
    book.close(task, answer(task), accepted=True, reason="")
    assert book.look_up("south", answer(task)) == refusal


def test_a_receipt_is_the_same_ever_after(tmp_path: Path) -> None:
    book = TaskBook(tmp_path / "tasks.jsonl")
    task = give(book)
    receipt = book.close(task, answer(task), accepted=False, reason="not finite")
    for one in (book, TaskBook(tmp_path / "tasks.jsonl")):
        assert one.look_up("north", answer(task)) == receipt
        other = one.look_up("north", answer(task, A))
        assert isinstance(other, pb.Receipt)
        assert other.reason == "this task was answered already, with other content"
        assert one.open_tasks("north") == []


def test_whatever_is_answered_to_a_withdrawn_task_is_too_late(tmp_path: Path) -> None:
    book = TaskBook(tmp_path / "tasks.jsonl")
    task = give(book)
    book.withdraw(task)
    for content in (A, B):
        told = book.look_up("north", answer(task, content))
        assert isinstance(told, pb.Receipt)
        assert (told.accepted, told.reason) == (False, "it came too late: the task was given up")


def test_a_line_that_a_crash_cut_off_is_as_if_it_had_not_been(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    book = TaskBook(path)
    first, _ = give(book), give(book, number=2)
    path.write_bytes(path.read_bytes()[:-10])
    assert TaskBook(path).open_tasks("north") == [first]


def written(path: Path) -> tuple[GivenTask, GivenTask, pb.Receipt]:
    """A book with two open tasks, the first of the south, and a receipt between them."""
    book = TaskBook(path)
    first, closed, last = give(book, site="south"), give(book), give(book, number=2)
    return first, last, book.close(closed, answer(closed), accepted=True, reason="")


def test_no_flipped_bit_changes_a_task_or_a_receipt(tmp_path: Path, quick_disk: None) -> None:
    path = tmp_path / "tasks.jsonl"
    first, last, receipt = written(path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
        )
        book = TaskBook(path)
        assert book.open_tasks("south") in ([], [first]), place
        tasks = book.open_tasks("north")  # where its receipt is lost, a task is open again
        assert [task for task in tasks if task.id != receipt.task] in ([], [last]), place
        told = book.look_up("north", pb.Answer(task=receipt.task, digest=B))
        assert isinstance(told, GivenTask) or told == receipt or "no task" in told.reason, place
        assert book.damaged >= (place < len(whole) - 1), place
        assert TaskBook(path).damaged == 0, place  # it is told once


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b'{"given": {"id": 1}}', b'{"crc": 1}', b"[1]"]
)
def test_a_line_that_is_none_costs_no_other(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "tasks.jsonl"
    first, last, receipt = written(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], line + b"\n", *lines[2:]]))
    book = TaskBook(path)
    assert book.damaged == 1
    assert (book.open_tasks("south"), book.open_tasks("north")) == ([first], [last])
    assert book.look_up("north", pb.Answer(task=receipt.task, digest=B)) == receipt


def test_old_receipts_are_forgotten_and_the_file_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_disk: None
) -> None:
    monkeypatch.setattr(task_book, "_MOST_RECEIPTS", 10)
    path = tmp_path / "tasks.jsonl"
    book = TaskBook(path)
    tasks = [give(book, number=number) for number in range(600)]
    for task in tasks[:-1]:
        book.close(task, answer(task), accepted=True, reason="")
    again = TaskBook(path)
    assert len(path.read_text().splitlines()) == 11
    assert again.open_tasks("north") == tasks[-1:]
    known = [
        isinstance(t, pb.Receipt) and t.accepted
        for t in (again.look_up("north", answer(task)) for task in tasks)
    ]
    assert known == [False] * 589 + [True] * 10 + [False]
    assert TaskBook(path).open_tasks("north") == tasks[-1:]


# Files in pieces.


def test_a_file_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    file = ArrivingFile(tmp_path / "file", len(CONTENT), digest(CONTENT))
    file.add(CONTENT[:1000])
    with pytest.raises(WireError, match="1000 of 2560 bytes came"):
        file.finish()
    again = ArrivingFile(tmp_path / "file", len(CONTENT), digest(CONTENT))
    assert again.offset == 1000
    again.add(CONTENT[1000:])
    assert again.finish().read_bytes() == CONTENT


def test_a_file_that_is_whole_and_was_not_used_is_not_sent_again(tmp_path: Path) -> None:
    file = ArrivingFile(tmp_path / "file", len(CONTENT), digest(CONTENT))
    file.add(CONTENT)
    file.finish()
    again = ArrivingFile(tmp_path / "file", len(CONTENT), digest(CONTENT))
    assert again.offset == len(CONTENT)
    assert again.finish().read_bytes() == CONTENT


def test_a_damaged_part_is_noticed_at_the_end_and_removed(tmp_path: Path) -> None:
    file = ArrivingFile(tmp_path / "file", len(CONTENT), digest(CONTENT))
    file.add(CONTENT[:1000])
    [part] = tmp_path.iterdir()
    part.write_bytes(bytes(1000))
    again = ArrivingFile(tmp_path / "file", len(CONTENT), digest(CONTENT))
    again.add(CONTENT[1000:])
    with pytest.raises(WireError, match="do not have the digest"):
        again.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_is_too_long_begins_anew(tmp_path: Path) -> None:
    file = ArrivingFile(tmp_path / "file", len(CONTENT), digest(CONTENT))
    [part] = tmp_path.iterdir()
    part.write_bytes(bytes(5000))
    assert file.offset == ArrivingFile(tmp_path / "file", len(CONTENT), digest(CONTENT)).offset == 0


@given(cuts=st.lists(st.integers(0, len(CONTENT)), max_size=6))
def test_a_file_is_the_same_however_it_was_cut_and_interrupted(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut-file"
    path.unlink(missing_ok=True)
    places = [0, *sorted(cuts), len(CONTENT)]
    for end in places:
        file = ArrivingFile(path, len(CONTENT), digest(CONTENT))
        if file.offset < end:
            file.add(CONTENT[file.offset : end])
    assert file.finish().read_bytes() == CONTENT


# Models.


def test_a_damaged_model_is_fetched_again(tmp_path: Path) -> None:
    models, name = ModelFiles(tmp_path), digest(CONTENT)
    arriving = models.arriving(name, len(CONTENT))
    arriving.add(CONTENT)
    assert models.whole(name) is None  # yet
    assert models.arrived(arriving) == models.whole(name) == tmp_path / name
    (tmp_path / name).write_bytes(bytes(len(CONTENT)))
    assert ModelFiles(tmp_path).whole(name) is None
    assert list(tmp_path.iterdir()) == []


def test_models_that_nobody_needs_are_removed(tmp_path: Path) -> None:
    models = ModelFiles(tmp_path)
    old, new = digest(b"old"), digest(b"new")
    for content in (b"old", b"new"):
        (tmp_path / digest(content)).write_bytes(content)
    models.arriving(digest(b"part"), 4).add(b"pa")
    models.keep_only({new})
    assert models.whole(old) is None
    assert [path.name for path in tmp_path.iterdir()] == [new]


@given(cuts=st.lists(st.integers(0, 40)), offset=st.integers(0, 50))
def test_a_published_model_is_sent_in_pieces_of_one_length_from_any_offset(
    cuts: list[int], offset: int
) -> None:
    content = bytes(range(40))
    ends = [0, *sorted(cuts), 40]
    models = PublishedModels()
    pieces = [memoryview(content)[begin:end] for begin, end in pairwise(ends)]
    assert models.publish(pieces) == (digest(content), 40)
    with patch("fedcompass.deployment.wire.published_models.PIECE_BYTES", 7):
        sent = list(models.pieces(digest(content), offset))
    assert b"".join(sent) == content[offset:]
    assert all(len(piece) == 7 for piece in sent[:-1])
    assert all(sent)


def test_a_published_model_that_nobody_needs_is_forgotten() -> None:
    models = PublishedModels()
    for content in (b"old", b"new"):
        models.publish([content])
    models.keep_only({digest(b"new")})
    assert [digest(content) in models for content in (b"old", b"new")] == [False, True]


def test_a_file_is_hashed_while_it_is_written(tmp_path: Path) -> None:
    pieces: list[bytes | memoryview] = [
        CONTENT[:7],
        memoryview(CONTENT)[7:5000],
        b"",
        CONTENT[5000:],
    ]
    assert write_hashed(tmp_path / "file", pieces) == (digest(CONTENT), len(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT


# Answers at a site.


def test_an_answer_is_there_after_a_restart_until_it_has_its_receipt(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.trained("t").write_bytes(CONTENT)
    outbox.keep(pb.Answer(task="t", form="model", steps_done=3))
    kept = Outbox(tmp_path).waiting["t"]
    assert (kept.steps_done, kept.payload_bytes) == (3, len(CONTENT))
    assert kept.digest == digest(CONTENT)
    assert outbox.payload("t").read_bytes() == CONTENT
    outbox.drop("t")
    assert Outbox(tmp_path).waiting == {}
    assert list(tmp_path.iterdir()) == []


def test_what_a_crash_left_half_written_is_removed(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.trained("whole").write_bytes(CONTENT)
    outbox.keep(pb.Answer(task="whole", form="model"))
    (tmp_path / "cut.payload").write_bytes(b"x")
    (tmp_path / "cut.trained").write_bytes(b"x")
    (tmp_path / "short.answer").write_bytes(
        pb.Answer(task="short", payload_bytes=5).SerializeToString()
    )
    (tmp_path / "damaged.answer").write_bytes(b"\xff")
    (tmp_path / ".whole.answer.partial").write_bytes(b"")
    assert set(Outbox(tmp_path).waiting) == {"whole"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["whole.answer", "whole.payload"]


def test_an_answer_that_a_power_failure_damaged_before_it_was_forced_is_trained_again(
    tmp_path: Path,
) -> None:
    outbox = Outbox(tmp_path)
    outbox.trained("t").write_bytes(CONTENT)
    outbox.keep(pb.Answer(task="t", form="model"))
    outbox.payload("t").write_bytes(bytes(len(CONTENT)))  # its length was on the disk, no more
    assert Outbox(tmp_path).waiting == {}
    assert list(tmp_path.iterdir()) == []


def test_an_answer_whose_digest_is_told_is_not_read_again(tmp_path: Path) -> None:
    outbox, told = Outbox(tmp_path), digest(b"who reads the content finds another")
    outbox.trained("t").write_bytes(CONTENT)
    outbox.keep(pb.Answer(task="t", form="model", digest=told))
    assert outbox.waiting["t"].digest == told


def test_an_answer_is_forced_payload_first_unless_it_has_its_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[str] = []
    monkeypatch.setattr(
        "os.fsync", lambda handle: forced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
    )
    outbox = Outbox(tmp_path)
    outbox.trained("t").write_bytes(CONTENT)
    outbox.keep(pb.Answer(task="t", form="model"))
    assert forced == []
    outbox.force("t")
    assert forced == ["t.payload", "t.answer", tmp_path.name]
    outbox.drop("t")
    outbox.force("t")


def test_an_answer_whose_payload_is_damaged_becomes_an_error(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.trained("t").write_bytes(CONTENT)
    outbox.keep(pb.Answer(task="t", form="model"))
    assert outbox.verify(outbox.waiting["t"])
    outbox.payload("t").write_bytes(bytes(len(CONTENT)))
    assert not outbox.verify(outbox.waiting["t"])
    assert "damaged on the site's disk" in Outbox(tmp_path).waiting["t"].error


# Works beside the caller.


def run_behind(*, fail_at: int | None, raise_after: int | None = None) -> list[int]:
    """Do five works, of which one may fail; the caller may fail, too. Returns what was done."""
    done: list[int] = []

    async def work(number: int) -> None:
        await asyncio.sleep(0)
        if number == fail_at:
            raise OSError(f"work {number}")
        done.append(number)

    async def caller() -> None:
        async with OneBehind() as behind:
            for number in range(5):
                await behind.do(work(number))
                if number == raise_after:
                    raise WireError("the caller")

    with suppress(WireError):
        asyncio.run(caller())
    return done


def test_works_are_done_in_order_and_all_of_them_when_the_block_ends() -> None:
    assert run_behind(fail_at=None) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("last", [2, 4])
def test_a_work_that_fails_is_raised_and_none_follows(last: int) -> None:
    with pytest.raises(OSError, match=f"work {last}"):
        run_behind(fail_at=last)


@pytest.mark.parametrize("fail_at", [None, 3])
def test_a_caller_that_fails_waits_for_the_work_under_way(fail_at: int | None) -> None:
    done = run_behind(fail_at=fail_at, raise_after=3)
    assert done == ([0, 1, 2, 3] if fail_at is None else [0, 1, 2])
