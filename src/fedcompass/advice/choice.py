"""The strategy to use, and why: how far the clients are apart decides, and what was measured."""

from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

from fedcompass.advice.clients import Clients
from fedcompass.advice.measured import RECOMMENDATIONS, FleetKind, Recommendation
from fedcompass.advice.scheduled import (
    Scheduled,
    schedules,
    usual_settings,
    waiting_in_rounds,
)
from fedcompass.number_text import number_of
from fedcompass.theory import beat_shares, equilibrium_groups
from fedcompass.vocabulary import Seconds, Steps

__all__ = ["Advice", "advise"]

_LITTLE = 0.45
"""Share of time that clients may wait in rounds before another strategy is worth its trouble: in
the study's fleets of normal speeds it is 0.10 to 0.44, in nearly all exponential ones more."""

_BORDER = (0.3, 0.6)
"""Shares of waiting from which on, and up to which, the other kind's advice may be the better."""

_MUCH = 0.25
"""Share of time that Metronome's clients wait: in 19 of 20 of the studies' runs it is less."""

_MOST_BEATS = 7
"""That a client's task took in the study's fleets: what counts for more of them is not measured."""

_FEWEST = 4  # clients in the studies

_FAR_BEHIND = 4.0  # times the second slowest: one client may be the only straggler
_NEARLY_EQUAL = 0.2  # share of time that the others wait in rounds without it


class Advice(NamedTuple):
    """What to use for given clients.

    settings: of the strategy, all that differ from its own defaults or must fit the clients.
    reasons: each in a sentence or a few.
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
    kind = _kind(clients)
    verdict = RECOMMENDATIONS[kind]
    settings = _settings(verdict, clients)
    until, scheduled = schedules(clients, {verdict.strategy: settings})
    return Advice(
        kind=kind,
        strategy=verdict.strategy,
        settings=settings,
        reasons=[
            _about_clients(kind, clients, scheduled),
            *verdict.because,
            *_reserves(kind, clients, settings, scheduled),
        ],
        source=verdict.source,
        until=until,
        schedules=scheduled,
    )


def _kind(clients: Clients) -> FleetKind:
    if waiting_in_rounds(clients) < _LITTLE:
        return "alike"
    tasks = sorted(clients.task_seconds())
    lags_alone = len(tasks) >= 3 and tasks[-1] >= _FAR_BEHIND * tasks[-2]
    if lags_alone and _waiting_without_slowest(tasks) < _NEARLY_EQUAL:
        return "one straggler"
    return "far apart"


def _waiting_without_slowest(tasks: list[Seconds]) -> float:
    others = sorted(tasks)[:-1]
    return 1 - sum(others) / (len(others) * others[-1])


def _settings(verdict: Recommendation, clients: Clients) -> dict[str, Any]:
    settings = usual_settings(verdict.strategy, clients)
    if verdict.short_rounds:
        settings["steps"] = _short_round(clients)
    if verdict.step_range is not None:
        settings["min_steps"] = max(1, clients.steps // verdict.step_range)
    settings |= verdict.settings
    if "absent" in settings and _beats(clients, settings) > _MOST_BEATS:
        settings["absent"] = "skip"
    return settings


def _beats(clients: Clients, settings: Mapping[str, Any]) -> int:
    """How many beats of Metronome's the slowest client's tasks take."""
    _, shares = beat_shares(
        clients.paces,
        settings["min_steps"],
        settings["max_steps"],
        samples=clients.samples,
        overhead=clients.overhead,
    )
    return max(share.beats for share in shares)


def _short_round(clients: Clients) -> Steps:
    """A fifth of the usual steps, or so many that a task's fixed cost is a quarter of theirs."""
    worth = 4 * sum(clients.overhead) / sum(clients.paces)
    return min(clients.steps, max(1, clients.steps // 5, ceil(worth)))


def _groups(clients: Clients) -> int:
    """How many groups Compass makes of them, a task's fixed cost spread over its steps."""
    settings = usual_settings("fedcompass", clients)
    paces = [p + o / clients.steps for p, o in zip(clients.paces, clients.overhead, strict=True)]
    return len(equilibrium_groups(paces, settings["min_steps"], settings["max_steps"]))


def _about_clients(kind: FleetKind, clients: Clients, scheduled: list[Scheduled]) -> str:
    by_name = {one.strategy: one for one in scheduled}
    compass, beats, groups = by_name["fedcompass"], by_name["metronome"], _groups(clients)
    share = waiting_in_rounds(clients)
    rounds = number_of(clients.steps, "step")
    waiting = f"In rounds of {rounds} (FedAvg) these clients wait {share:.0%}"
    if len(clients.paces) == 1:
        return "One client waits for nobody, whatever the strategy."
    if kind == "alike":
        return f"{waiting} of their time, which leaves little to gain by another strategy."
    if kind == "one straggler":
        rest = _waiting_without_slowest(clients.task_seconds())
        return f"{waiting} of their time; without the slowest they would wait {rest:.0%}."
    if all(0.9 * one.most_updates <= one.fewest_updates + 1 for one in (compass, beats)):
        return f"{waiting} of their time; FedCompass and Metronome let all of them answer together."
    if compass.fewest_updates == 0 or beats.fewest_updates == 0:
        return f"{waiting} of their time."
    apart = f"; they are too far apart for one group of FedCompass, which makes {groups} and"
    return (
        f"{waiting} of their time{apart if groups > 1 else '; FedCompass'} merges "
        f"{compass.most_updates} updates of one client for {compass.fewest_updates} of another "
        f"(Metronome: {beats.most_updates} for {beats.fewest_updates})."
    )


def _reserves(
    kind: FleetKind, clients: Clients, settings: dict[str, Any], scheduled: list[Scheduled]
) -> list[str]:
    """What speaks against the advice here."""
    found = []
    waiting = next(one.waiting for one in scheduled if one.strategy == "metronome")
    if kind == "far apart" and waiting > _MUCH:
        found.append(
            f"With Metronome these clients would wait {waiting:.0%} of their time, more than where "
            "it was measured: slow ones hold so much of the data that a beat is theirs. Compare it "
            "with a lower covered, and with fedcompass."
        )
    if kind == "alike" and settings["steps"] > max(1, clients.steps // 5):
        found.append(
            f"Here a task's fixed cost is larger, so that rounds of {settings['steps']} steps are "
            "advised."
        )
    if settings.get("absent") == "skip":
        found.append(
            f"The slowest client's tasks take more than {_MOST_BEATS} beats, for which catch-up "
            "was not measured."
        )
    if 1 < len(clients.paces) < _FEWEST:
        found.append(
            f"With fewer than {_FEWEST} clients nothing was measured: compare fedavg, fedcompass "
            "and metronome with your data."
        )
        return found
    least, most = _BORDER
    if kind != "one straggler" and least <= waiting_in_rounds(clients) <= most:
        found.append(
            f"These clients are near the border of {_LITTLE:.0%} between the two kinds: compare "
            "fedavg, fedcompass and metronome with your data."
        )
    return found
