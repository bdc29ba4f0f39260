"""What came out of a run, for people and for programs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fedcompass.errors import MissingExtra, RunFolderError, SettingsError
from fedcompass.experiment import Experiment
from fedcompass.finite_json import json_text
from fedcompass.own_code import short
from fedcompass.runs.curve import Curve, metrics_of
from fedcompass.runs.files import write_whole
from fedcompass.runs.folder import RunFolder
from fedcompass.runs.summary import counted, measured, uploads_to
from fedcompass.runs.tally import ClientTally, LocalRound, Tally
from fedcompass.scheduling.commands import Fold
from fedcompass.settings.training import higher_is_better
from fedcompass.simulation.ending import Ended
from fedcompass.simulation.experiment_folder import write_experiment
from fedcompass.simulation.result_view import as_html, as_text
from fedcompass.vocabulary import ModelVersion, Seconds, Steps

__all__ = [
    "Result",
    "client_rows",
    "curve_of",
    "summarize",
]

_OF_A_CLIENT = (
    "tasks",
    "updates",
    "refused",
    "not_finite",
    "steps",
    "weight",
    "busy",
    "waiting",
    "quarantined",
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A finished run; printed, it tells its numbers, and in a notebook it draws itself.

    curve: one record per evaluation: time, version and metrics; `pandas.DataFrame(curve)` works.
    clients: one record per client: tasks, updates, steps, busy and waiting seconds, weight.
    summary: the numbers of the run in one flat table.
    model, best_model: tensors by name, as `load_state_dict` takes them.
    pending: updates accepted but not merged when the run ended, as [client, task, staleness].
    tasks: when each began and ended; empty where a folder has the journal.
    """

    experiment: Experiment
    curve: list[dict[str, Any]]
    clients: list[dict[str, Any]]
    summary: dict[str, Any]
    model: dict[str, Tensor]
    best_model: dict[str, Tensor]
    pending: list[list[Any]]
    folder: Path | None = None
    tasks: list[LocalRound] = field(default_factory=list)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        """The curve and the timeline, for notebooks."""
        return as_html(self)

    def plot(self, metric: str | None = None, axes: Any = None) -> Any:
        """Draw a metric over virtual time with matplotlib; returns the axes.

        Args:
            metric: the target metric unless given.
            axes: where to draw; a new figure's unless given.

        Raises:
            MissingExtra: matplotlib is not installed.
            SettingsError: the metric was not measured.
        """
        name = short(metric or self.experiment.evaluation.target_metric)
        rows = curve_of(self.curve, name).rows
        if axes is None:
            axes = _new_axes()
        label = f"{self.summary['strategy']}, seed {self.summary['seed']}"
        times = [row["time"] for row in rows]
        axes.step(times, [row.get(name) for row in rows], where="post", label=label)
        target = self.experiment.target
        if target is not None and name == self.summary["target_metric"]:
            axes.axhline(target, color="gray", linestyle=":", label="target")
        axes.set(xlabel="virtual time (s)", ylabel=name.replace("_", " "))
        axes.legend()
        return axes

    def time_to(self, target: float, metric: str | None = None) -> Seconds | None:
        """Virtual time of the first evaluation at or above the target; None if there is none.

        A metric that is to fall, such as a loss: the first at or below.
        """
        name = short(metric or self.experiment.evaluation.target_metric)
        return curve_of(self.curve, name).time_to(target)

    def top(self, metric: str | None = None) -> float:
        """The best value of a metric: the highest, of one that is to fall the lowest.

        Raises:
            SettingsError: it was not measured.
        """
        name = short(metric or self.experiment.evaluation.target_metric)
        best = curve_of(self.curve, name).best
        if best is None:
            raise SettingsError(f"{name} was not measured: nothing was trained in this run")
        return float(best[name])

    def save(self, folder: str | Path) -> Path:
        """Write settings, curve, clients, summary and models into a new folder.

        Raises:
            RunFolderError: the folder exists or cannot be made.
        """
        path = Path(folder)
        if path.exists():
            raise RunFolderError(f"{path} exists already; choose another folder")
        made = RunFolder(path)
        made.make()
        write_experiment(made, self.experiment)
        self.write(made)
        return path

    def write(self, folder: RunFolder) -> None:
        """Write the curve, clients, models and, last, the summary into a folder that exists.

        Raises:
            RunFolderError, CheckpointError: the disk is full or the folder cannot be written to.
        """
        folder.write_metrics(self.curve)
        write_whole(folder.path / "clients.json", json_text(self.clients, indent=2) + "\n")
        folder.save_model("final", self.model)
        folder.save_model("best", self.best_model)
        folder.finish(self.summary)


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise MissingExtra("matplotlib", "plot", "drawing") from None
    return pyplot.subplots()[1]


def curve_of(rows: list[dict[str, Any]], metric: str) -> Curve:
    """A run's rows judged by one of their metrics.

    Raises:
        SettingsError: it was not measured, or nobody knows its direction.
    """
    measured = metrics_of(rows[0]) if rows else {metric: None}
    if metric not in measured:
        raise SettingsError(f"metric is {metric!r}; measured were: {', '.join(measured)}")
    return Curve(metric, rises=higher_is_better(metric), rows=rows)


def summarize(
    experiment: Experiment,
    curve: Curve,
    tally: Tally,
    *,
    ended: Ended,
    now: Seconds,
    version: ModelVersion,
    steps: Steps,
    pending: list[Fold],
    further: dict[str, Any],
) -> dict[str, Any]:
    """The numbers of a run in one flat table; no wall-clock times, so that runs compare equal."""
    clients = [client for _, client in _by_number(tally)]
    return {
        "strategy": short(experiment.strategy["name"]),
        "ended": ended,
        "seed": experiment.seed,
        **measured(curve, experiment.target),
        "uploads_to_target": uploads_to(experiment.target, curve, tally),
        "virtual_seconds": now,
        "horizon": experiment.horizon,
        "global_updates": version,
        "local_steps": steps,
        **counted(tally, now, pending),
        "quarantined": sorted(map(int, tally.quarantined())),
        "updates_per_client": [client.updates for client in clients],
        "steps_per_client": [client.steps for client in clients],
        **further,
    }


def client_rows(tally: Tally, now: Seconds) -> list[dict[str, Any]]:
    """One record per client: its part in the run up to now."""
    return [
        {
            "client": number,
            **{name: getattr(client.until(now), name) for name in _OF_A_CLIENT},
            **({} if client.epsilon is None else {"epsilon": client.epsilon}),
        }
        for number, client in _by_number(tally)
    ]


def _by_number(tally: Tally) -> list[tuple[int, ClientTally]]:
    return sorted((int(name), client) for name, client in tally.clients.items())
