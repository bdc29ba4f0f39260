"""The standard metrics, from a run's journal and evaluations; the step is the model's version.

test/accuracy, test/loss, …   of an evaluated global model, on the test set
clients/accuracy/mean, …/min, …/max   on the clients' own samples, if that was measured
time              of the run in seconds; virtual in a simulation
updates           client updates merged so far
steps             local steps of the updates accepted so far
merge/updates     client updates in this merge
staleness/mean    of the updates in this merge
staleness/max     likewise
idle_share        part of the clients' time spent waiting so far, as `runs.tally` counts
refused           updates refused so far
summary/…         the numbers of the run's summary.json, at its end
"""

from collections.abc import Mapping
from statistics import fmean
from typing import Any, NamedTuple

from fedcompass.runs.curve import metrics_of
from fedcompass.runs.tally import Tally, is_made, merged_in
from fedcompass.vocabulary import Seconds

__all__ = ["Point", "evaluation_point", "journal_point", "summary_metrics"]


class Point(NamedTuple):
    """Metrics of one version of the global model."""

    at: Seconds
    step: int
    values: dict[str, float]


def evaluation_point(row: Mapping[str, Any], target_metric: str) -> Point:
    """The metrics of one line of metrics.jsonl; what was not a finite number is left out."""
    measured = metrics_of(row).items()
    values = {f"test/{key}": float(value) for key, value in measured if value is not None}
    per_client = [float(value) for value in row.get("clients", ()) if value is not None]
    if per_client:
        prefix = f"clients/{target_metric}"
        values |= {
            f"{prefix}/mean": fmean(per_client),
            f"{prefix}/min": min(per_client),
            f"{prefix}/max": max(per_client),
        }
    return Point(float(row["time"]), int(row["version"]), values)


def summary_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """The plain numbers of a summary."""
    return {
        f"summary/{key}": float(value)
        for key, value in summary.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def journal_point(tally: Tally, record: Mapping[str, Any]) -> Point | None:
    """Take the journal's next line into the tally; the metrics of a merge, None of other lines."""
    tally.take(record)
    if record.get("command") != "Commit" or not is_made(record):
        return None
    clients = tally.clients.values()
    staleness = [u for _, _, u in merged_in(record)]
    values = {
        "time": float(record["at"]),
        "updates": float(tally.merged),
        "steps": float(sum(client.steps for client in clients)),
        "merge/updates": float(len(staleness)),
        "idle_share": tally.idle_share(record["at"]),
        "refused": float(sum(client.refused for client in clients)),
    }
    if staleness:
        values |= {"staleness/mean": fmean(staleness), "staleness/max": float(max(staleness))}
    return Point(float(record["at"]), tally.version, values)
