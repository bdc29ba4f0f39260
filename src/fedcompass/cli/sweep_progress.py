"""Progress of a sweep: a live table in a terminal, a line per run elsewhere."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from fedcompass.cli.progress import LiveTable, TimeLeft
from fedcompass.number_text import metric_text, number_of
from fedcompass.own_code import short
from fedcompass.runs.journal import latest_time

if TYPE_CHECKING:
    from rich.table import Table

    from fedcompass.experiment import Experiment
    from fedcompass.sweeps.record import Record
    from fedcompass.sweeps.store import Store
    from fedcompass.sweeps.sweep_file import Planned, Sweep

__all__ = ["SweepProgress"]

_ROWS = 24  # of the live table at most
_TableCell: TypeAlias = tuple[tuple[str, ...], str]
"""Row and column in the live table: the labels of all axes but one, and that one's."""


class SweepProgress:
    """Counts the finished runs of each cell and estimates the time left.

    live: shows it; use it in a `with`.
    """

    def __init__(
        self, sweep: "Sweep", store: "Store", place: "Callable[[Experiment], Path]"
    ) -> None:
        self._place = place
        self._plan = sweep.plan()
        self._axes = list(sweep.axes)
        self._columns = "strategy.name" if "strategy.name" in self._axes else None
        if self._columns is None and self._axes:
            self._columns = max(self._axes, key=lambda axis: len(sweep.axes[axis]))
        self._places: dict[str, list[Planned]] = {}
        for planned in self._plan:
            self._places.setdefault(planned.experiment.key(), []).append(planned)
        self._planned = Counter(self._cell(planned) for planned in self._plan)
        self._done: Counter[_TableCell] = Counter()
        self._failed: Counter[_TableCell] = Counter()
        self._errors: set[str] = set()  # that were told
        self._finished: set[str] = set()
        self._broke_off: set[str] = set()
        for key in self._places:
            if (record := store.finished(key)) is not None:
                self._take(key, record)
        self._left = TimeLeft()
        self._left.reach(len(self._finished) / len(self._places))
        self.live = LiveTable(self._table, self._so_far)

    @property
    def is_complete(self) -> bool:
        """Whether every run is done."""
        return len(self._finished) == len(self._places)

    def state(self) -> str:
        """How many runs are done, in words."""
        off = len(self._broke_off)
        marked = f", {off} of them broke off: nobody was left to train" if off else ""
        return f"{len(self._finished)} of {len(self._places)} done{marked}"

    def update(self, record: "Record") -> None:
        """Count a run that ended."""
        self._take(record.key, record)
        if not self.live.is_live or not record.is_done or record.key in self._broke_off:
            self.live.say(self._line(record))

    def _take(self, key: str, record: "Record") -> None:
        """Count a run; an old store may have it under another key."""
        counts = self._done if record.is_done else self._failed
        counts.update(self._cell(planned) for planned in self._places[key])
        if record.is_done:
            self._finished.add(key)
        if record.outcome is not None and record.outcome.broke_off:
            self._broke_off.add(key)

    def _cell(self, planned: "Planned") -> _TableCell:
        """Where a run stands in the live table."""
        row = [label for axis, label in planned.labels.items() if axis != self._columns]
        return tuple(row), planned.labels.get(self._columns or "", "runs")

    def _line(self, record: "Record") -> str:
        planned = self._places[record.key][0]
        where = ", ".join([*planned.labels.values(), f"seed {record.seed}"])
        told = "failed: the same error" if record.error in self._errors else _outcome(record)
        if record.error is not None:
            self._errors.add(record.error)
        return f"  [{len(self._finished)}/{len(self._places)}] {where}: {told}"

    def _so_far(self) -> str:
        """Percent and time left, with what runs under way have done."""
        open_runs = [
            p[0].experiment for key, p in self._places.items() if key not in self._finished
        ]
        done = len(self._finished) + sum(map(self._share, open_runs))
        self._left.reach(done / len(self._places))
        return f"  {done / len(self._places):.0%}  {self.state()}, {self._left}"

    def _share(self, experiment: "Experiment") -> float:
        """How far a run has come by the journal in its folder."""
        journal = self._place(experiment) / "journal.jsonl"
        return min(latest_time(journal) / experiment.horizon, 1.0)

    def _table(self) -> "Table":
        from rich.markup import escape
        from rich.table import Table

        columns = list(dict.fromkeys(column for _, column in self._planned))
        others = [axis for axis in self._axes if axis != self._columns]
        table = Table(caption=self._so_far(), caption_justify="left")
        for axis in others:
            table.add_column(escape(axis))
        for column in columns:
            table.add_column(escape(column), justify="right")
        for row in self._shown_rows():
            counts = [self._count((row, column)) for column in columns]
            table.add_row(*map(escape, row), *counts)
        return table

    def _shown_rows(self) -> list[tuple[str, ...]]:
        """All rows, or those next to be done where they are too many."""
        rows = list(dict.fromkeys(row for row, _ in self._planned))
        if len(rows) <= _ROWS:
            return rows
        open_rows = {cell[0] for cell, count in self._planned.items() if self._done[cell] < count}
        return [row for row in rows if row in open_rows][:_ROWS]

    def _count(self, cell: _TableCell) -> str:
        if cell not in self._planned:
            return ""
        colour = "green" if self._done[cell] == self._planned[cell] else "default"
        failed = f" [red]{self._failed[cell]} failed[/]" if self._failed[cell] else ""
        return f"[{colour}]{self._done[cell]}/{self._planned[cell]}[/]{failed}"


def _outcome(record: "Record") -> str:
    from fedcompass.settings.training import best_in_words

    outcome = record.outcome
    if outcome is None:
        return f"failed: {record.error}"
    reached = outcome.time_to_target
    when = f"target after {reached:.1f} s, " if reached is not None else "target not reached, "
    if record.experiment["target"] == "none":
        when = ""
    metric = short(record.experiment["evaluation"]["target_metric"])
    top = "-" if outcome.top is None else metric_text(metric, outcome.top)
    off = "; broke off: nobody is left to train" if outcome.broke_off else ""
    refused = outcome.refused_not_finite
    nan = f"; {number_of(refused, 'update')} refused for NaN or infinity" if refused else ""
    best = best_in_words(metric).partition(" ")[0]
    return f"{when}{best} {top}{off}{nan}"
