import json
import re
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.memory_journal import MemoryJournal
from tests.runs.conftest import LAYOUT, model
from torch import Tensor

from fedcompass.aggregation import FlatState
from fedcompass.coordinator import Coordinator
from fedcompass.errors import JournalError, ReplayMismatch
from fedcompass.runs.codec import command_to_json, event_from_json
from fedcompass.runs.journal import FileJournal, read_journal
from fedcompass.runs.replay import replay
from fedcompass.scheduling.commands import GENERAL, StartTraining
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.strategies import Strategy, secured, strategy
from fedcompass.summed_merges import Asked, OpenedSum

if TYPE_CHECKING:
    from tests.runs.conftest import RandomRun

GOLDEN = Path(__file__).parent.parent / "golden"
EARLIER = GOLDEN / "earlier-journal.jsonl"  # written by an earlier version; not to be updated


def journal_of(
    path: Path, run: "type[RandomRun]", chosen: Strategy, seed: int = 1, events: int = 150
) -> "RandomRun":
    journal = FileJournal(path, {"strategy": chosen.to_json()})
    finished = run(chosen, seed, journal).go(events)
    journal.close()
    return finished


@pytest.fixture
def journal(tmp_path: Path, random_run: "type[RandomRun]") -> Path:
    path = tmp_path / "journal.jsonl"
    chosen = strategy("fedcompass", min_steps=2, max_steps=8, quarantine_after=2)
    journal_of(path, random_run, chosen)
    remove_checksums(path)
    return path


def remove_checksums(path: Path) -> None:
    """Leave it to the replay to notice a change, as in a journal of an earlier version."""
    path.write_text(re.sub(r',"crc":\d+}', "}", path.read_text()))


def changed(path: Path, number: int, change: dict[str, Any]) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), **change})
    path.write_text("\n".join(lines) + "\n")


def line_of(path: Path, kind: str, name: str, nth: int = 0) -> int:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [n for n, record in enumerate(records, 1) if record.get(kind) == name][nth]


@pytest.mark.parametrize("seed", range(4))
def test_replaying_a_run_of_any_strategy_gives_the_same_commands(
    tmp_path: Path, random_run: "type[RandomRun]", any_strategy: Strategy, seed: int
) -> None:
    path = tmp_path / "journal.jsonl"
    run = journal_of(path, random_run, any_strategy, seed)
    replayed = replay(path)
    lines = path.read_text().splitlines()
    assert replayed.scheduler.to_json() == run.coordinator.scheduler.to_json()
    assert replayed.events + replayed.commands + 1 == len(lines)
    assert run.refused > 0
    assert run.coordinator.version > 0


def test_the_same_run_twice_writes_the_same_bytes(
    tmp_path: Path, random_run: "type[RandomRun]", any_strategy: Strategy
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    journal_of(first, random_run, any_strategy)
    journal_of(second, random_run, any_strategy)
    assert first.read_bytes() == second.read_bytes()


def test_a_memory_journal_holds_what_a_file_holds(
    tmp_path: Path, random_run: "type[RandomRun]"
) -> None:
    chosen, path = strategy("fedasync", steps=3), tmp_path / "journal.jsonl"
    journal_of(path, random_run, chosen)
    memory = MemoryJournal({"strategy": chosen.to_json()})
    random_run(chosen, 1, memory).go(150)
    lines = [json.dumps(record, separators=(",", ":")) for record in memory.records]
    remove_checksums(path)
    assert path.read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        ("command", "StartTraining", {"steps": 3}),
        ("command", "StartTraining", {"client": "client 9"}),
        ("command", "Fold", {"share": 0.123}),
        ("command", "Fold", {"buffer": 77}),
        ("command", "Commit", {"version": 99}),
        ("command", "Commit", {"contributions": []}),
        ("command", "SetDeadline", {"at": 1.0}),
        ("command", "Quarantine", {"client": "client 9"}),
        ("command", "Fold", {"command": "Unfold"}),
        ("event", "UpdateArrived", {"task": 10_000}),
        ("event", "UpdateArrived", {"at": -1.0}),
        ("event", "UpdateArrived", {"steps_done": 99}),
        ("event", "ClientLost", {"client": "nobody"}),
    ],
)
def test_a_changed_line_is_found_and_named(
    journal: Path, kind: str, name: str, change: dict[str, Any]
) -> None:
    number = line_of(journal, kind, name)
    changed(journal, number, change)
    with pytest.raises(ReplayMismatch, match=rf"journal\.jsonl: line {number} "):
        replay(journal)


def test_a_changed_event_with_consequences_is_found_at_the_command_that_differs(
    journal: Path,
) -> None:
    number = line_of(journal, "event", "ClientJoined")
    changed(journal, number, {"samples": 1000})
    with pytest.raises(ReplayMismatch, match=r"line \d+ has {'command': 'Fold'.*'share': 0\.25"):
        replay(journal)


@pytest.mark.parametrize("name", ["Fold", "Commit", "StartTraining", "SetDeadline"])
def test_a_removed_command_is_found_at_the_line_that_took_its_place(
    journal: Path, name: str
) -> None:
    number = line_of(journal, "command", name)
    lines = journal.read_text().splitlines(keepends=True)
    del lines[number - 1]
    journal.write_text("".join(lines))
    with pytest.raises(ReplayMismatch, match=f"line {number} "):
        replay(journal)


def test_a_repeated_command_is_found(journal: Path) -> None:
    number = line_of(journal, "command", "Commit")
    lines = journal.read_text().splitlines(keepends=True)
    lines.insert(number, lines[number - 1])
    journal.write_text("".join(lines))
    with pytest.raises(ReplayMismatch, match=f"line {number + 1} "):
        replay(journal)


@pytest.mark.parametrize(
    "change",
    [
        {"event": "UpdateForged"},
        {"event": ["UpdateArrived"]},
        {"surprise": 1},
        {"at": "soon"},
        {"steps_done": "all"},
    ],
)
def test_an_event_that_cannot_be_read_is_named_by_its_line(
    journal: Path, change: dict[str, Any]
) -> None:
    number = line_of(journal, "event", "UpdateArrived")
    changed(journal, number, change)
    with pytest.raises(JournalError, match=f"line {number} "):
        replay(journal)


def test_a_crash_between_an_event_and_its_commands_is_tolerated(journal: Path) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    commit = line_of(journal, "command", "Commit", nth=-1)
    for cut in (lines[: commit - 1], [*lines[: commit - 1], lines[commit - 1][:20]]):
        journal.write_bytes(b"".join(cut))
        assert replay(journal).events > 0


@pytest.mark.parametrize(
    "header",
    [
        {"journal": 1},
        {"journal": 1, "strategy": "fedavg"},
        {"journal": 1, "strategy": {"scheduler": "oracle", "scheduling": {}}},
        {"journal": 1, "strategy": {"scheduler": "compass", "scheduling": {"min_step": 1}}},
        {"journal": 1, "strategy": {"scheduler": ["compass"], "scheduling": {}}},
    ],
)
def test_a_header_that_does_not_name_a_scheduler_gives_one_clear_line(
    tmp_path: Path, header: dict[str, Any]
) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps(header) + "\n")
    with pytest.raises(JournalError, match="line 1 does not say which scheduler ran") as caught:
        replay(path)
    assert "\n" not in str(caught.value)


def test_a_journal_of_nothing_but_its_header_replays_to_a_fresh_scheduler(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    FileJournal(path, {"strategy": strategy("fedavg").to_json()}).close()
    replayed = replay(path)
    assert (replayed.events, replayed.commands) == (0, 0)
    assert replayed.scheduler.to_json() == strategy("fedavg").new_scheduler().to_json()


def test_a_journal_and_a_checkpoint_of_an_earlier_version_lead_to_the_same_state() -> None:
    replayed = replay(EARLIER).scheduler
    resumed = fresh_scheduler()
    # given_steps was put in: a state must have it.
    resumed.restore(json.loads((GOLDEN / "earlier-scheduler.json").read_text()))
    assert resumed.to_json() == replayed.to_json()
    assert {fold.buffer for fold in resumed.pending()} == {4, GENERAL}


def test_commands_are_written_as_in_a_journal_of_an_earlier_version() -> None:
    scheduler = fresh_scheduler()
    records = [record for _, record in read_journal(EARLIER)][1:]
    written = [
        command_to_json(command)
        for record in records
        if "event" in record
        for command in scheduler.handle(event_from_json(record))
    ]
    for record in written:
        for later in ("due", "steps_before"):  # which that version did not tell
            record.pop(later, None)
    notes = {"weight", "crc"}
    recorded = [
        {key: value for key, value in record.items() if key not in notes}
        for record in records
        if "command" in record
    ]
    assert [list(record.items()) for record in written] == [list(r.items()) for r in recorded]


def fresh_scheduler() -> Scheduler:
    return strategy("fedcompass", min_steps=2, max_steps=8, min_clients=3).new_scheduler()


SUMMING: dict[str, dict[str, Any]] = {
    "fedavg": {"steps": 4},
    "fedbuff": {"steps": 4, "buffer_size": 3},
    "fedcompass": {"min_steps": 2, "max_steps": 8},
    "fedcompass+m": {"min_steps": 2, "max_steps": 8},
    "fedcompass+n": {"min_steps": 2, "max_steps": 8},
    "metronome": {"min_steps": 2, "max_steps": 8, "absent": "catch-up"},
}


class UnluckySums:
    """A source of sums of which every second fails; some of those that fail are lost.

    What it has said once of a merge, it says again: a federation has that on disk.
    """

    def __init__(self, said: dict[int, OpenedSum]) -> None:
        self.said = said
        self.in_sums: list[int] = []  # tasks whose updates were revealed

    def keep(self, client: str, task: int, update: FlatState | None) -> None:
        pass

    def opened(self, number: int, asked: Asked) -> OpenedSum:
        if number not in self.said:
            self.said[number] = self._drawn(Random(number), asked)
        return self.said[number]

    def _drawn(self, random: Random, asked: Asked) -> OpenedSum:
        tasks = [task for own in asked.values() for task in own]
        if random.random() < 0.5:
            revealed = random.random() < 0.5
            self.in_sums += tasks if revealed else []
            return OpenedSum(None, tuple(asked), tasks if revealed else (), failed="a lie")
        there = sorted(asked) if random.random() < 0.7 else sorted(asked)[:3]
        self.in_sums += [task for client in there for task in asked[client]]
        return OpenedSum(LAYOUT.zeros(), there)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {}

    def restore(self, tensors: Any, facts: Any) -> None:
        pass


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SUMMING)
def test_a_run_whose_sums_fail_is_replayed_and_resumed_to_the_same_state(
    tmp_path: Path, random_run: "type[RandomRun]", name: str, seed: int
) -> None:
    chosen = secured(name, min_clients=3, quarantine_after=2, **SUMMING[name])
    said: dict[int, OpenedSum] = {}

    class Summed(random_run):  # type: ignore[misc, valid-type]
        def fresh_coordinator(self, journal: Any = None) -> Coordinator:
            self.sums = UnluckySums(said)
            return Coordinator(self.strategy, LAYOUT, model(), journal, self.sums)

    path = tmp_path / "journal.jsonl"
    journal = FileJournal(path, {"strategy": chosen.to_json()})
    run = Summed(chosen, seed, journal)
    run.go(200)
    journal.flush()
    saved = json.loads(json.dumps(run.coordinator.state({})[1]))
    tensors, _ = run.coordinator.state({})
    until = len(path.read_text().splitlines())
    run.go(200)
    journal.close()
    lines = [record for _, record in read_journal(path)]
    made = [one for one in lines if one.get("command") == "Commit" and "failed" not in one]
    failed = [one for one in lines if one.get("event") == "MergeFailed"]
    assert run.coordinator.version == len(made) > 5
    assert len(failed) > 5
    assert len(run.sums.in_sums) == len(set(run.sums.in_sums)), "an update is in one sum"
    numbers = [one["task"] for one in lines if one.get("command") == "StartTraining"]
    assert numbers == sorted(set(numbers)), "no task is given twice"
    expected = json.dumps(run.coordinator.scheduler.to_json())
    assert json.dumps(replay(path).scheduler.to_json()) == expected
    again = Summed(chosen, seed).coordinator
    again.restore({name: tensor.clone() for name, tensor in tensors.items()}, saved)
    for line in lines[until:]:
        if "event" in line:
            for command in again.take_in_again(event_from_json(line), model()):
                assert not isinstance(command, StartTraining) or again.start_model(command)
    again.return_left_out()
    assert json.dumps(again.scheduler.to_json()) == expected
