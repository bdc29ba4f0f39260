"""Results compared over seeds: times relative to a reference, counts and wins, point by point.

The rules are those of `over_seeds`; a point that lacks seeds says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcompass.errors import SettingsError
from fedcompass.sweeps.over_seeds import OverSeeds, over_seeds
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.results import GridRun, Results

__all__ = ["Comparison", "GridPoint", "compared_axis"]

_STRATEGIES = "strategy.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint:
    """One point of the grid over its seeds.

    row: its numbers over the seeds that are done; None if none is.
    planned, done, failed: seeds.
    wins: seeds in which nobody it is compared with was faster, among those that all have done.
    experiment: of one of its seeds.
    """

    labels: Mapping[str, str]
    row: OverSeeds | None
    planned: int
    done: int
    failed: int
    wins: int
    experiment: Mapping[str, Any]

    @property
    def is_partial(self) -> bool:
        """Whether seeds are missing."""
        return self.done < self.planned


class Comparison:
    """The points of a grid, compared along one axis with one of its labels.

    Args:
        results: what there is.
        reference: a label, or AXIS=LABEL; what times are relative to. Where no axis has it, there
            are no relative times.
    """

    def __init__(self, results: Results, reference: str = "fedcompass") -> None:
        self.results = results
        self.axis, self.reference = compared_axis(results, reference)
        groups: dict[tuple[str, ...], list[GridRun]] = {}
        for run in results.runs:
            groups.setdefault(self._group(run.labels), []).append(run)
        self._points: dict[tuple[str, ...], GridPoint] = {}
        for runs in groups.values():
            self._add_points(runs)

    def points(self) -> list[GridPoint]:
        """All points, in the grid's order."""
        order = {
            axis: {label: n for n, label in enumerate(v)} for axis, v in self.results.axes.items()
        }
        return sorted(
            self._points.values(),
            key=lambda point: [order[axis][label] for axis, label in point.labels.items()],
        )

    def point(self, labels: Mapping[str, str]) -> GridPoint | None:
        """The one with these labels, if it is in there."""
        return self._points.get(tuple(labels[axis] for axis in self.results.axes))

    def _group(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """What points that are compared with each other have in common."""
        return tuple(label for axis, label in labels.items() if axis != self.axis)

    def _add_points(self, runs: Sequence[GridRun]) -> None:
        by_label: dict[str, list[GridRun]] = {}
        for run in runs:
            by_label.setdefault(run.labels.get(self.axis, ""), []).append(run)
        lacking = {run.seed for run in runs if not run.is_done}
        done = {label: _done(found) for label, found in by_label.items()}
        fair = {label: [r for r in found if r.seed not in lacking] for label, found in done.items()}
        rows, fair_rows = over_seeds(done, self.reference), over_seeds(fair, self.reference)
        for label, found in by_label.items():
            labels = found[0].labels
            self._points[tuple(labels[axis] for axis in self.results.axes)] = GridPoint(
                labels=labels,
                row=rows.get(label),
                planned=len(found),
                done=len(done[label]),
                failed=sum(run.record is not None and not run.is_done for run in found),
                wins=fair_rows[label].wins if label in fair_rows else 0,
                experiment=found[0].experiment,
            )


def compared_axis(results: Results, reference: str, *, must_have: bool = False) -> tuple[str, str]:
    """The axis that has the reference among its labels, and the label.

    Raises:
        SettingsError: AXIS=LABEL, or with `must_have` any reference, names what is not there.
    """
    axes = results.axes
    axis, equals, label = reference.rpartition("=")
    names = [axis] if equals else sorted(axes, key=lambda name: name != _STRATEGIES)
    for name in names:
        if label in axes.get(name, ()):
            return name, label
    if equals or must_have:
        known = "; ".join(
            f"{name}: {', '.join(map(repr, labels))}" for name, labels in axes.items()
        )
        raise SettingsError(f"--reference is {reference!r}; there are {known or 'no axes'}")
    return (names[0] if names else ""), label


def _done(runs: Sequence[GridRun]) -> list[Record]:
    return [run.record for run in runs if run.record is not None and run.is_done]
