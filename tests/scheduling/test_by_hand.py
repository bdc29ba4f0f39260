"""Compass does what `examples/fedcompass_by_hand.py` does, which follows the pseudo-code.

The example is exact; the scheduler takes a millionth of a step more for the whole one, and what is
less than a microsecond apart for one moment. So paces are whole milliseconds up to 20 s: moments
are then 0.1 ms apart or the same, and a step that is not whole lacks at least 5e-6 of it.
"""

import runpy
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcompass.scheduling.commands import StartTraining
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.settings.simulation import FleetSettings, Speed
from fedcompass.simulation.fleet import Fleet
from fedcompass.simulation.timetable import timetable

EXAMPLE = Path(__file__).parents[2] / "examples" / "fedcompass_by_hand.py"
FedCompass = runpy.run_path(str(EXAMPLE))["FedCompass"]
ROWS = 300  # of each schedule


class Clients(NamedTuple):
    """How many milliseconds a step takes, and what it takes from a local round on."""

    paces: list[int]
    changes: dict[tuple[int, int], int]  # (client, local round): milliseconds

    def time_per_step(self, client: int, local_round: int) -> Fraction:
        rounds = [since for who, since in self.changes if who == client and since <= local_round]
        pace = self.changes[client, max(rounds)] if rounds else self.paces[client]
        return Fraction(pace, 1000)


class Schedule(NamedTuple):
    """Tasks, client by client: client, time, steps, group, version. Merges: time, version, who."""

    tasks: list[tuple[int, float, int, int | None, int]]
    merges: list[tuple[float, int, list[tuple[int, int]]]]  # client and staleness


def by_the_scheduler(
    clients: Clients, steps: tuple[int, int], latest: Fraction
) -> tuple[Schedule, float]:
    """The beginning of a schedule, and up to when it is complete."""
    count = len(clients.paces)
    settings = CompassSettings(
        min_steps=steps[0], max_steps=steps[1], latest=float(latest), min_clients=count
    )
    entries = timetable(
        Scheduler(Compass(settings)),
        {str(client): 1 for client in range(count)},
        lambda client, local_round: float(clients.time_per_step(int(client), local_round)),
        until=1e9,
    )
    rows = list(islice(entries, ROWS))
    end = rows[-1].at - 5e-5  # there may be more at the last moment
    tasks, merges = [], []
    for row in rows:
        if row.at > end:
            break
        if isinstance(row, StartTraining):
            task = int(row.client), round(row.at, 4), row.steps, row.group, row.version
            tasks.append(task)
        else:
            updates = sorted((int(fold.client), fold.staleness) for fold in row.contributions)
            merges.append((round(row.at, 4), row.version, updates))
    return Schedule(sorted(tasks), merges), end


def by_hand(
    clients: Clients, steps: tuple[int, int], latest: Fraction, end: float
) -> tuple[Schedule, list[int]]:
    """The same, and the versions that are deadlines which found neither answers nor late updates.

    The paper raises the version there, the library does not: they are left out of the schedule.
    """
    fleet = range(len(clients.paces))
    rows = FedCompass(fleet, clients.time_per_step, *steps, latest).run(Fraction(end))
    empty: list[int] = [row["version"] for row in rows if row.get("merged") == []]

    def counted(version: int) -> int:
        return version - sum(one <= version for one in empty)

    tasks, merges = [], []
    for row in rows:
        at, version = float(row["at"]), counted(row["version"])
        if "client" in row:
            tasks.append((row["client"], at, row["steps"], row["group"], version))
        elif row["merged"]:
            updates = []
            for one in row["merged"]:
                since, present = one["version"], one["version"] + one["staleness"]
                updates.append((one["client"], counted(present) - counted(since)))
            merges.append((at, version, sorted(updates)))
    return Schedule(sorted(tasks), merges), empty


FLEETS = {  # milliseconds per step
    "wide paces": st.lists(st.integers(1, 20_000), min_size=1, max_size=8),
    "paces alike": st.lists(st.integers(100, 500), min_size=1, max_size=8),
    "few paces": st.lists(st.sampled_from([100, 200, 300]), min_size=2, max_size=8),
    "equal paces": st.builds(lambda pace, count: [pace] * count, st.just(150), st.integers(2, 8)),
}


@pytest.mark.parametrize("fleet", FLEETS)
@given(data=st.data())
def test_steps_times_groups_versions_and_staleness_are_those_of_the_pseudo_code(
    fleet: str, data: st.DataObject
) -> None:
    paces = data.draw(FLEETS[fleet])
    who_and_when = st.tuples(st.integers(0, len(paces) - 1), st.integers(1, 12))
    changes = data.draw(st.dictionaries(who_and_when, st.integers(20, 2000), max_size=12))
    steps = data.draw(st.sampled_from([(20, 100), (40, 200), (1, 10), (7, 7), (1, 1)]))
    latest = data.draw(st.sampled_from([Fraction(1), Fraction(6, 5), Fraction(3, 2), Fraction(2)]))
    clients = Clients(paces, changes)
    scheduled, end = by_the_scheduler(clients, steps, latest)
    assert by_hand(clients, steps, latest, end)[0] == scheduled


def test_a_deadline_that_finds_nothing_makes_later_updates_staler_by_the_letter_alone() -> None:
    alone = Clients([100], {(0, 1): 200})  # deadlines at 14 and 46 s, answers at 22 and 42 s
    steps, latest = (20, 100), Fraction(6, 5)
    rows = FedCompass([0], alone.time_per_step, *steps, latest).run(Fraction(45))
    merges = [
        (row["at"], [one["staleness"] for one in row["merged"]]) for row in rows if "merged" in row
    ]
    assert merges == [(2, [0]), (14, []), (42, [0, 1])]
    scheduled, _ = by_the_scheduler(alone, steps, latest)
    assert scheduled.merges[:2] == [(2.0, 1, [(0, 0)]), (42.0, 2, [(0, 0), (0, 0)])]


@pytest.mark.parametrize(
    ("speed", "changing", "least", "most"),
    [("exponential", 0.1, 0.06, 0.12), ("normal", 0.1, 0, 0.01), ("exponential", 0, 0, 0.005)],
)
@pytest.mark.parametrize(("clients", "max_steps"), [(5, 200), (10, 200), (20, 100)])
def test_how_many_updates_such_deadlines_make_staler_by_the_letter(
    speed: Speed, changing: float, least: float, most: float, clients: int, max_steps: int
) -> None:
    mean_round, staler, merged = max_steps * 0.15, 0, 0
    for seed in range(20):
        settings = FleetSettings(clients=clients, speed=speed, resample_probability=changing)
        fleet = Fleet(settings, seed)

        def pace(client: int, local_round: int, fleet: Fleet = fleet) -> Fraction:
            return Fraction(round(fleet.seconds_per_step(client, local_round) * 10_000), 10_000)

        compass = FedCompass(range(clients), pace, max_steps // 5, max_steps, Fraction(6, 5))
        rows = [row for row in compass.run(Fraction(8 * mean_round)) if "merged" in row]
        empty = [row["version"] for row in rows if not row["merged"]]
        updates = [one for row in rows for one in row["merged"]]
        merged += len(updates)
        staler += sum(
            any(0 < version - one["version"] <= one["staleness"] for version in empty)
            for one in updates
        )
    assert least <= staler / merged <= most
