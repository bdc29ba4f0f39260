"""A run that was saved, and goes on in a fresh coordinator, is the run that never stopped."""

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from fedcompass.runs.checkpoint import load_checkpoint, save_checkpoint
from fedcompass.runs.journal import FileJournal
from fedcompass.runs.replay import replay
from fedcompass.strategies import Strategy

if TYPE_CHECKING:
    from tests.runs.conftest import RandomRun

EVENTS = 160


def run_with_crashes(
    run: "RandomRun", folder: Path, journal: FileJournal, stops: list[int]
) -> FileJournal:
    """Save at every stop, let some more be written, and go on in a new coordinator and journal."""
    done = 0
    for stop in stops:
        run.go(stop - done)
        done = stop
        tensors, facts = run.coordinator.state({})
        size = journal.flush()
        save_checkpoint(folder / "checkpoint", tensors, {"coordinator": facts, "size": size})
        run.coordinator.join(1e6, "client 0", 1)  # written after the checkpoint: forgotten
        journal.close()
        saved = load_checkpoint(folder / "checkpoint")
        journal = FileJournal(folder / "journal", {}, resume_at=saved.facts["size"])
        run.coordinator = run.fresh_coordinator(journal)
        run.coordinator.restore(saved.tensors, saved.facts["coordinator"])
    run.go(EVENTS - done)
    return journal


@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_was_saved_anywhere_and_restored_is_the_run_that_never_stopped(
    tmp_path: Path, random_run: "type[RandomRun]", any_strategy: Strategy, seed: int
) -> None:
    header = {"strategy": any_strategy.to_json()}
    uninterrupted = FileJournal(tmp_path / "uninterrupted", header)
    expected = random_run(any_strategy, seed, uninterrupted).go(EVENTS)
    uninterrupted.close()

    journal = FileJournal(tmp_path / "journal", header)
    run = random_run(any_strategy, seed, journal)
    stops = sorted(Random(seed).sample(range(EVENTS), 8))
    run_with_crashes(run, tmp_path, journal, stops).close()

    assert run.outcome() == expected.outcome()
    assert (tmp_path / "journal").read_bytes() == (tmp_path / "uninterrupted").read_bytes()
    assert replay(tmp_path / "journal").events > EVENTS / 2


def test_saving_changes_nothing(random_run: "type[RandomRun]", any_strategy: Strategy) -> None:
    watched, unwatched = random_run(any_strategy, 5), random_run(any_strategy, 5)
    for _ in range(40):
        watched.go(2)
        watched.coordinator.state({})
        unwatched.go(2)
    assert watched.outcome() == unwatched.outcome()
