"""The strategy to use, and why: how far the clients are apart decides, and what was measured."""

from math import ceil
from typing import Any, NamedTuple

from fedcompass.advice.clients import Clients
from fedcompass.advice.measured import RECOMMENDATIONS, FleetKind, Recommendation
from fedcompass.advice.scheduled import Scheduled, schedules, usual_settings
from fedcompass.theory import equilibrium_groups
from fedcompass.vocabulary import Seconds, Steps

__all__ = ["Advice", "advise"]

_LITTLE = 0.45
"""Share of time that clients may wait in rounds before another strategy is worth its trouble: in
the study's fleets of normal speeds it is 0.10 to 0.43, in nearly all exponential ones more."""


class Advice(NamedTuple):
    """What to use for given clients.

    settings: of the strategy, all that differ from its own defaults or must fit the clients.
    reasons: in sentences.
    source: where the results stand that it rests on.
    until: the time up to which the schedules were made.
    """

    kind: FleetKind
    strategy: str
    settings: dict[str, Any]
    reasons: list[str]
    source: str
    until: Seconds
    schedules: list[Scheduled]


def advise(clients: Clients) -> Advice:
    """Make the schedules, tell the kind of fleet, and look up what did best for it."""
    until, scheduled = schedules(clients)
    by_name = {one.strategy: one for one in scheduled}
    groups = _groups(clients)
    kind: FleetKind = "alike" if by_name["fedavg"].waiting < _LITTLE else "far apart"
    verdict = RECOMMENDATIONS[kind]
    return Advice(
        kind=kind,
        strategy=verdict.strategy,
        settings=_settings(verdict, clients),
        reasons=[_about_clients(kind, by_name, groups), verdict.because],
        source=verdict.source,
        until=until,
        schedules=scheduled,
    )


def _settings(verdict: Recommendation, clients: Clients) -> dict[str, Any]:
    settings = usual_settings(verdict.strategy, clients)
    if verdict.short_rounds:
        settings["steps"] = _short_round(clients)
    return settings


def _short_round(clients: Clients) -> Steps:
    """A fifth of the usual steps, or so many that a task's fixed cost is a quarter of theirs."""
    worth = 4 * sum(clients.overhead) / sum(clients.paces)
    return min(clients.steps, max(1, clients.steps // 5, ceil(worth)))


def _groups(clients: Clients) -> int:
    """How many groups Compass makes of them, a task's fixed cost spread over its steps."""
    settings = usual_settings("fedcompass", clients)
    paces = [p + o / clients.steps for p, o in zip(clients.paces, clients.overhead, strict=True)]
    return len(equilibrium_groups(paces, settings["min_steps"], settings["max_steps"]))


def _about_clients(kind: FleetKind, by_name: dict[str, Scheduled], groups: int) -> str:
    rounds, compass, beats = by_name["fedavg"], by_name["fedcompass"], by_name["metronome"]
    waiting = f"In rounds of FedAvg these clients wait {rounds.waiting:.0%} of their time"
    if kind == "alike":
        return f"{waiting}, which leaves little to gain by another strategy."
    if groups == 1:
        return f"{waiting}; FedCompass and Metronome let all of them answer together."
    return (
        f"{waiting}; they are too far apart for one group of FedCompass, which makes {groups} and "
        f"merges {compass.most_updates} updates of one client for {compass.fewest_updates} of "
        f"another (Metronome: {beats.most_updates} for {beats.fewest_updates})."
    )
