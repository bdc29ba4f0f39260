"""Clients to give advice for: how fast each one is, what a task costs it, how much data it has."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from fedcompass.errors import SettingsError
from fedcompass.experiment import Experiment
from fedcompass.number_text import number_of
from fedcompass.runs.journal import read_journal
from fedcompass.runs.tally import LocalRound, Tally
from fedcompass.simulation.fleet import Fleet
from fedcompass.simulation.fleet_trace import paces_by_name
from fedcompass.vocabulary import ClientId, Seconds, Steps, fact

__all__ = ["SAME_SAMPLES", "Clients", "clients_in_csv", "clients_in_experiment", "clients_in_run"]

SAME_SAMPLES = "All clients count with as many samples; --samples says how many each has."
_USUAL_STEPS = 200  # the paper's Q for 5 and 10 clients
_SHORTEST: Seconds = 1e-9  # a step; with less, time cannot be told apart from rounding
_MOST = 1e9  # seconds, or samples


@fact
class Clients:
    """What the advice is about, client by client.

    steps: Q of rounds, and Q_max where a strategy chooses.
    remark: what is not known of them, in a sentence.
    """

    paces: tuple[Seconds, ...]  # per step
    overhead: tuple[Seconds, ...]  # of a task, beside its steps
    samples: tuple[int, ...]
    steps: Steps = _USUAL_STEPS
    remark: str = ""

    def task_seconds(self) -> list[Seconds]:
        """How long a task of Q steps takes each of them."""
        return [o + self.steps * p for o, p in zip(self.overhead, self.paces, strict=True)]

    def checked(self) -> "Clients":
        """The same.

        Raises:
            SettingsError: a number is impossible, or there are not as many of each.
        """
        _check("paces", self.paces, _SHORTEST)
        for name, values, least in (("overhead", self.overhead, 0), ("samples", self.samples, 1)):
            if len(values) != len(self.paces):
                raise SettingsError(
                    f"{name} has {len(values)} values for {len(self.paces)} paces; give one, or "
                    "one for each"
                )
            _check(name, values, least)
        if self.steps < 1:
            raise SettingsError(f"steps is {self.steps}; allowed: at least 1")
        return self


def _check(name: str, values: Sequence[float], least: float) -> None:
    for value in values:
        if not least <= value <= _MOST:  # also refuses NaN
            raise SettingsError(f"{name} has {value:g}; allowed: {least:g} to {_MOST:g}")


def clients_in_experiment(experiment: Experiment) -> Clients:
    """The fleet of an experiment; its data are not loaded, so that all have the same share."""
    fleet = Fleet(experiment.fleet, experiment.seed)
    scheduling = experiment.chosen_strategy().scheduling.model_dump()
    return Clients(
        paces=fleet.paces,
        overhead=tuple(2 * latency for latency in experiment.fleet.per_client_latency()),
        samples=(1,) * len(fleet),
        steps=_most_steps(scheduling),
        remark=SAME_SAMPLES,
    ).checked()


def clients_in_csv(path: Path) -> Clients:
    """Those of a file with client,seconds_per_step, by any names; of several paces the median.

    Raises:
        DataError: the file is missing or damaged.
    """
    paces = tuple(median(own) for own in paces_by_name(path).values())
    nothing, alike = (0.0,) * len(paces), (1,) * len(paces)
    return Clients(paces=paces, overhead=nothing, samples=alike, remark=SAME_SAMPLES).checked()


def clients_in_run(folder: Path) -> Clients:
    """Those of a run or a federation, as its journal saw them: the median of each one's tasks.

    Who has not answered yet may be the slowest: it counts by how long its first task has lasted, if
    that is longer than the others take, and is left out if not. Who has left does not count, unless
    all have.

    Raises:
        SettingsError: nobody has answered there.
        JournalError: there is no journal, or it cannot be read.
    """
    rounds: list[LocalRound] = []
    tally = Tally(on_round=rounds.append)
    lines = read_journal(folder / "journal.jsonl")
    _, header = next(lines)
    for _, record in lines:
        tally.take(record)
    here = [client for client, own in tally.clients.items() if own.doing != "away"]
    answered: dict[ClientId, list[LocalRound]] = {client: [] for client in here or tally.clients}
    for one in rounds:
        if one.steps_done and one.end > one.start and one.client in answered:
            answered[one.client].append(one)
    known = {client: own for client, own in answered.items() if own}
    if not known:
        raise SettingsError(f"{folder}: nobody has answered yet; give --paces instead")
    paces = {client: median(map(_pace, own)) for client, own in known.items()}
    overhead = {client: round(median(map(_overhead, own)), 6) for client, own in known.items()}
    slow = _slower(tally, paces)
    return Clients(
        paces=tuple((paces | slow).values()),
        overhead=tuple((overhead | dict.fromkeys(slow, 0.0)).values()),
        samples=tuple(tally.clients[client].samples for client in paces | slow),
        steps=_most_steps(header.get("strategy", {}).get("scheduling", {})),
        remark=" ".join(
            [
                *_gone(len(tally.clients) - len(answered)),
                *_unheard(len(answered), len(known), len(slow)),
            ]
        ),
    ).checked()


def _slower(tally: Tally, paces: Mapping[ClientId, Seconds]) -> dict[ClientId, Seconds]:
    """Who has not answered, and takes longer for a step than most others: the least that can be."""
    begun = {
        client: tally.rounds[one.task]
        for client, one in tally.clients.items()
        if client not in paces and one.doing != "away" and one.task in tally.rounds
    }
    least = {client: (tally.now - task.start) / task.steps for client, task in begun.items()}
    return {client: pace for client, pace in least.items() if pace > median(paces.values())}


def _gone(clients: int) -> list[str]:
    return [f"Not counted: {number_of(clients, 'client')} that left."] if clients else []


def _unheard(clients: int, known: int, slow: int) -> list[str]:
    if clients == known:
        return []
    rest = clients - known - slow
    told = [f"{slow} counted by how long a first task has lasted"] if slow else []
    told += [f"{rest} left out"] if rest else []
    return [f"{clients - known} of {clients} clients have not answered yet: {', '.join(told)}."]


def _pace(answered: LocalRound) -> Seconds:
    return _computing(answered) / answered.steps_done


def _overhead(answered: LocalRound) -> Seconds:
    return answered.end - answered.start - _computing(answered)


def _computing(answered: LocalRound) -> Seconds:
    """What the client reports, or all of its time where that cannot be true."""
    elapsed, told = answered.end - answered.start, answered.computing
    return told if told is not None and 0 < told <= elapsed else elapsed


def _most_steps(scheduling: Mapping[str, Any]) -> Steps:
    """Q_max, or Q of a strategy that has no Q_max."""
    return int(scheduling.get("max_steps") or scheduling.get("steps") or _USUAL_STEPS)
