"""Clients to give advice for: how fast each one is, what a task costs it, how much data it has."""

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from fedcompass.errors import SettingsError
from fedcompass.experiment import Experiment
from fedcompass.runs.journal import read_journal
from fedcompass.simulation.fleet import Fleet
from fedcompass.vocabulary import ClientId, Seconds, Steps, fact

__all__ = ["Clients", "clients_in_experiment", "clients_in_run"]

_USUAL_STEPS = 200  # the paper's Q for 5 and 10 clients


@fact
class Clients:
    """What the advice is about, client by client.

    steps: Q of rounds, and Q_max where a strategy chooses.
    """

    paces: tuple[Seconds, ...]  # per step
    overhead: tuple[Seconds, ...]  # of a task, beside its steps
    samples: tuple[int, ...]
    steps: Steps = _USUAL_STEPS

    def checked(self) -> "Clients":
        """The same.

        Raises:
            SettingsError: a number is impossible, or there are not as many of each.
        """
        _check("paces", self.paces, above=True)
        for name, values in (("overhead", self.overhead), ("samples", self.samples)):
            if len(values) != len(self.paces):
                raise SettingsError(
                    f"{name} has {len(values)} values for {len(self.paces)} paces; give one, or "
                    "one for each"
                )
            _check(name, values, above=name == "samples")
        if self.steps < 1:
            raise SettingsError(f"steps is {self.steps}; allowed: at least 1")
        return self


def _check(name: str, values: Sequence[float], *, above: bool) -> None:
    allowed = "above 0" if above else "at least 0"
    for value in values:
        if not isfinite(value) or value < 0 or (above and value == 0):
            raise SettingsError(f"{name} has {value:g}; allowed: finite numbers {allowed}")


def clients_in_experiment(experiment: Experiment) -> Clients:
    """The fleet of an experiment; its data are not loaded, so that all have the same share."""
    fleet = Fleet(experiment.fleet, experiment.seed)
    scheduling = experiment.chosen_strategy().scheduling.model_dump()
    return Clients(
        paces=fleet.paces,
        overhead=tuple(2 * latency for latency in experiment.fleet.per_client_latency()),
        samples=(1,) * len(fleet),
        steps=_most_steps(scheduling),
    ).checked()


def clients_in_run(folder: Path) -> Clients:
    """Those of a run or a federation, as its journal saw them: the median of each one's tasks.

    Raises:
        SettingsError: nobody has answered there.
        JournalError: there is no journal, or it cannot be read.
    """
    lines = read_journal(folder / "journal.jsonl")
    _, header = next(lines)
    seen = _Seen()
    for _, record in lines:
        seen.take(record)
    answered = [client for client in seen.samples if seen.paces.get(client)]
    if not answered:
        raise SettingsError(f"{folder}: nobody has answered yet; give --paces instead")
    scheduling = header.get("strategy", {}).get("scheduling", {})
    return Clients(
        paces=tuple(median(seen.paces[client]) for client in answered),
        overhead=tuple(round(median(seen.overheads[client]), 6) for client in answered),
        samples=tuple(seen.samples[client] for client in answered),
        steps=_most_steps(scheduling),
    ).checked()


def _most_steps(scheduling: Mapping[str, Any]) -> Steps:
    """Q_max, or Q of a strategy that has no Q_max."""
    return int(scheduling.get("max_steps") or scheduling.get("steps") or _USUAL_STEPS)


class _Seen:
    """What a journal tells of its clients."""

    def __init__(self) -> None:
        self.samples: dict[ClientId, int] = {}
        self.paces: dict[ClientId, list[Seconds]] = {}
        self.overheads: dict[ClientId, list[Seconds]] = {}
        self._begun: dict[int, Seconds] = {}

    def take(self, record: dict[str, object]) -> None:
        """Take in a line."""
        match record:
            case {"event": "ClientJoined", "client": str(client), "samples": int(samples)}:
                self.samples[client] = samples
            case {"command": "StartTraining", "task": int(task), "at": int() | float() as at}:
                self._begun[task] = at
            case {"event": "UpdateArrived", "task": int(task), "steps_done": int(steps)} if steps:
                self._answer(record, task, steps)
            case _:
                pass

    def _answer(self, record: dict[str, object], task: int, steps: int) -> None:
        begun, at, told = self._begun.pop(task, None), record["at"], record.get("compute_seconds")
        if begun is None or not isinstance(at, int | float):
            return
        elapsed = at - begun
        computing = told if isinstance(told, int | float) and 0 < told <= elapsed else elapsed
        if computing > 0:
            client = str(record["client"])
            self.paces.setdefault(client, []).append(computing / steps)
            self.overheads.setdefault(client, []).append(elapsed - computing)
