"""What came out of a federation: read off its journal, so that a resumed run counts in full."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from fedcompass.aggregation import Refusal
from fedcompass.deployment.server_settings import FederationSettings
from fedcompass.finite_json import json_text
from fedcompass.runs.client_time import ClientTimes, idle_share
from fedcompass.runs.curve import Curve
from fedcompass.runs.journal import read_journal
from fedcompass.vocabulary import ClientId, ModelVersion, Seconds, TaskId

__all__ = ["SiteTally", "Summary", "summarize"]


@dataclass(slots=True)
class SiteTally:
    """One site's part in a run; seconds as `fedcompass.runs.client_time` counts them."""

    tasks: int = 0
    updates: int = 0  # accepted
    refused: int = 0
    not_finite: int = 0  # of the refused: they held NaN or infinity
    lost: int = 0  # tasks that failed
    left: int = 0  # how often it left or was given up
    steps: int = 0  # of accepted updates
    busy: Seconds = 0.0
    computing: Seconds = 0.0  # of that, as the site reports it
    overhead: Seconds = 0.0  # the rest of the tasks that it reports it of
    waiting: Seconds = 0.0
    quarantined: Seconds = 0.0

    @property
    def idle_share(self) -> float:
        """The part of its time that a site waited for others."""
        return idle_share(self.busy, self.waiting)

    def to_json(self) -> dict[str, Any]:
        """All counts, with the shares of time spent waiting and on overhead."""
        total = self.busy + self.waiting
        overhead = self.overhead / total if total else 0.0
        record = {name: getattr(self, name) for name in self.__slots__}
        return {**record, "idle_share": self.idle_share, "overhead_share": overhead}


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The numbers of a run.

    reason: why it ended: max_updates, max_seconds, target or stopped.
    seconds: of the run; the time a server was down does not count.
    spreads: of every group that merged with two answers or more, last minus first arrival over the
        round's length.
    pending: updates accepted but not merged at the end, as [client, task, staleness].
    quarantined: sites that are in quarantine at the end.
    """

    strategy: str
    seed: int
    reason: str
    seconds: Seconds
    global_updates: int
    target_metric: str
    target: float | None
    time_to_target: Seconds | None
    best: dict[str, Any] | None
    final: dict[str, Any] | None
    staleness: dict[int, int]
    spreads: list[float]
    pending: list[list[Any]]
    sites: dict[ClientId, SiteTally]
    quarantined: list[ClientId] = field(default_factory=list)

    @property
    def idle_share(self) -> float:
        """The part of the sites' time spent waiting for others."""
        sites = self.sites.values()
        return idle_share(sum(site.busy for site in sites), sum(site.waiting for site in sites))

    @property
    def arrival_spread(self) -> float | None:
        """The mean of `spreads`."""
        return fmean(self.spreads) if self.spreads else None

    def to_json(self) -> dict[str, Any]:
        """One table, named as a simulation's where it means the same."""
        metric, sites = self.target_metric, self.sites.values()
        folds = sum(self.staleness.values())
        total = sum(u * count for u, count in self.staleness.items())
        return {
            "strategy": self.strategy,
            "seed": self.seed,
            "reason": self.reason,
            "target_metric": metric,
            "target": self.target,
            "time_to_target": self.time_to_target,
            f"top_{metric}": self.best and self.best.get(metric),
            "time_of_top": self.best and self.best["time"],
            f"final_{metric}": self.final and self.final.get(metric),
            "seconds": self.seconds,
            "global_updates": self.global_updates,
            "local_steps": sum(site.steps for site in sites),
            "updates": sum(site.updates for site in sites),
            "refused": sum(site.refused for site in sites),
            "refused_not_finite": sum(site.not_finite for site in sites),
            "quarantined": self.quarantined,
            "pending_updates": len(self.pending),
            "pending": self.pending,
            "idle_share": self.idle_share,
            "arrival_spread": self.arrival_spread,
            "arrival_spreads": self.spreads,
            "mean_staleness": total / folds if folds else 0.0,
            "max_staleness": max(self.staleness, default=0),
            "sites": {client: site.to_json() for client, site in self.sites.items()},
        }

    def to_text(self) -> str:
        """The table as JSON."""
        return json_text(self.to_json(), indent=2) + "\n"


def summarize(
    settings: FederationSettings, curve: Curve, journal: Path, *, reason: str, now: Seconds
) -> Summary:
    """The numbers of a run that has just ended."""
    count = _Count()
    for _, record in read_journal(journal):
        count.take(record)
    count.end(now)
    return Summary(
        strategy=settings.chosen_strategy().name,
        seed=settings.seed,
        reason=reason,
        seconds=now,
        global_updates=count.version,
        target_metric=settings.target_metric,
        target=settings.target,
        time_to_target=curve.time_to(settings.target),
        best=curve.best,
        final=curve.rows[-1] if curve.rows else None,
        staleness=dict(sorted(count.staleness.items())),
        spreads=count.spreads,
        pending=[[f["client"], f["task"], f["staleness"]] for f in count.unmerged.values()],
        sites=count.sites,
        quarantined=count.quarantined,
    )


@dataclass(slots=True)
class _Count:
    """Goes through a journal line by line."""

    sites: dict[ClientId, SiteTally] = field(default_factory=dict)
    staleness: Counter[int] = field(default_factory=Counter)
    spreads: list[float] = field(default_factory=list)
    unmerged: dict[TaskId, dict[str, Any]] = field(default_factory=dict)  # folds
    version: ModelVersion = 0
    times: ClientTimes = field(default_factory=ClientTimes)
    quarantined: list[ClientId] = field(default_factory=list)  # at the end
    tasks: dict[TaskId, tuple[Seconds, int | None]] = field(default_factory=dict)  # of unmerged

    def take(self, record: dict[str, Any]) -> None:
        match record.get("event", record.get("command")):
            case "UpdateArrived":
                self._arrive(record)
            case "UpdateRefused":
                site = self._of(record)
                site.refused += 1
                site.not_finite += record["reason"] == Refusal.NOT_FINITE
            case "TaskLost":
                self._of(record).lost += 1
            case "ClientLost":
                self._of(record).left += 1
            case "ClientJoined":
                self._of(record)
            case "StartTraining":
                self._of(record).tasks += 1
                self.tasks[record["task"]] = (record["at"], record["group"])
            case "Fold":
                self._fold(record)
            case "Commit":
                self._commit(record)
            case _:
                pass
        self.times.take(record)

    def end(self, now: Seconds) -> None:
        """Count tasks and waits under way up to now."""
        times = self.times.clients
        self.quarantined = sorted(c for c, time in times.items() if time.doing == "quarantined")
        self.times.end(now)
        for client, time in self.times.clients.items():
            site = self.sites.setdefault(client, SiteTally())
            site.busy, site.waiting, site.quarantined = time.busy, time.waiting, time.quarantined

    def _of(self, record: dict[str, Any]) -> SiteTally:
        return self.sites.setdefault(record["client"], SiteTally())

    def _arrive(self, record: dict[str, Any]) -> None:
        computing, task = record["compute_seconds"], self.tasks.get(record["task"])
        if computing is not None and task is not None:
            site = self._of(record)
            site.computing += computing
            site.overhead += max(0.0, record["at"] - task[0] - computing)

    def _fold(self, record: dict[str, Any]) -> None:
        site = self._of(record)
        site.updates += 1
        site.steps += record["steps"]
        self.staleness[record["staleness"]] += 1
        self.unmerged[record["task"]] = record

    def _commit(self, record: dict[str, Any]) -> None:
        self.version = record["version"]
        folds = [self.unmerged.pop(task) for _, task, _ in record["contributions"]]
        started = {fold["task"]: self.tasks.pop(fold["task"]) for fold in folds}
        together = [f for f in folds if started[f["task"]][1] in (None, *record["buffers"])]
        if len(together) > 1:
            arrivals = [fold["at"] for fold in together]
            length = max(arrivals) - min(started[fold["task"]][0] for fold in together)
            self.spreads.append((max(arrivals) - min(arrivals)) / length if length > 0 else 0.0)
