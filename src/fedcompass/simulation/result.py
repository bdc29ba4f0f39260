"""What came out of a run, for people and for programs."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from fedcompass.errors import RunFolderError, SettingsError
from fedcompass.experiment import Experiment
from fedcompass.finite_json import json_text
from fedcompass.settings.metrics import score
from fedcompass.simulation.ending import Ended
from fedcompass.simulation.statistics import Statistics
from fedcompass.vocabulary import Seconds

__all__ = [
    "Result",
    "make_folder",
    "sorted_clients",
    "summarize",
    "time_to",
    "write_whole",
]

_NOT_METRICS = ("time", "version", "clients")  # of a row


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finished run.

    curve: one record per evaluation: time, version and metrics; `pandas.DataFrame(curve)` works.
    clients: one record per client: tasks, updates, steps, busy and waiting seconds, weight.
    summary: the numbers of the run in one flat table.
    model, best_model: tensors by name, as `load_state_dict` takes them.
    pending: updates accepted but not merged when the run ended, as [client, task, staleness].
    """

    experiment: Experiment
    curve: list[dict[str, Any]]
    clients: list[dict[str, Any]]
    summary: dict[str, Any]
    model: dict[str, Tensor]
    best_model: dict[str, Tensor]
    pending: list[list[Any]]
    folder: Path | None = None

    def time_to(self, target: float, metric: str | None = None) -> Seconds | None:
        """Virtual time of the first evaluation at or above the target; None if there is none.

        A metric that is to fall, such as a loss: the first at or below.
        """
        return time_to(self.curve, target, metric or self.experiment.evaluation.target_metric)

    def top(self, metric: str | None = None) -> float:
        """The best value of a metric: the highest, of one that is to fall the lowest.

        Raises:
            SettingsError: it was not measured.
        """
        name = metric or self.experiment.evaluation.target_metric
        _check_metric(self.curve, name)
        if not self.curve:
            raise SettingsError(f"{name} was not measured: nothing was trained in this run")
        return float(_best_row(self.curve, name)[name])

    def save(self, folder: str | Path) -> Path:
        """Write settings, curve, clients, summary and models into a new folder.

        Raises:
            RunFolderError: the folder exists or cannot be made.
        """
        path = Path(folder)
        if path.exists():
            raise RunFolderError(f"{path} exists already; choose another folder")
        make_folder(path)
        write_whole(path / "experiment.toml", tomli_w.dumps(self.experiment.to_record()))
        lines = "".join(json_text(row) + "\n" for row in self.curve)
        write_whole(path / "metrics.jsonl", lines)
        self.write(path)
        return path

    def write(self, path: Path) -> None:
        """Write clients, models and, last, the summary into a folder that exists.

        Raises:
            RunFolderError: the disk is full or the folder cannot be written to.
        """
        try:
            write_whole(path / "clients.json", json_text(self.clients, indent=2) + "\n")
            for name, model in (("final", self.model), ("best", self.best_model)):
                save_file(model, path / f"{name}.safetensors")
                (path / f"{name}.safetensors").chmod(0o644)  # safetensors makes it private
            write_whole(path / "summary.json", json_text(self.summary, indent=2) + "\n")
        except (OSError, SafetensorError) as error:
            raise RunFolderError(f"{path} cannot be written to: {error}; free some space") from None


def make_folder(path: Path) -> None:
    """Make a new folder and those above it, or say why that cannot be."""
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be made: {error.strerror}; choose another folder"
        ) from None


def write_whole(path: Path, text: str) -> None:
    """Write a file that is either absent, the old one or the whole new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def time_to(curve: list[dict[str, Any]], target: float, metric: str) -> Seconds | None:
    """Virtual time of the first row that is as good as the target."""
    _check_metric(curve, metric)
    enough = score(metric, target)
    good = (row for row in curve if score(metric, row[metric]) >= enough)
    return next((float(row["time"]) for row in good), None)


def _best_row(curve: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """The first of the best rows; there must be one."""
    return max(curve, key=lambda row: score(metric, row[metric]))


def _check_metric(curve: list[dict[str, Any]], metric: str) -> None:
    measured = [key for key in curve[0] if key not in _NOT_METRICS] if curve else [metric]
    if metric not in measured:
        raise SettingsError(f"metric is {metric!r}; measured were: {', '.join(measured)}")


def summarize(
    experiment: Experiment,
    curve: list[dict[str, Any]],
    statistics: Statistics,
    *,
    ended: Ended,
    now: Seconds,
    version: int,
    steps: int,
    pending: list[list[Any]],
) -> dict[str, Any]:
    """The numbers of a run in one flat table; no wall-clock times, so that runs compare equal."""
    metric = experiment.evaluation.target_metric
    best = _best_row(curve, metric) if curve else None
    reached = time_to(curve, experiment.target, metric) if experiment.target is not None else None
    return {
        "strategy": experiment.strategy["name"],
        "ended": ended,
        "seed": experiment.seed,
        "target_metric": metric,
        "target": experiment.target,
        "time_to_target": reached,
        f"top_{metric}": best[metric] if best else None,
        "time_of_top": best["time"] if best else None,
        f"final_{metric}": curve[-1][metric] if curve else None,
        "virtual_seconds": now,
        "horizon": experiment.horizon,
        "global_updates": version,
        "local_steps": steps,
        "updates": sum(tally.updates for tally in statistics.clients.values()),
        "refused": sum(tally.refused for tally in statistics.clients.values()),
        "refused_not_finite": sum(tally.not_finite for tally in statistics.clients.values()),
        "quarantined": sorted(map(int, statistics.quarantined())),
        "pending_updates": len(pending),
        "pending": pending,
        "idle_share": statistics.idle_share(now),
        "mean_staleness": statistics.mean_staleness(),
        "max_staleness": max(statistics.staleness, default=0),
        "updates_per_client": [t.updates for _, t in sorted_clients(statistics)],
        "steps_per_client": [t.steps for _, t in sorted_clients(statistics)],
    }


def sorted_clients(statistics: Statistics) -> list[tuple[str, Any]]:
    """Clients by number."""
    return sorted(statistics.clients.items(), key=lambda item: int(item[0]))
