"""Every event and command of a run, as JSON lines; replay."""

from fedcompass.journal.journal import (
    FileJournal,
    Journal,
    Line,
    MemoryJournal,
    NoJournal,
    holds_events,
    lines_after,
    read_journal,
)
from fedcompass.journal.replay import Replayed, replay

__all__ = [
    "FileJournal",
    "Journal",
    "Line",
    "MemoryJournal",
    "NoJournal",
    "Replayed",
    "holds_events",
    "lines_after",
    "read_journal",
    "replay",
]
