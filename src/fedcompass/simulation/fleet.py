"""A fleet of unequal clients in virtual time: how long each task takes, who is away when."""

from bisect import bisect_right
from math import ceil
from typing import Any, NamedTuple

from fedcompass.errors import SettingsError
from fedcompass.settings.simulation import (
    Dropout,
    FleetSettings,
)
from fedcompass.simulation.fleet_draws import RedrawnRounds, Stream
from fedcompass.simulation.fleet_trace import read_trace
from fedcompass.vocabulary import Seconds, Steps

__all__ = ["Fleet", "TaskTime"]


class TaskTime(NamedTuple):
    """How long a task takes: training, and moving the model down and up."""

    compute: Seconds
    overhead: Seconds

    @property
    def total(self) -> Seconds:
        """From dispatch to arrival."""
        return self.compute + self.overhead


class _Script(NamedTuple):
    """Paces that are not drawn: each holds from its round on; the rounds rise."""

    rounds: list[int]
    paces: list[Seconds]


class _Pace(NamedTuple):
    seconds_per_step: Seconds
    lowest: Seconds
    """What jitter may not go below."""


class Fleet:
    """Clients 0 to m - 1; every answer is a pure function of settings, seed and arguments.

    Local rounds count from 0, the warm-up, for each client on its own. So the same seed is the same
    fleet under every strategy, whatever order a strategy asks in.

    Raises:
        DataError: the trace file is missing or damaged.
    """

    def __init__(self, settings: FleetSettings, seed: int) -> None:
        self.settings = settings
        self._clients = settings.clients
        self.seed = seed
        self._pace = Stream(seed, "pace")
        self._jitter = Stream(seed, "jitter")
        self._dropout = Stream(seed, "dropout")
        self._absence = Stream(seed, "absence")
        self._redrawn = RedrawnRounds(Stream(seed, "redraw"), settings.resample_probability)
        self._latency = settings.per_client_latency()
        self._bandwidth = settings.per_client_bandwidth()
        self._given, jitters = _given_paces(settings)
        self._jitter_share = settings.jitter if jitters else 0.0
        self._drawn = [self._draw(client, 0) for client in range(settings.clients)]
        self.paces = tuple(self._base(c, 0).seconds_per_step for c in range(settings.clients))
        """Seconds per step of each client in round 0, before jitter."""

    def __len__(self) -> int:
        return self._clients

    @property
    def speed_ratio(self) -> float:
        """The slowest client's seconds per step over the fastest one's: the paper's μ."""
        return max(self.paces) / min(self.paces)

    def base_seconds_per_step(self, client: int, local_round: int = 0) -> Seconds:
        """A client's pace in a round, before jitter."""
        self._check(client)
        return self._base(client, local_round).seconds_per_step

    def seconds_per_step(self, client: int, local_round: int) -> Seconds:
        """A client's pace in a round: its base pace with the round's jitter.

        A trace that lists rounds is taken as it is, without jitter.
        """
        self._check(client)
        pace, lowest = self._base(client, local_round)
        if self._jitter_share == 0:
            return pace
        noise = self._jitter_share * self._jitter.normal(client, local_round)
        return max(lowest, pace * (1.0 + noise))

    def task_seconds(
        self, client: int, local_round: int, steps: Steps, model_bytes: int = 0
    ) -> TaskTime:
        """How long a client takes to fetch the model, train some steps and send its update."""
        compute = self._with_naps(steps * self.seconds_per_step(client, local_round))
        one_way = self._latency[client] + model_bytes / self._bandwidth[client]
        return TaskTime(compute, 2 * one_way)

    def _with_naps(self, seconds: Seconds) -> Seconds:
        """At least the least time of a task, and beyond that whole naps."""
        least, nap = self.settings.least_task_seconds, self.settings.nap_seconds
        if nap == 0 or seconds <= least:
            return max(seconds, least)
        return least + nap * ceil((seconds - least) / nap - 1e-9)  # 30 s are 30 naps

    def outages(self, client: int) -> tuple[Dropout, ...]:
        """The scripted absences of a client, in order of time."""
        self._check(client)
        own = (drop for drop in self.settings.dropouts if drop.client == client)
        return tuple(sorted(own, key=lambda drop: drop.at))

    def drops_out(self, client: int, local_round: int) -> Seconds | None:
        """How long a client is gone if it happens to drop out in this round, else None."""
        self._check(client)
        if self._dropout.uniform(client, local_round) >= self.settings.dropout_probability:
            return None
        return self.settings.dropout_seconds * self._absence.exponential(client, local_round)

    def rows(self) -> list[dict[str, Any]]:
        """One flat record per client, for a table; a bandwidth without limit is None."""
        fastest = min(self.paces)
        unlimited = self.settings.bandwidth_bytes_per_second is None
        return [
            {
                "client": client,
                "seconds_per_step": pace,
                "times_fastest": pace / fastest,
                "latency_seconds": self._latency[client],
                "bandwidth_bytes_per_second": None if unlimited else self._bandwidth[client],
                "changes": self._changes(client),
                "outages": len(self.outages(client)),
            }
            for client, pace in enumerate(self.paces)
        ]

    def _changes(self, client: int) -> int:
        script = self._given.get(client)
        return 0 if script is None else sum(from_round > 0 for from_round in script.rounds)

    def _base(self, client: int, local_round: int) -> _Pace:
        """The pace of a round: given for it, else drawn; the later of the two counts."""
        drawn_in = self._redrawn.latest(client, local_round)
        script = self._given.get(client)
        if script is not None:
            latest = bisect_right(script.rounds, local_round) - 1
            if latest >= 0 and script.rounds[latest] >= drawn_in:
                pace = script.paces[latest]
                return _Pace(pace, self.settings.floor * pace)
        return self._draw(client, drawn_in) if drawn_in else self._drawn[client]

    def _draw(self, client: int, local_round: int) -> _Pace:
        settings = self.settings
        match settings.speed:
            case "normal":
                relative = self._normal(client, local_round)
            case "exponential":
                relative = self._pace.exponential(client, local_round)
            case _:  # homogeneous; a trace gives every pace and draws none
                relative = 1.0
        lowest = settings.floor * settings.mean_seconds_per_step
        return _Pace(max(lowest, settings.mean_seconds_per_step * relative), lowest)

    def _normal(self, client: int, local_round: int) -> float:
        """A normal pace relative to the mean, drawn again while it is below the floor.

        Lifted to the floor instead, a time that happened to be negative would be the fastest.
        """
        spread, floor = self.settings.spread, self.settings.floor
        relative, draws = 1.0 + spread * self._pace.normal(client, local_round), 1
        while relative < floor:  # no more than every second one: a floor is at most the mean
            draws += 1
            again = Stream(self.seed, f"pace, draw {draws}")
            relative = 1.0 + spread * again.normal(client, local_round)
        return relative

    def _check(self, client: int) -> None:
        if not 0 <= client < self._clients:
            last = self._clients - 1
            raise SettingsError(f"client {client} is not in the fleet; allowed: 0 to {last}")


def _given_paces(settings: FleetSettings) -> tuple[dict[int, _Script], bool]:
    """Each client's given paces, and whether jitter belongs on top of them."""
    given: dict[int, dict[int, Seconds]] = {}
    lists_rounds = False
    if settings.trace is not None:
        trace = read_trace(settings.trace, settings.clients)
        given, lists_rounds = dict(enumerate(trace.paces)), trace.lists_rounds
    for client, pace in enumerate(settings.paces or ()):
        given[client] = {0: pace}
    for change in settings.changes:
        given.setdefault(change.client, {})[change.from_round] = change.seconds_per_step
    scripts = {}
    for client, paces in given.items():
        rounds = sorted(paces)
        scripts[client] = _Script(rounds, [paces[from_round] for from_round in rounds])
    return scripts, not lists_rounds
