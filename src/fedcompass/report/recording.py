"""A schedule without training, kept as a folder with a journal that the page can show."""

from pathlib import Path
from typing import Any

from fedcompass.runs.files import make_folder
from fedcompass.runs.journal import FileJournal, Journal
from fedcompass.scheduling.commands import Command
from fedcompass.scheduling.compass import CompassSettings
from fedcompass.scheduling.events import Event
from fedcompass.scheduling.policy import Policy, SchedulerSettings
from fedcompass.scheduling.scheduler import Scheduler

__all__ = ["RecordedScheduler", "new_record"]


class RecordedScheduler(Scheduler):
    """A scheduler that has everything it is told and asks for taken down."""

    def __init__(self, policy: Policy, journal: Journal) -> None:
        super().__init__(policy)
        self._journal = journal

    def handle(self, event: Event) -> list[Command]:
        """As `Scheduler.handle`."""
        commands = super().handle(event)
        self._journal.event(event)
        for command in commands:
            self._journal.command(command)
        return commands


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
