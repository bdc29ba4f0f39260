"""Every event and command of a run, as JSON lines; replay."""

from fedcompass.journal.journal import FileJournal, Journal, MemoryJournal, NoJournal, read_journal
from fedcompass.journal.replay import Replayed, replay

__all__ = [
    "FileJournal",
    "Journal",
    "MemoryJournal",
    "NoJournal",
    "Replayed",
    "read_journal",
    "replay",
]
