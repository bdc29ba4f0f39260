"""What came out of a federation: the tally of its whole journal, however often it was resumed."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fedcompass.runs.curve import Curve, Row
from fedcompass.runs.summary import counted, measured
from fedcompass.runs.tally import ClientTally, Tally, idle_share
from fedcompass.scheduling.commands import Fold
from fedcompass.vocabulary import ClientId, ModelVersion, Seconds

__all__ = ["Summary"]


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
_OF_A_PRIVATE_SITE = ("epsilon", "delta", "budget_spent")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The numbers of a run.

    reason: why it ended: max_updates, max_seconds, target, budgets spent or stopped.
    seconds: of the run; the time a server was down does not count.
    curve, tally: what was measured and counted.
    pending: updates accepted but not merged at the end.
    """

    strategy: str
    seed: int
    reason: str
    seconds: Seconds
    target: float | None
    curve: Curve
    tally: Tally
    pending: Sequence[Fold] = ()

    @property
    def global_updates(self) -> ModelVersion:
        """The last model's version."""
        return self.tally.version

    @property
    def time_to_target(self) -> Seconds | None:
        """When the target was reached; None: never, or there is none."""
        return self.curve.time_to(self.target)

    @property
    def final(self) -> Row | None:
        """The last evaluation."""
        return self.curve.rows[-1] if self.curve.rows else None

    @property
    def sites(self) -> dict[ClientId, ClientTally]:
        """Each site's part."""
        return self.tally.until(self.seconds)

    @property
    def arrival_spread(self) -> float | None:
        """The mean over the groups that merged with two answers or more."""
        return fmean(self.tally.spreads) if self.tally.spreads else None

    def to_json(self) -> dict[str, Any]:
        """One table, named as a simulation's where it means the same."""
        return {
            "strategy": self.strategy,
            "seed": self.seed,
            "reason": self.reason,
            **measured(self.curve, self.target),
            "seconds": self.seconds,
            "global_updates": self.global_updates,
            "local_steps": sum(site.steps for site in self.tally.clients.values()),
            **counted(self.tally, self.seconds, self.pending),
            **({"failed_merges": self.tally.failed_merges} if self.tally.failed_merges else {}),
            **({"lost_updates": self.tally.lost_updates} if self.tally.lost_updates else {}),
            "arrival_spread": self.arrival_spread,
            "arrival_spreads": self.tally.spreads,
            "sites": {client: _site_row(site) for client, site in self.sites.items()},
        }


def _site_row(site: ClientTally) -> dict[str, Any]:
    """All counts, with the shares of time spent waiting and on overhead."""
    total = site.busy + site.waiting
    private = site.epsilon is not None or site.budget_spent
    names = _OF_A_SITE + (_OF_A_PRIVATE_SITE if private else ())
    return {
        **{name: getattr(site, name) for name in names},
        "idle_share": idle_share([site]),
        "overhead_share": site.overhead / total if total else 0.0,
    }
