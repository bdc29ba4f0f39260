"""The paper's four example runs of Compass on five clients, as schedules (times in minutes).

Clients at 10, 5, 4, 2.5 and 2 steps a minute, 20 to 100 steps, λ = 1.2; in three of the figures
client 3 changes its speed in its second local round.
"""

from collections.abc import Sequence

from fedcompass.scheduling.commands import StartTraining
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.simulation.timetable import ScheduleEntry, timetable

__all__ = ["TIMELINES", "UNTIL", "clock", "schedule", "schedule_lines", "tasks"]

_STEPS_PER_MINUTE = {"1": 10.0, "2": 5.0, "3": 4.0, "4": 2.5, "5": 2.0}

UNTIL = 34.0
"""Minutes that the figures show."""

TIMELINES: dict[str, float | None] = {
    "figure-1": None,
    "figure-20": 1 / 5,
    "figure-21": 1 / (10 / 3),
    "figure-22": 10.2 / 28,  # answers at 15:12; the text's 2.5 steps/min would not
}
"""Minutes per step of client 3 from its second local round on; None: as before."""


def schedule(figure: str) -> list[ScheduleEntry]:
    """Who is sent to train and what is merged, in order of time."""
    settings = CompassSettings(min_steps=20, max_steps=100, latest=1.2, min_clients=5)
    clients = dict.fromkeys(_STEPS_PER_MINUTE, 100)
    return list(
        timetable(Scheduler(Compass(settings)), clients, lambda c, r: _pace(figure, c, r), UNTIL)
    )


def tasks(figure: str) -> list[tuple[StartTraining, float]]:
    """The bars of the figure, each with its end."""
    rounds = dict.fromkeys(_STEPS_PER_MINUTE, 0)
    found = []
    for entry in schedule(figure):
        if isinstance(entry, StartTraining):
            pace = _pace(figure, entry.client, rounds[entry.client])
            rounds[entry.client] += 1
            found.append((entry, entry.at + entry.steps * pace))
    return found


def _pace(figure: str, client: str, local_round: int) -> float:
    changed = TIMELINES[figure]
    if client == "3" and local_round >= 1 and changed is not None:
        return changed
    return 1 / _STEPS_PER_MINUTE[client]


def clock(minutes: float) -> str:
    """12.5 as 12:30."""
    seconds = round(minutes * 60)
    return f"{seconds // 60:02}:{seconds % 60:02}"


def schedule_lines(entries: Sequence[ScheduleEntry]) -> list[str]:
    """The schedule in sentences, as the paper tells it."""
    return [_told(entry) for entry in entries]


def _told(entry: ScheduleEntry) -> str:
    if isinstance(entry, StartTraining):
        where = f"group {entry.group}" if entry.group else "warm-up"
        return f"{clock(entry.at)}  client {entry.client} trains {entry.steps:>3} steps ({where})"
    updates = ", ".join(
        f"client {fold.client} (stale {fold.staleness})" for fold in entry.contributions
    )
    source = f"group {entry.group}" if entry.group else "first answer"
    return f"{clock(entry.at)}  version {entry.version} <- {source}: {updates}"
