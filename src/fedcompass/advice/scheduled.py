"""What each strategy would do with given clients: schedules in virtual time, without training."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from fedcompass.advice.clients import Clients
from fedcompass.paper_settings import strategy_settings
from fedcompass.runs.tally import Tally
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.simulation.timetable import timetable
from fedcompass.strategies import known_keys, strategy
from fedcompass.vocabulary import Seconds, fact

__all__ = ["STRATEGIES", "Scheduled", "schedules", "usual_settings", "waiting_in_rounds"]

STRATEGIES = ("fedavg", "fedasync", "fedbuff", "fedat", "fedcompass", "metronome")
"""Those with a schedule of their own; variants of a strategy share it."""

_ROUNDS = 20  # of a client of mean pace
_SLOW_ROUNDS = 3  # of the slowest one, at least
# A client far faster than the others would make millions of tasks.
_TASKS_OF_FEW, _TASKS_OF_EACH, _MOST_TASKS = 20_000, 150, 150_000


@fact
class Scheduled:
    """A strategy's schedule in figures."""

    strategy: str
    waiting: float  # share of the clients' time
    by_plan: float  # of that: ahead of a group or beat
    uploads: int
    merges: int
    staleness: float  # mean over the accepted updates
    most_updates: int  # of a client
    fewest_updates: int


def schedules(
    clients: Clients, given: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> tuple[Seconds, list[Scheduled]]:
    """Up to which time the schedules were made, and each of them.

    given: settings by strategy; the others have the usual ones.
    """
    until = _until(clients)
    return until, [
        _scheduled(name, clients, given.get(name) or usual_settings(name, clients), until)
        for name in STRATEGIES
    ]


def usual_settings(name: str, clients: Clients) -> dict[str, Any]:
    """A strategy's settings as in the paper's experiments, for these clients' Q.

    The paper's range of steps is taken as a ratio: Q_min is a fifth of Q, for Metronome a tenth.
    """
    papers = strategy_settings("", len(clients.paces), name)
    ratio = papers["max_steps"] // papers["min_steps"]
    scaled = {"steps": clients.steps, "max_steps": clients.steps}
    scaled["min_steps"] = max(1, clients.steps // ratio)
    known = known_keys(name)
    return {key: value for key, value in {**papers, **scaled}.items() if key in known}


def waiting_in_rounds(clients: Clients) -> float:
    """The share of their time that clients wait in rounds of Q steps, each for the slowest."""
    tasks = clients.task_seconds()
    return 1 - sum(tasks) / (len(tasks) * max(tasks))


def _until(clients: Clients) -> Seconds:
    tasks = clients.task_seconds()
    wanted = max(_ROUNDS * sum(tasks) / len(tasks), _SLOW_ROUNDS * max(tasks))
    per_second = 5 * sum(1 / seconds for seconds in tasks)  # with as few steps as Q_min
    most = min(max(_TASKS_OF_FEW, _TASKS_OF_EACH * len(tasks)), _MOST_TASKS)
    return min(wanted, most / per_second)


def _scheduled(
    name: str, clients: Clients, settings: Mapping[str, Any], until: Seconds
) -> Scheduled:
    names = [str(client) for client in range(len(clients.paces))]
    chosen = strategy(name, **settings, min_clients=len(names))
    tally = Tally()
    entries = timetable(
        Scheduler(chosen.new_policy()),
        dict(zip(names, clients.samples, strict=True)),
        lambda client, _: clients.paces[int(client)],
        until,
        dict(zip(names, clients.overhead, strict=True)),
        tally,
    )
    for _ in entries:
        pass
    updates = [tally.clients[client].updates for client in names]
    return Scheduled(
        strategy=name,
        # Of whole rounds: the time may end within the first one.
        waiting=waiting_in_rounds(replace(clients, steps=settings["steps"]))
        if name == "fedavg"
        else tally.idle_share(until),
        by_plan=tally.ahead_share(until),
        uploads=tally.uploads,
        merges=tally.merges,
        staleness=tally.mean_staleness(),
        most_updates=max(updates),
        fewest_updates=min(updates),
    )
