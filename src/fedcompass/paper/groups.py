"""How many arrival groups there are over time, beside the paper's bound ⌈log_Q μ⌉.

The bound (appendix "Upper Bound on the Number of Groups") is for an idealized equilibrium. Here the
scheduler itself runs on random fleets of exponential speed, without any training.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from string import ascii_lowercase, digits

from fedcompass.errors import SettingsError
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.settings.simulation import FleetSettings
from fedcompass.simulation.fleet import Fleet
from fedcompass.simulation.timetable import timetable
from fedcompass.sweeps.formats import TextTable
from fedcompass.theory import equilibrium_groups, group_bound

__all__ = [
    "GROUPS_FILE",
    "FleetGroups",
    "groups_grid",
    "groups_of",
    "read_study",
    "study",
    "write_study",
]

GROUPS_FILE = "groups.jsonl"
"""The study's file in the folder of results."""

_HEADINGS = [
    "noise",
    "clients",
    "fleets",
    "bound",
    "groups",
    "above",
    "ever above",
    "mostly above",
    "fastest alone",
]
"""Of `groups_grid`: means over fleets of the bound, the groups and the share of time above it,
and shares of fleets; the last by the appendix's equilibrium."""

ROUNDS = 60
"""A fleet is followed for so many rounds of Q_max steps at the mean pace."""

SETTLING = 10
"""So many of them are left out of the shares: the warm-up is no equilibrium."""

_MIN_STEPS, _MAX_STEPS = 40, 200
_CLIENTS = (5, 10, 20)
_JITTERS = (0.0, 0.05)
_HEADER = "fedcompass_groups"
_DIGITS = digits + ascii_lowercase


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetGroups:
    """One fleet's groups.

    mu: the slowest client's pace over the fastest one's.
    bound: ⌈log_Q μ⌉.
    share_above: of the time after settling, with more groups than the bound.
    mean, most: number of groups after settling.
    by_round: the number of groups at the beginning of each round from 1 on.
    """

    seed: int
    clients: int
    jitter: float
    mu: float
    bound: int
    share_above: float
    mean: float
    most: int
    by_round: list[int]


def study(fleets: int) -> Iterator[FleetGroups]:
    """Random fleets of 5, 10 and 20 clients by turns, each without and with 5% noise per round."""
    for seed in range(fleets):
        for jitter in _JITTERS:
            yield groups_of(seed, _CLIENTS[seed % len(_CLIENTS)], jitter)


def groups_of(
    seed: int, clients: int, jitter: float, *, speed: str = "exponential", rounds: int = ROUNDS
) -> FleetGroups:
    """Follow one fleet: Q 40 to 200, λ 1.2, the paper's floor and mean pace."""
    given = FleetSettings(clients=clients, speed=speed, jitter=jitter)  # type: ignore[arg-type]
    fleet = Fleet(given, seed)
    bound = group_bound(fleet.speed_ratio, _MAX_STEPS / _MIN_STEPS, clients=clients)
    one_round = _MAX_STEPS * given.mean_seconds_per_step
    spans = list(_spans(fleet, rounds * one_round))
    settled = [
        (max(begins, SETTLING * one_round), ends, groups)
        for begins, ends, groups in spans
        if ends > SETTLING * one_round
    ]
    total = sum(ends - begins for begins, ends, _ in settled)
    return FleetGroups(
        seed=seed,
        clients=clients,
        jitter=jitter,
        mu=round(fleet.speed_ratio, 4),
        bound=bound,
        share_above=round(sum(e - b for b, e, groups in settled if groups > bound) / total, 6),
        mean=round(sum((e - b) * groups for b, e, groups in settled) / total, 4),
        most=max(groups for _, _, groups in settled),
        by_round=[_groups_at(spans, k * one_round) for k in range(1, rounds)],
    )


def _spans(fleet: Fleet, until: float) -> Iterator[tuple[float, float, int]]:
    """(from, to, number of open groups), without gaps, up to `until`."""
    clients = [str(client) for client in range(len(fleet))]
    compass = Compass(
        CompassSettings(min_steps=_MIN_STEPS, max_steps=_MAX_STEPS, min_clients=len(clients))
    )
    entries = timetable(
        Scheduler(compass),
        dict.fromkeys(clients, 1),
        lambda client, local_round: fleet.seconds_per_step(int(client), local_round),
        until,
    )
    since, groups = 0.0, 0
    for entry in entries:
        if entry.at > since:
            yield since, entry.at, groups
            since = entry.at
        groups = len(list(compass.open_groups))
    if until > since:
        yield since, until, groups


def _groups_at(spans: Sequence[tuple[float, float, int]], moment: float) -> int:
    return next(groups for begins, ends, groups in spans if begins <= moment < ends)


def groups_grid(fleets: Sequence[FleetGroups]) -> TextTable:
    """How often there are more groups than the bound: by noise and number of clients, and all."""
    rows: list[list[str]] = []
    for jitter in sorted({fleet.jitter for fleet in fleets}):
        some = [fleet for fleet in fleets if fleet.jitter == jitter]
        for clients in sorted({fleet.clients for fleet in some}):
            own = [fleet for fleet in some if fleet.clients == clients]
            rows.append([f"{jitter:.0%}", str(clients), *_numbers(own)])
        rows.append([f"{jitter:.0%}", "all", *_numbers(some)])
        few = [fleet for fleet in some if fleet.bound == 1]
        rows.append([f"{jitter:.0%}", "mu <= Q", *_numbers(few)])
    title = "arrival groups after settling; above: share of time with more groups than the bound"
    return TextTable(title, _HEADINGS, rows)


def _numbers(fleets: list[FleetGroups]) -> list[str]:
    if not fleets:
        return ["0", *[""] * 6]
    ever = sum(fleet.share_above > 0 for fleet in fleets) / len(fleets)
    mostly = sum(fleet.share_above > 0.5 for fleet in fleets) / len(fleets)
    return [
        str(len(fleets)),
        f"{mean(fleet.bound for fleet in fleets):.2f}",
        f"{mean(fleet.mean for fleet in fleets):.2f}",
        f"{mean(fleet.share_above for fleet in fleets):.1%}",
        f"{ever:.1%}",
        f"{mostly:.1%}",
        f"{mean(map(_fastest_is_alone, fleets)):.1%}",
    ]


def _fastest_is_alone(groups: FleetGroups) -> bool:
    """At the appendix's equilibrium, in a fleet of the study."""
    paces = Fleet(FleetSettings(clients=groups.clients, speed="exponential"), groups.seed).paces
    return len(equilibrium_groups(paces, _MIN_STEPS, _MAX_STEPS)[0]) == 1


def write_study(fleets: Iterable[FleetGroups], path: Path) -> None:
    """One line per fleet; the numbers of groups by round as one text, a digit each (to base 36)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps({_HEADER: 1, "rounds": ROUNDS, "settling": SETTLING}) + "\n")
        for fleet in fleets:
            record = {**asdict(fleet), "by_round": "".join(_DIGITS[n] for n in fleet.by_round)}
            file.write(json.dumps(record, separators=(",", ":")) + "\n")


def read_study(path: Path) -> list[FleetGroups]:
    """What `write_study` wrote.

    Raises:
        SettingsError: there is no such file.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        raise SettingsError(
            f"{path} is not there; run: fedcompass paper run figure-groups"
        ) from None
    if not lines or _HEADER not in lines[0]:
        raise SettingsError(f"{path} is not a study of groups; give another --results folder")
    records = map(json.loads, lines[1:])
    return [
        FleetGroups(**{**record, "by_round": [int(digit, 36) for digit in record["by_round"]]})
        for record in records
    ]
