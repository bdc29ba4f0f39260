"""Results as tables: mean and spread over seeds, relative times, counts and wins, cell by cell.

The rules are those of `simulation.comparison`; a cell that lacks seeds says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcompass.errors import SettingsError
from fedcompass.sweeps.over_seeds import Outcome, StrategyRow, comparison_rows
from fedcompass.sweeps.results import Entry, Results

__all__ = ["Cell", "Comparison", "compared_axis"]

_STRATEGIES = "strategy.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point of the grid over its seeds.

    row: its numbers over the seeds that are done; None if none is.
    planned, done, failed: seeds.
    wins: seeds in which nobody it is compared with was faster, among those that all have done.
    experiment: of one of its seeds.
    """

    labels: Mapping[str, str]
    row: StrategyRow | None
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
    """The cells of a grid, compared along one axis with one of its labels.

    Args:
        results: what there is.
        reference: a label, or AXIS=LABEL; what times are relative to. Where no axis has it, there
            are no relative times.
    """

    def __init__(self, results: Results, reference: str = "fedcompass") -> None:
        self.results = results
        self.axis, self.reference = compared_axis(results, reference)
        groups: dict[tuple[str, ...], list[Entry]] = {}
        for entry in results.entries:
            groups.setdefault(self._group(entry.labels), []).append(entry)
        self._cells: dict[tuple[str, ...], Cell] = {}
        for entries in groups.values():
            self._add_cells(entries)

    def cells(self) -> list[Cell]:
        """All cells, in the grid's order."""
        order = {axis: {label: n for n, label in enumerate(v)} for axis, v in self._axes()}
        return sorted(
            self._cells.values(),
            key=lambda cell: [order[axis][label] for axis, label in cell.labels.items()],
        )

    def cell(self, labels: Mapping[str, str]) -> Cell | None:
        """The cell at a point of the grid, if it is in there."""
        return self._cells.get(tuple(labels[axis] for axis, _ in self._axes()))

    def _axes(self) -> list[tuple[str, Sequence[str]]]:
        return list(self.results.axes.items())

    def _group(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """What cells that are compared with each other have in common."""
        return tuple(label for axis, label in labels.items() if axis != self.axis)

    def _add_cells(self, entries: Sequence[Entry]) -> None:
        by_label: dict[str, list[Entry]] = {}
        for entry in entries:
            by_label.setdefault(entry.labels.get(self.axis, ""), []).append(entry)
        outcomes = [o for label, found in by_label.items() for o in _outcomes(label, found)]
        lacking = {entry.seed for entry in entries if not entry.is_done}
        fair = [outcome for outcome in outcomes if outcome.seed not in lacking]
        rows = {row.strategy: row for row in comparison_rows(outcomes, self.reference)}
        wins = {row.strategy: row.wins for row in comparison_rows(fair, self.reference)}
        for label, found in by_label.items():
            labels = found[0].labels
            self._cells[tuple(labels[axis] for axis, _ in self._axes())] = Cell(
                labels=labels,
                row=rows.get(label),
                planned=len(found),
                done=sum(entry.is_done for entry in found),
                failed=sum(entry.record is not None and not entry.is_done for entry in found),
                wins=wins.get(label, 0),
                experiment=found[0].experiment,
            )


def compared_axis(results: Results, reference: str) -> tuple[str, str]:
    """The axis that has the reference among its labels, and the label.

    Raises:
        SettingsError: AXIS=LABEL names what is not there.
    """
    axes = results.axes
    axis, equals, label = reference.rpartition("=")
    if equals:
        if label not in axes.get(axis, ()):
            known = "; ".join(f"{name}: {', '.join(labels)}" for name, labels in axes.items())
            raise SettingsError(f"--reference is {reference!r}; there are {known}")
        return axis, label
    preferred = sorted(axes, key=lambda name: name != _STRATEGIES)
    for name in preferred:
        if reference in axes[name]:
            return name, reference
    return (preferred[0] if preferred else ""), reference


def _outcomes(label: str, entries: Sequence[Entry]) -> list[Outcome]:
    done = [entry.record for entry in entries if entry.record is not None and entry.is_done]
    return [record.compared(label) for record in done]
