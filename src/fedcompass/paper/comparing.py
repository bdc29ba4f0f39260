"""Our numbers beside the paper's: values by its own rule, orders, rank correlations, win counts.

A value follows the paper: the mean time over the seeds that reached the target, relative to the
reference row's, a dash if fewer than half of either did. Orders and ranks count every seed: one
that missed the target counts at the longest horizon of its cell, so that failing never looks fast.
That is hard on a row that was not run as long as another, so there is a second order: what both
reached by the shorter of their horizons. A row is compared by the seeds that have been run for it
and for the reference.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from statistics import mean, stdev

from fedcompass.paper.cells import Cell
from fedcompass.paper.entry import Entry
from fedcompass.paper.hyperparameters import longest_run
from fedcompass.paper.numbers import Printed
from fedcompass.paper.stored_runs import EntryRuns, StoredRun
from fedcompass.sweeps.over_seeds import mean_time

__all__ = [
    "Compared",
    "ComparedTable",
    "Share",
    "agreeing",
    "agreeing_by_misses",
    "agreeing_by_shorter",
    "ahead",
    "as_run_beside",
    "compared",
    "orders_told",
    "rank_correlation",
    "reached",
    "reached_soon",
]

_TIE = 0.01
"""Times (and accuracies, in points) closer than this are no order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One row of one cell.

    seeds, reached: how many runs there are, and how many of them reached the target.
    reached_soon: how many did by the shortest horizon of the cell, as written.
    value: relative time or top accuracy in percent; None: a dash, or no runs.
    deviation: of the accuracies over seeds.
    paper_order, our_order: 1 the reference is ahead, -1 it is behind, 0 a tie; None: not known.
    common_order: ours by the shorter of the two rows' horizons, if one of them reached the target
        by then.
    """

    cell: Cell
    row: str
    printed: Printed | None
    seeds: int
    reached: int
    reached_soon: int
    value: float | None
    deviation: float | None
    score: float | None  # lower is better; what ranks are made of
    paper_order: int | None
    our_order: int | None
    common_order: int | None

    @property
    def agree(self) -> str:
        """Whether the order relative to the reference is the paper's: yes, no, tie, or empty."""
        return self._agreement(self.our_order)

    @property
    def common_agree(self) -> str:
        """The same for our order by the shorter of the two rows' horizons."""
        return self._agreement(self.common_order)

    @property
    def by_misses(self) -> bool:
        """Whether our order rests on runs that missed: one of the two has a dash for its time."""
        return self.our_order is not None and self.value is None

    def _agreement(self, order: int | None) -> str:
        if self.paper_order is None or order is None:
            return ""
        if 0 in (self.paper_order, order):
            return "tie"
        return "yes" if self.paper_order == order else "no"


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many."""

    count: int
    of: int

    def __str__(self) -> str:
        return f"{self.count}/{self.of}" if self.of else "·"

    def in_words(self) -> str:
        """The same for a sentence."""
        return f"{self.count} of {self.of}" if self.of else "none yet"


def ahead(orders: Iterable[int | None]) -> Share:
    """How often the reference is, of the orders that are known."""
    known = [order for order in orders if order is not None]
    return Share(known.count(1), len(known))


def agreeing(items: Iterable[Compared]) -> Share:
    """How many orders are the paper's, of those that both have."""
    return _yes(item.agree for item in items)


def agreeing_by_shorter(items: Iterable[Compared]) -> Share:
    """The same by the shorter of the two rows' horizons."""
    return _yes(item.common_agree for item in items)


def _yes(agreements: Iterable[str]) -> Share:
    found = [agree for agree in agreements if agree]
    return Share(found.count("yes"), len(found))


def agreeing_by_misses(items: Iterable[Compared]) -> int:
    """How many of the orders that are the paper's rest on runs that missed the target."""
    return sum(item.agree == "yes" and item.by_misses for item in items)


def orders_told(items: Sequence[Compared]) -> str:
    """How many orders are the paper's and, in brackets, how many of them rest on misses."""
    missed = agreeing_by_misses(items)
    return f"{agreeing(items)}{f' ({missed})' if missed else ''}"


def reached(items: Sequence[Compared]) -> Share:
    """How many runs reached the target, each within its own horizon."""
    return Share(sum(item.reached for item in items), sum(item.seeds for item in items))


def reached_soon(items: Sequence[Compared]) -> Share:
    """How many runs did by the shortest horizon of their cell."""
    return Share(sum(item.reached_soon for item in items), sum(item.seeds for item in items))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTable:
    """A whole table; cells and rows in the table's order."""

    entry: Entry
    cells: tuple[Cell, ...]
    found: dict[tuple[Cell, str], Compared]

    def at(self, cell: Cell, row: str) -> Compared:
        """One row of one cell."""
        return self.found[cell, row]

    def showing(self, rows: Sequence[str]) -> "ComparedTable":
        """Some of its rows, with the numbers that they have among all."""
        found = {key: item for key, item in self.found.items() if key[1] in rows}
        return replace(self, entry=replace(self.entry, rows=tuple(rows)), found=found)

    def some(self, rows: Iterable[str], speed: str | None = None) -> list[Compared]:
        """These rows of the cells of one speed, or of all."""
        cells = [cell for cell in self.cells if speed in (None, cell.speed)]
        return [self.at(cell, row) for row in rows for cell in cells]

    def has_runs(self, cells: Iterable[Cell]) -> bool:
        """Whether some row of one of these cells has any."""
        return any(self.at(cell, row).seeds for cell in cells for row in self.entry.rows)

    @property
    def is_partial(self) -> bool:
        """Whether a row of a cell has no run yet, or fewer than another."""
        counts = {item.seeds for item in self.found.values()}
        return len(counts) > 1 or counts == {0}

    @property
    def seed_counts(self) -> tuple[int, int]:
        """The fewest and the most seeds of those that have any; (0, 0) if none has."""
        counts = [item.seeds for item in self.found.values() if item.seeds]
        return (min(counts), max(counts)) if counts else (0, 0)

    def disagreements(self) -> list[Compared]:
        """Where the order differs from the paper's."""
        return [item for item in self.found.values() if item.agree == "no"]

    def correlation(self, cell: Cell) -> float | None:
        """Spearman's rank correlation of the paper's column and ours; None below three rows."""
        column = [self.at(cell, row) for row in self.entry.rows]
        pairs = [
            (_paper_score(self.entry, item.printed), item.score)
            for item in column
            if item.printed is not None and item.score is not None
        ]
        if len(pairs) < 3:
            return None
        return rank_correlation([p for p, _ in pairs], [s for _, s in pairs])


def compared(runs: EntryRuns, *, soon_as: Entry | None = None) -> ComparedTable:
    """A table's rows from stored runs, each beside its printed number.

    What is reached soon is so by the shortest horizon of `soon_as`; default: the same entry.
    """
    entry = runs.entry
    found: dict[tuple[Cell, str], Compared] = {}
    for cell in runs.cells:
        by_row = {row: runs.at(cell, row) for row in entry.rows}
        # Of all rows, run or not: what is there already must not move as a cell fills.
        horizons = [longest_run(cell, row) for row in entry.rows]
        soon = min(longest_run(cell, row) for row in (soon_as or entry).rows)
        for row in entry.rows:
            found[cell, row] = _compared(entry, cell, row, by_row, soon, max(horizons))
    return ComparedTable(entry=entry, cells=runs.cells, found=found)


def as_run_beside(runs: EntryRuns) -> ComparedTable | None:
    """The same table as the authors ran it; None if it has no runs, or no such form."""
    if not runs.entry.can_be_as_run or not runs.entry.numbers:
        return None
    found = compared(runs.under("as-run"), soon_as=runs.entry)
    return found if found.has_runs(runs.cells) else None


def _compared(
    entry: Entry,
    cell: Cell,
    row: str,
    runs: dict[str, list[StoredRun]],
    soon: float,
    longest: float,
) -> Compared:
    own, reference = runs[row], runs[entry.reference_of(row)]
    printed, (shared, _) = entry.printed(cell, row), _common(own, reference)
    timed = entry.quantity == "time"
    tops = [] if timed else [100 * run.top for run in own if run.top is not None]
    return Compared(
        cell=cell,
        row=row,
        printed=printed,
        seeds=len(own),
        reached=sum(run.time is not None for run in own),
        reached_soon=sum(run.time is not None and run.time <= soon for run in own),
        value=_relative(own, reference) if timed else mean(tops) if tops else None,
        deviation=None if timed or len(tops) < 2 else stdev(tops),
        score=_score(entry, shared, longest) if shared else None,
        paper_order=_paper_order(entry, cell, row),
        our_order=None if row == entry.reference else _our_order(entry, own, reference, longest),
        common_order=None if row == entry.reference else _common_order(entry, own, reference),
    )


def _common_order(entry: Entry, own: list[StoredRun], reference: list[StoredRun]) -> int | None:
    """Our order, as if nobody had been run longer than the other."""
    shorter = min((run.horizon for run in (*own, *reference)), default=nan)

    def cut(runs: list[StoredRun]) -> list[StoredRun]:
        return [
            replace(run, time=None) if run.time is not None and run.time > shorter else run
            for run in runs
        ]

    return _our_order(entry, cut(own), cut(reference), shorter)


def _relative(own: list[StoredRun], reference: list[StoredRun]) -> float | None:
    time, base = (mean_time([run.time for run in runs]) for runs in _common(own, reference))
    return None if time is None or not base else time / base


def _common(*both: list[StoredRun]) -> list[list[StoredRun]]:
    """The runs of the seeds that both rows have: a table may still be growing."""
    seeds = set.intersection(*({run.seed for run in runs} for runs in both))
    return [[run for run in runs if run.seed in seeds] for runs in both]


def _score(entry: Entry, runs: list[StoredRun], longest: float) -> float:
    if entry.quantity == "time":
        return mean(longest if run.time is None else run.time for run in runs)
    return -100 * mean(run.top or 0.0 for run in runs)


def _our_order(
    entry: Entry, own: list[StoredRun], reference: list[StoredRun], longest: float
) -> int | None:
    """By the seeds both have; None if there is none, or nobody reached the target in any."""
    own, reference = _common(own, reference)
    if not own:
        return None
    if entry.quantity == "time" and all(run.time is None for run in (*own, *reference)):
        return None
    ours, base = _score(entry, own, longest), _score(entry, reference, longest)
    return _order(ours, base, _TIE * abs(base) if entry.quantity == "time" else _TIE)


def _paper_order(entry: Entry, cell: Cell, row: str) -> int | None:
    printed, base = entry.printed(cell, row), entry.printed(cell, entry.reference)
    if printed is None or base is None or row == entry.reference:
        return None
    return _order(_paper_score(entry, printed), _paper_score(entry, base), _TIE)


def _paper_score(entry: Entry, printed: Printed | None) -> float:
    """Lower is better; a dash is the worst."""
    if printed is None or printed.mean is None:
        return inf
    return printed.mean if entry.quantity == "time" else -printed.mean


def _order(score: float, base: float, tie: float) -> int:
    if score == base or abs(score - base) <= tie:
        return 0
    return 1 if score > base else -1


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's ρ with mean ranks for ties; None if one side has a single value only."""
    first, second = _ranks(one), _ranks(other)
    centre = (len(one) + 1) / 2
    products = sum((a - centre) * (b - centre) for a, b in zip(first, second, strict=True))
    squares = [sum((rank - centre) ** 2 for rank in ranks) for ranks in (first, second)]
    return products / (squares[0] * squares[1]) ** 0.5 if all(squares) else None


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]
