"""What came out of a federation: read off its journal, so that a resumed run counts in full."""

from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from fedcompass.deployment.server_settings import FederationSettings
from fedcompass.finite_json import json_text
from fedcompass.runs.curve import Curve
from fedcompass.runs.journal import read_journal
from fedcompass.runs.tally import ClientTally, Tally, idle_share
from fedcompass.vocabulary import ClientId, Seconds

__all__ = ["Summary", "summarize"]


_OF_A_SITE = (
    "tasks",
    "updates",
    "refused",
    "not_finite",
    "lost",
    "left",
    "steps",
    "busy",
    "computing",
    "overhead",
    "waiting",
    "quarantined",
)


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
    sites: dict[ClientId, ClientTally]
    quarantined: list[ClientId] = field(default_factory=list)

    @property
    def idle_share(self) -> float:
        """The part of the sites' time spent waiting for others."""
        return idle_share(self.sites.values())

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
            "sites": {client: _site_row(site) for client, site in self.sites.items()},
        }

    def to_text(self) -> str:
        """The table as JSON."""
        return json_text(self.to_json(), indent=2) + "\n"


def summarize(
    settings: FederationSettings,
    curve: Curve,
    journal: Path,
    *,
    reason: str,
    now: Seconds,
    pending: list[list[Any]],
) -> Summary:
    """The numbers of a run that has just ended."""
    tally = Tally()
    for _, record in read_journal(journal):
        tally.take(record)
    return Summary(
        strategy=settings.chosen_strategy().name,
        seed=settings.seed,
        reason=reason,
        seconds=now,
        global_updates=tally.version,
        target_metric=settings.target_metric,
        target=settings.target,
        time_to_target=curve.time_to(settings.target),
        best=curve.best,
        final=curve.rows[-1] if curve.rows else None,
        staleness=dict(sorted(tally.staleness.items())),
        spreads=tally.spreads,
        pending=pending,
        sites=tally.until(now),
        quarantined=sorted(tally.quarantined()),
    )


def _site_row(site: ClientTally) -> dict[str, Any]:
    """All counts, with the shares of time spent waiting and on overhead."""
    total = site.busy + site.waiting
    return {
        **{name: getattr(site, name) for name in _OF_A_SITE},
        "idle_share": idle_share([site]),
        "overhead_share": site.overhead / total if total else 0.0,
    }
