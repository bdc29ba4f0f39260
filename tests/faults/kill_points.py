"""When to kill a server: at random moments, and in the midst of what it writes."""

from collections.abc import Callable
from random import Random
from time import monotonic

from tests.faults.loopback import Loopback

Reached = Callable[[], bool]


def _a_moment(federation: Loopback, random: Random) -> Reached:
    until = monotonic() + random.uniform(0.0, 5.0)
    return lambda: monotonic() >= until


def _an_update_is_written(federation: Loopback, random: Random) -> Reached:
    updates = federation.run / "updates"
    before = {path.name for path in updates.iterdir()}
    return lambda: not {path.name for path in updates.iterdir()} <= before


def _the_journal_grows(federation: Loopback, random: Random) -> Reached:
    journal = federation.run / "journal.jsonl"
    before = journal.stat().st_size
    return lambda: journal.stat().st_size > before


def _a_checkpoint_is_made(federation: Loopback, random: Random) -> Reached:
    checkpoint = federation.run / "checkpoint.safetensors"
    before = checkpoint.stat().st_ino
    return lambda: checkpoint.stat().st_ino != before


def _a_site_trains(federation: Loopback, random: Random) -> Reached:
    site = random.choice(list(federation.sites))
    return lambda: federation.training(site)


POINTS: dict[str, Callable[[Loopback, Random], Reached]] = {
    "a random moment": _a_moment,
    "an update is being written": _an_update_is_written,
    "the journal grows": _the_journal_grows,
    "a checkpoint is made": _a_checkpoint_is_made,
    "a site trains": _a_site_trains,
}
