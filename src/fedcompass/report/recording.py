"""A schedule without training, kept as a folder with a journal that the page can show."""

from pathlib import Path
from typing import Any

from fedcompass.runs.files import make_folder
from fedcompass.runs.journal import FileJournal
from fedcompass.scheduling.compass import CompassSettings
from fedcompass.scheduling.policy import SchedulerSettings

__all__ = ["new_record"]


def new_record(folder: Path, settings: SchedulerSettings, **facts: Any) -> FileJournal:
    """Begin the journal of a schedule in a new folder.

    Args:
        folder: made, with those above it.
        settings: Compass's or Metronome's.
        facts: more for the journal's header: `seed`, `unit` (the name of the unit of time).

    Raises:
        RunFolderError: the folder exists already or cannot be made.
        JournalError: the journal cannot be written.
    """
    make_folder(folder)
    by_compass = isinstance(settings, CompassSettings)
    strategy = {
        "name": "fedcompass" if by_compass else "metronome",
        "scheduler": "compass" if by_compass else "metronome",
        "scheduling": settings.model_dump(mode="json"),
    }
    return FileJournal(folder / "journal.jsonl", {"strategy": strategy, **facts})
