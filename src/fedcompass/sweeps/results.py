"""A sweep's grid with the records that are there: what tables are made of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from fedcompass.errors import SettingsError
from fedcompass.setting_tables import flat
from fedcompass.sweeps.grid import label_of
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.store import Store
from fedcompass.sweeps.sweep_file import Planned

__all__ = ["GridRun", "Results"]

# What a table is usually about; what these decide, such as the model of a dataset, is no axis.
_USUAL_AXES = (
    "data.name",
    "model",
    "partition.kind",
    "fleet.clients",
    "fleet.speed",
    "profile",
    "strategy.name",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRun:
    """One run that was planned, and its record if there is one.

    labels: its place in the grid: each axis's label.
    """

    labels: Mapping[str, str]
    seed: int
    experiment: Mapping[str, Any]
    record: Record | None

    @property
    def is_done(self) -> bool:
        """Whether it came to its end."""
        return self.record is not None and self.record.is_done


@dataclass(frozen=True, slots=True)
class Results:
    """Runs, and each axis's labels in their order."""

    axes: Mapping[str, Sequence[str]]
    runs: Sequence[GridRun]

    @classmethod
    def of_plan(cls, plan: Iterable[Planned], store: Store) -> "Results":
        """What a store has of a plan; what it lacks is planned, not done."""
        store.refresh()
        runs = [
            GridRun(
                labels=planned.labels,
                seed=planned.experiment.seed,
                experiment=planned.experiment.to_record(),
                record=store.finished(key := planned.experiment.key()) or store.failure(key),
            )
            for planned in plan
        ]
        return cls(_axes(runs), runs)

    @classmethod
    def of_store(cls, store: Store) -> "Results":
        """All that a store has; the axes are the settings in which its runs differ.

        Every point is taken to be planned with every seed that occurs.
        """
        records = {record.key: record for record in store.records()}
        settings = {key: flat(record.experiment) for key, record in records.items()}
        axes = _told_apart_by(list(settings.values()))
        seeds = sorted({record.seed for record in records.values()})
        points: dict[tuple[str, ...], dict[int, Record]] = {}
        for key, record in records.items():
            point = tuple(label_of(settings[key].get(axis, "-")) for axis in axes)
            points.setdefault(point, {})[record.seed] = record
        runs = [
            GridRun(
                labels=dict(zip(axes, point, strict=True)),
                seed=seed,
                experiment={**next(iter(by_seed.values())).experiment, "seed": seed},
                record=by_seed.get(seed),
            )
            for point, by_seed in points.items()
            for seed in seeds
        ]
        return cls(_axes(runs), runs)

    def labels(self, axis: str) -> Sequence[str]:
        """An axis's labels.

        Raises:
            SettingsError: there is no such axis.
        """
        if axis not in self.axes:
            have = ", ".join(self.axes) or "none"
            raise SettingsError(f"axis {axis!r} is not in these results; they have: {have}")
        return self.axes[axis]

    def where(self, axis: str, pattern: str) -> "Results":
        """The runs whose label on an axis fits a pattern, in which `*` is any text.

        Raises:
            SettingsError: there is no such axis, or it has no such label.
        """
        fitting = [label for label in self.labels(axis) if fnmatchcase(label, pattern)]
        if not fitting:
            have = "; ".join(self.axes[axis])
            raise SettingsError(f"{axis} is {pattern!r}; these results have: {have}")
        runs = [run for run in self.runs if run.labels[axis] in fitting]
        return Results(_axes(runs), runs)

    def whole_seeds(self) -> "Results":
        """The runs of those seeds with which every run has come to its end.

        Of a sweep that was stopped the long runs are missing; what is left of the other seeds is
        no fair choice.

        Raises:
            SettingsError: there is no such seed.
        """
        partial = {run.seed for run in self.runs if not run.is_done}
        runs = [run for run in self.runs if run.seed not in partial]
        if not runs:
            raise SettingsError(
                f"no seed is whole: each lacks some of {len(self.runs)} runs; go on with "
                "`fedcompass sweep`, or narrow by --where"
            )
        return Results(self.axes, runs)


def _axes(runs: Sequence[GridRun]) -> dict[str, list[str]]:
    """Each axis's labels, in the order in which they first appear."""
    axes: dict[str, dict[str, None]] = {}
    for run in runs:
        for axis, label in run.labels.items():
            axes.setdefault(axis, {})[label] = None
    return {axis: list(labels) for axis, labels in axes.items()}


def _told_apart_by(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fewest keys, the usual ones first, that tell all settings apart but for the seed."""
    keys = sorted({key for table in settings for key in table} - {"seed", *_USUAL_AXES})
    chosen: list[str] = []
    groups = [0] * len(settings)  # those of one number are not told apart yet
    for key in (*_USUAL_AXES, *keys):
        labels = [label_of(table.get(key)) for table in settings]
        numbers: dict[tuple[int, str], int] = {}
        finer = [
            numbers.setdefault(pair, len(numbers)) for pair in zip(groups, labels, strict=True)
        ]
        if len(numbers) > len(set(groups)):
            chosen.append(key)
            groups = finer
    return chosen
