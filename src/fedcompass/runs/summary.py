"""The numbers of a run that a simulation's and a federation's summary.json have in common."""

from collections.abc import Sequence
from typing import Any

from fedcompass.runs.curve import Curve
from fedcompass.runs.tally import Tally
from fedcompass.scheduling.commands import Fold
from fedcompass.vocabulary import Seconds

__all__ = ["counted", "listed", "measured", "uploads_to"]


def measured(curve: Curve, target: float | None) -> dict[str, Any]:
    """What the curve says: the target, when it was reached, the best and the last value."""
    metric, best = curve.metric, curve.best
    return {
        "target_metric": metric,
        "target": target,
        "time_to_target": curve.time_to(target),
        f"top_{metric}": best and best.get(metric),
        "time_of_top": best and best["time"],
        f"final_{metric}": curve.rows[-1].get(metric) if curve.rows else None,
    }


def uploads_to(target: float | None, curve: Curve, tally: Tally) -> int | None:
    """Answers that had come when a target was reached; None: not reached, or there is none."""
    row = curve.row_at(target)
    return None if row is None else tally.uploads_before(row["version"])


def counted(tally: Tally, now: Seconds, pending: Sequence[Fold]) -> dict[str, Any]:
    """What the journal says, up to now; `pending` are the updates accepted but not merged."""
    clients = tally.clients.values()
    return {
        "updates": sum(client.updates for client in clients),
        "refused": sum(client.refused for client in clients),
        "refused_not_finite": sum(client.not_finite for client in clients),
        "quarantined": sorted(tally.quarantined()),
        "pending_updates": len(pending),
        "pending": listed(pending),
        "idle_share": tally.idle_share(now),
        "ahead_share": tally.ahead_share(now),
        "mean_staleness": tally.mean_staleness(),
        "max_staleness": max(tally.staleness, default=0),
    }


def listed(folds: Sequence[Fold]) -> list[list[Any]]:
    """Updates as [client, task, staleness]."""
    return [[fold.client, fold.task, fold.staleness] for fold in folds]
