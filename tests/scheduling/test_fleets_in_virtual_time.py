"""Whole runs: stress at equal instants, equilibrium, twins, and going on from saved states."""

import random
from collections.abc import Callable
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scheduling.invariants import Watched, copy_of
from tests.scheduling.virtual_fleet import VirtualFleet

from fedcompass.scheduling.commands import Command, Commit, StartTraining
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.events import Event
from fedcompass.scheduling.immediate import BufferedSettings, Immediate, buffered
from fedcompass.scheduling.metronome import Metronome, MetronomeSettings
from fedcompass.scheduling.policy import FixedStepsSettings, Policy
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.scheduling.synchronous import Synchronous
from fedcompass.scheduling.tiered import Tiered, TieredSettings
from fedcompass.simulation.timetable import timetable

POLICIES: dict[str, Callable[[], Policy]] = {
    "compass": lambda: Compass(CompassSettings(min_steps=5, max_steps=50)),
    "synchronous": lambda: Synchronous(FixedStepsSettings(steps=20, min_clients=4)),
    "immediate": lambda: Immediate(FixedStepsSettings(steps=20)),
    "buffered": lambda: buffered(BufferedSettings(steps=20, buffer_size=3)),
    "metronome": lambda: Metronome(MetronomeSettings(min_steps=5, max_steps=50, min_clients=4)),
    "tiered": lambda: Tiered(TieredSettings(steps=20, min_clients=4)),
    "tiered, profiled": lambda: Tiered(TieredSettings(steps=20, min_clients=4, profiling="tasks")),
}


def jittery(paces: dict[str, float], rng: random.Random) -> Callable[[StartTraining], float]:
    """Whole-millisecond paces; a task is on time, early, or 20% longer: exactly λ."""
    factors = (1.0, 1.0, 1.0, 0.9, 1.2, 1.3)
    return lambda order: order.steps * paces[order.client] * rng.choice(factors)


@pytest.mark.parametrize(
    ("seed", "late"), [(0, 0.0), (1, 0.0), (2, 0.5)], ids=["in time", "in time again", "late"]
)
def test_twenty_quick_clients_never_hang_and_lose_nothing_in_10_000_arrivals(
    seed: int, late: float
) -> None:
    rng = random.Random(seed)
    paces = {str(i): rng.randint(4, 16) / 1000 for i in range(20)}
    settings = CompassSettings(min_steps=20, max_steps=100, latest=1.2, min_clients=20)
    watched = Watched(Scheduler(Compass(settings)), 20, 100)
    lateness = (lambda: rng.choice((0.0, 0.0, late))) if late else (lambda: 0.0)
    fleet = VirtualFleet(watched.handle, jittery(paces, rng), rng, lateness)
    fleet.join(list(paces))
    fleet.run(arrivals=10_000)
    assert fleet.ties > 50  # arrivals and deadlines at equal instants, in either order
    pending = {fold.task for fold in watched.scheduler.pending()}
    assert not watched.merged & pending
    assert len(watched.merged) + len(pending) == 10_000
    assert all(watched.scheduler.pace(client) is not None for client in paces)


@given(
    paces=st.lists(st.floats(1.0, 2.5), min_size=1, max_size=8),
    steps=st.sampled_from([(20, 100), (40, 200), (10, 200)]),
)
def test_with_constant_paces_well_below_the_range_of_steps_the_fleet_settles_into_one_group(
    paces: list[float], steps: tuple[int, int]
) -> None:
    seconds_per_step = {str(number): pace for number, pace in enumerate(paces)}
    settings = CompassSettings(min_steps=steps[0], max_steps=steps[1], min_clients=len(paces))
    scheduler = Scheduler(Compass(settings))
    samples = dict.fromkeys(seconds_per_step, 1)
    entries = timetable(scheduler, samples, lambda client, _: seconds_per_step[client], until=1e9)
    merges = (entry for entry in entries if isinstance(entry, Commit))
    for merge in islice(merges, 40 * len(paces), 40 * len(paces) + 10):
        assert {fold.client for fold in merge.contributions} == set(samples)
        assert all(fold.staleness == 0 for fold in merge.contributions)


def run_of(name: str, seed: int, arrivals: int) -> tuple[list[list[Command]], Scheduler]:
    """A run of four clients from a seed; what the scheduler said, and its end."""
    rng = random.Random(seed)
    paces = {client: rng.uniform(0.1, 2.0) for client in "abcd"}
    scheduler = Scheduler(POLICIES[name]())
    fleet = VirtualFleet(scheduler.handle, jittery(paces, rng), rng)
    fleet.join(list(paces))
    fleet.run(arrivals)
    return fleet.said, scheduler


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_seed_gives_the_same_commands(name: str) -> None:
    said, scheduler = run_of(name, seed=7, arrivals=300)
    again, twin = run_of(name, seed=7, arrivals=300)
    assert said == again
    assert scheduler.to_json() == twin.to_json()
    assert run_of(name, seed=8, arrivals=300)[0] != said


@pytest.mark.parametrize("name", POLICIES)
@given(seed=st.integers(0, 10_000), stops=st.sets(st.integers(0, 120), max_size=4))
def test_stopping_and_going_on_from_json_gives_the_same_commands_as_never_stopping(
    name: str, seed: int, stops: set[int]
) -> None:
    said, straight = run_of(name, seed, arrivals=80)
    rng = random.Random(seed)
    paces = {client: rng.uniform(0.1, 2.0) for client in "abcd"}
    current = Scheduler(POLICIES[name]())
    handled = 0

    def handle(event: Event) -> list[Command]:
        nonlocal current, handled
        if handled in stops:
            fresh = Scheduler(POLICIES[name]())
            fresh.restore(copy_of(current.to_json()))
            current = fresh
        handled += 1
        return current.handle(event)

    fleet = VirtualFleet(handle, jittery(paces, rng), rng)
    fleet.join(list(paces))
    fleet.run(arrivals=80)
    assert fleet.said == said
    assert current.to_json() == straight.to_json()


@pytest.mark.parametrize("name", POLICIES)
def test_every_client_goes_on_contributing(name: str) -> None:
    said, scheduler = run_of(name, seed=3, arrivals=400)
    merges = [command for commands in said for command in commands if isinstance(command, Commit)]
    recent = {update.client for merge in merges[-40:] for update in merge.contributions}
    assert recent == set("abcd")
    assert [merge.version for merge in merges] == list(range(1, scheduler.version + 1))
