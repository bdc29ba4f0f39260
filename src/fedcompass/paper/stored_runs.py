"""Stored runs of the paper's experiments, read without torch: a folder of sweeps' stores."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Any

from fedcompass.paper.cells import Cell
from fedcompass.paper.entry import Entry
from fedcompass.paper.hyperparameters import settings_of, signature, text_in_records
from fedcompass.sweeps.record import CurvePoint, Record
from fedcompass.sweeps.store import Store, is_store

__all__ = ["EntryRuns", "StoredRun", "StoredRuns", "value_at"]


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """What a table or a figure needs of a finished run.

    time: virtual seconds to the target; None if it was not reached.
    horizon: virtual seconds after which a run that has not reached it ends.
    run_at_least: the accuracy horizon, which every run of its kind comes to.
    points: its evaluations, thinned.
    """

    seed: int
    time: float | None
    horizon: float
    run_at_least: float
    points: Sequence[CurvePoint]
    local_steps: int
    device: str

    @cached_property
    def curve(self) -> tuple[tuple[float, float], ...]:
        """(time, value) up to the horizon."""
        return tuple(
            (at, value) for at, _, value in self.points if value is not None and at <= self.horizon
        )

    @property
    def top(self) -> float | None:
        """The best value up to the accuracy horizon; None if it was never a number.

        A thinned curve keeps every new best.
        """
        return max((value for at, value in self.curve if at <= self.run_at_least), default=None)

    def up_to(self, run_at_least: float, horizon: float) -> "StoredRun | None":
        """As if it had been run with these horizons; None if it ended too early to tell."""
        ended_early = self.time is None and self.horizon < horizon
        if ended_early or self.run_at_least < run_at_least:
            return None
        return replace(
            self,
            time=None if self.time is None or self.time > horizon else self.time,
            horizon=horizon,
            run_at_least=run_at_least,
        )

    def to(self, target: float | None) -> "StoredRun":
        """The same run with the time to another target, one that it did not stop at."""
        if target is None:
            return self
        reached = (at for at, value in self.curve if value >= target)
        return replace(self, time=next(reached, None))


class StoredRuns:
    """The runs of a folder, found by a cell and a row; any that lasted long enough will do."""

    def __init__(self, records: Mapping[Hashable, Sequence[Record]]) -> None:
        self._records = records  # by their settings' signature
        self._found: dict[tuple[Cell, str, bool], dict[int, StoredRun | None]] = {}

    @classmethod
    def read(cls, folder: Path, cells: Iterable[Cell] = ()) -> "StoredRuns":
        """Every store of a folder; one that is not there is empty.

        With `cells` only runs that may be theirs are looked at, which is sooner done.

        Raises:
            StoreError: a line is damaged.
        """
        records: dict[Hashable, list[Record]] = {}
        about = {text_in_records(cell) for cell in cells}
        for path in filter(is_store, sorted(folder.glob("*.jsonl"))):
            for record in Store(path, about).done():
                records.setdefault(signature(record.experiment), []).append(record)
        return cls(records)

    def of(
        self, entry: Entry, cells: Sequence[Cell] | None = None, seeds: int | None = None
    ) -> "EntryRuns":
        """An entry's runs: of all its cells or some, and with `seeds` only of those below it."""
        return EntryRuns(entry, self, tuple(entry.cells if cells is None else cells), seeds)

    def runs(
        self, cell: Cell, row: str, seeds: int | None = None, *, to_target: bool = False
    ) -> list[StoredRun]:
        """A row's finished runs by seed; with `seeds`, only those below it.

        With `to_target` those that ended at their target count too: their times are right, their
        top accuracies are not.

        They end before the first seed whose run missed the target too early to tell. Without that
        those that reached it, which are as good at any horizon, would stand for all.
        """
        found: list[StoredRun] = []
        for seed, run in sorted(self._all(cell, row, to_target).items()):
            if run is None:
                break
            if seeds is None or seed < seeds:
                found.append(run)
        return found

    def has(self, cell: Cell, row: str, seed: int, *, to_target: bool = False) -> bool:
        """Whether a run is there that lasted long enough."""
        return self._all(cell, row, to_target).get(seed) is not None

    def _all(self, cell: Cell, row: str, to_target: bool) -> dict[int, StoredRun | None]:
        """By seed: a run, or None if there are only shorter ones."""
        which = cell, row, to_target
        if which not in self._found:
            settings = settings_of(cell, row, 0, to_target=to_target)
            found: dict[int, StoredRun | None] = {}
            for record in self._records.get(signature(settings), ()):
                if found.get(record.seed) is None:
                    found[record.seed] = _stored(record).up_to(*_horizons(settings))
            self._found[which] = found
        return self._found[which]

    def __len__(self) -> int:
        return sum(map(len, self._records.values()))


@dataclass(frozen=True, slots=True)
class EntryRuns:
    """What is stored for some cells and seeds of a table or figure."""

    entry: Entry
    results: StoredRuns
    cells: tuple[Cell, ...]
    seeds: int | None

    def at(self, cell: Cell, row: str) -> list[StoredRun]:
        """The runs of a row of a cell, with the times to the entry's own target."""
        entry = self.entry
        found = self.results.runs(cell, row, self.seeds, to_target=entry.to_target)
        return [run.to(entry.target) for run in found]

    def showing(self, rows: Sequence[str]) -> "EntryRuns":
        """Of some of its rows."""
        return replace(self, entry=replace(self.entry, rows=tuple(rows)))

    def under(self, profile: str) -> "EntryRuns":
        """The same as the authors ran it, or as it is written."""
        return replace(self, entry=self.entry.under(profile))


def value_at(curve: Sequence[tuple[float, float]], time: float) -> float:
    """The last value measured by then; nan if none was."""
    value = curve[0][1] if curve else nan
    for at, measured in curve:
        if at > time:
            break
        value = measured
    return value


def _stored(record: Record) -> StoredRun:
    run_at_least, horizon = _horizons(record.experiment)
    return StoredRun(
        seed=record.seed,
        time=record.numbers.time_to_target,
        horizon=horizon,
        run_at_least=run_at_least,
        points=record.curve,
        local_steps=record.numbers.local_steps,
        device=record.device,
    )


def _horizons(settings: Mapping[str, Any]) -> tuple[float, float]:
    """Up to where every run goes, and one that has not reached the target."""
    horizon = float(settings["horizon"])
    otherwise = 0.0 if settings.get("stop_at_target") else horizon
    return float(settings.get("run_at_least") or otherwise), horizon
