"""What the paper claims for MNIST, what its formulas give and what its authors' code gives.

The numbers of docs/as-run.md: a few tables, and sentences that are counted from the stored runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedcompass.paper.cells import Cell
from fedcompass.paper.comparing import Compared, ComparedTable, compared
from fedcompass.paper.entries import entry_named
from fedcompass.paper.entry import Entry
from fedcompass.paper.hyperparameters import as_run, row_horizons
from fedcompass.paper.rendering import our_value, paper_value
from fedcompass.paper.stored_runs import StoredRuns
from fedcompass.sweeps.formats import TextTable

__all__ = ["Finding", "short_partition"]

_RIVALS = ("fedavg", "fedasync", "fedbuff")
_ROWS = ("fedavg", "fedavgm", "fedasync", "fedbuff", "fedat", "fedcompass+m", "fedcompass+n")
_NAMES = {"fedcompass": "FedCompass", "fedasync": "FedAsync", "fedbuff": "FedBuff"}
_VARIANTS = {"fedcompass+m": "FedCompass+M", "fedcompass+n": "FedCompass+N"}
_SPEEDS = {"exp": "exponential", "normal": "normal", "homo": "equal"}
_HABITS = ("", "sign", "fleet", "sign+fleet", "rate", "warm-up", "join", "aim", "smooth", "naps")


@dataclass(frozen=True, slots=True)
class _Tally:
    """So many of so many."""

    count: int
    of: int

    def __str__(self) -> str:
        return f"{self.count} of {self.of}" if self.of else "none yet"


class Finding:
    """Table 1 on MNIST, as written and as run.

    Args:
        results: the stored runs.
    """

    def __init__(self, results: StoredRuns) -> None:
        entry = entry_named("table-1")
        self.cells = tuple(cell for cell in entry.cells if cell.settings.dataset == "mnist")
        self.written, self.as_run = _both_of(entry, results, self.cells)
        mini = entry_named("table-1-mini")
        ten = tuple(cell for cell in mini.cells if cell.clients == 10)
        self._mini = _both_of(mini, results, ten)
        self._habits = compared(entry_named("habits"), results)

    def tables(self) -> Iterator[TextTable]:
        """Times by cell for unequal speeds, orders and counts by speed, and the habits alone."""
        yield from (self._times(speed) for speed in ("exp", "normal"))
        yield self._orders()
        if self._habits.has_runs(self._habits.cells):
            yield self._by_habit()

    def lines(self) -> Iterator[str]:
        """The finding in sentences, each with its numbers."""
        yield from _reached_lines("Exponential speeds", self.written, self.as_run, "exp")
        for speed, word in _SPEEDS.items():
            paper = self._ahead(self.written, speed, paper=True)
            written, run = (self._ahead(one, speed) for one in (self.written, self.as_run))
            same = [self._same_order(one, speed) for one in (self.written, self.as_run)]
            yield (
                f"{word.capitalize()} speeds, FedCompass against FedAvg, FedAsync and FedBuff: "
                f"ahead in {paper} cases in the paper, {written} as written, {run} as run; the "
                f"order is the paper's in {same[0]} as written, {same[1]} as run."
            )
        rivals = ("fedasync", "fedbuff")
        paper = self._ahead(self.written, None, rivals, paper=True)
        written, run = (self._ahead(one, None, rivals) for one in (self.written, self.as_run))
        yield (
            f"All speeds, FedCompass against FedAsync and FedBuff: ahead in {paper} cases in the "
            f"paper, {written} as written, {run} as run."
        )
        for row in _VARIANTS:
            paper = self._ahead(self.written, "exp", (row,), paper=True)
            written, run = (self._ahead(one, "exp", (row,)) for one in (self.written, self.as_run))
            yield (
                f"Exponential speeds, FedCompass against {_VARIANTS[row]}: ahead in {paper} cells "
                f"in the paper, {written} as written, {run} as run."
            )
        yield self._complete()
        if self._mini[1].has_runs(self._mini[1].cells):
            where = "Bundled sixth of MNIST, ten clients of exponential speed"
            yield from _reached_lines(where, *self._mini, "exp")

    def _both(self) -> dict[str, ComparedTable]:
        return {"as written": self.written, "as run": self.as_run}

    def _at(self, table: ComparedTable, cell: Cell, row: str) -> Compared:
        """A row by its plain name."""
        return table.at(cell, as_run(row) if table is self.as_run else row)

    def _some(self, speed: str | None) -> list[Cell]:
        """The cells of one speed, or all."""
        return [cell for cell in self.cells if speed in (None, cell.speed)]

    def _times(self, speed: str) -> TextTable:
        cells = self._some(speed)
        rows = []
        for row in (*_RIVALS, "fedcompass"):
            printed = [self.written.at(cell, row).printed for cell in cells]
            rows.append([row, "paper", *map(paper_value, printed)])
            for name, table in self._both().items():
                items = [self._at(table, cell, row) for cell in cells]
                rows.append(["", name, *(our_value(item, "time") for item in items)])
        title = (
            f"{_SPEEDS[speed]} speeds: time to 90% relative to fedcompass, and runs that reached it"
        )
        header = ["", "", *(f"{short_partition(cell)}, m={cell.clients}" for cell in cells)]
        return TextTable(title, header, rows, left=(0, 1))

    def _orders(self) -> TextTable:
        header, rows = ["relative to fedcompass"], []
        for speed in _SPEEDS:
            header += [f"{speed}: {name}" for name in self._both()]
        for row in _ROWS:
            tallies = [
                self._same_order(table, speed, (row,))
                for speed in _SPEEDS
                for table in self._both().values()
            ]
            rows.append([row, *(f"{t.count}/{t.of}" if t.of else "·" for t in tallies)])
        return TextTable("orders that are the paper's, of the cells with runs", header, rows)

    def _by_habit(self) -> TextTable:
        """Runs that reached the target by the horizon of the rows as written."""
        rows = []
        names = ("fedcompass", "fedasync", "fedbuff")
        for habit in (*_HABITS, "as-run"):
            tallies = [self._soon(f"{name}@{habit}" if habit else name) for name in names]
            if any(tally is not None and tally.of for tally in tallies):
                texts = ["" if t is None or not t.of else f"{t.count}/{t.of}" for t in tallies]
                rows.append([habit or "as written", *texts])
        title = (
            "each habit alone, exponential speeds: runs that reached 90% by the shortest horizon "
            "of their cell"
        )
        return TextTable(title, ["habit", *names], rows)

    def _soon(self, row: str) -> _Tally | None:
        if row not in self._habits.entry.rows:
            return None
        items = [self._habits.at(cell, row) for cell in self._habits.cells]
        return _Tally(sum(item.reached_soon for item in items), sum(item.seeds for item in items))

    def _ahead(
        self,
        table: ComparedTable,
        speed: str | None,
        rows: Sequence[str] = _RIVALS,
        *,
        paper: bool = False,
    ) -> _Tally:
        items = [self._at(table, cell, row) for cell in self._some(speed) for row in rows]
        orders = [item.paper_order if paper else item.our_order for item in items]
        known = [order for order in orders if order is not None]
        return _Tally(known.count(1), len(known))

    def _same_order(
        self, table: ComparedTable, speed: str, rows: Sequence[str] = _RIVALS
    ) -> _Tally:
        found = [self._at(table, cell, row).agree for cell in self._some(speed) for row in rows]
        return _Tally(found.count("yes"), sum(agree != "" for agree in found))

    def _complete(self) -> str:
        parts = []
        for name, table in self._both().items():
            fewest, most = table.seed_counts
            empty = sum(item.seeds == 0 for item in table.found.values())
            seeds = f"{most}" if fewest == most else f"{fewest} to {most}"
            none = f" ({empty} of {len(table.found)} rows have none)" if empty else ""
            parts.append(f"{name} {seeds} seeds a row{none}")
        return f"Stored runs of table 1 on MNIST: {', '.join(parts)}; the paper has 10 seeds."


def _both_of(
    entry: Entry, results: StoredRuns, cells: tuple[Cell, ...]
) -> tuple[ComparedTable, ComparedTable]:
    """A table as written and as run."""
    run = compared(entry.under("as-run"), results, cells, soon_as=entry)
    return compared(entry, results, cells), run


def _reached_lines(
    where: str, written: ComparedTable, run: ComparedTable, speed: str
) -> Iterator[str]:
    """How many runs reached the target: in their own time, and by the shortest horizon."""
    cells = [cell for cell in written.cells if cell.speed == speed]
    rounds = row_horizons(cells[0], "fedcompass").target
    for row, name in _NAMES.items():
        both = [
            [written.at(cell, row) for cell in cells],
            [run.at(cell, as_run(row)) for cell in cells],
        ]
        seeds = [sum(item.seeds for item in items) for items in both]
        if not all(seeds):
            continue
        own = [
            _Tally(sum(i.reached for i in items), n) for items, n in zip(both, seeds, strict=True)
        ]
        soon = [
            _Tally(sum(i.reached_soon for i in items), n)
            for items, n in zip(both, seeds, strict=True)
        ]
        yield (
            f"{where}, {name}: as written {own[0]} runs reach {100 * cells[0].settings.target:g}%, "
            f"as run {own[1]}; within {rounds:g} mean rounds {soon[0]} and {soon[1]}."
        )


def short_partition(cell: Cell) -> str:
    """The partition in a word."""
    return "class" if cell.settings.partition == "class" else "Dirichlet"
