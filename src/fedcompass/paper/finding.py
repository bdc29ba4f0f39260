"""What the paper claims for MNIST, what its formulas give and what its authors' code gives.

The numbers of docs/as-run.md: a few tables, and sentences that are counted from the stored runs.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from fedcompass.paper.cells import Cell
from fedcompass.paper.comparing import (
    Compared,
    ComparedTable,
    Share,
    agreeing,
    agreeing_by_misses,
    agreeing_by_shorter,
    ahead,
    compared,
    orders_told,
    reached,
    reached_soon,
)
from fedcompass.paper.entries import entry_named
from fedcompass.paper.entry import Entry
from fedcompass.paper.hyperparameters import as_run, row_horizons
from fedcompass.paper.rendering import (
    BY_MISSES,
    from_to,
    our_value,
    paper_value,
)
from fedcompass.paper.stored_runs import EntryRuns, StoredRuns
from fedcompass.sweeps.formats import TextTable

__all__ = ["ROWS", "SPEED_WORDS", "Finding", "short_partition"]

ROWS = ("fedavg", "fedavgm", "fedasync", "fedbuff", "fedat", "fedcompass+m", "fedcompass+n")
"""What FedCompass is compared to."""

SPEED_WORDS = {"exp": "exponential", "normal": "normal", "homo": "equal"}

_RIVALS = ("fedavg", "fedasync", "fedbuff")
_NAMES = {"fedcompass": "FedCompass", "fedasync": "FedAsync", "fedbuff": "FedBuff"}
_VARIANTS = {"fedcompass+m": "FedCompass+M", "fedcompass+n": "FedCompass+N"}
_ASYNCHRONOUS = {**_NAMES, "fedat": "FedAT", **_VARIANTS}
_HABITS = ("", "sign", "fleet", "sign+fleet", "rate", "warm-up", "join", "aim", "smooth", "naps")


class Finding:
    """Table 1 on MNIST, as written and as run.

    Args:
        results: the stored runs.
    """

    def __init__(self, results: StoredRuns) -> None:
        entry = entry_named("table-1")
        self.cells = tuple(cell for cell in entry.cells if cell.settings.dataset == "mnist")
        self.written, self.as_run = _both_of(results.of(entry, self.cells))
        self.both = {"as written": self.written, "as run": self.as_run}
        mini = entry_named("table-1-mini")
        ten = [cell for cell in mini.cells if cell.clients == 10]
        self._mini = _both_of(results.of(mini, ten))
        self._habits = compared(results.of(entry_named("habits")))

    def at(self, name: str, cell: Cell, row: str) -> Compared:
        """A row by its plain name, "as written" or "as run"."""
        return self.both[name].at(cell, as_run(row) if name == "as run" else row)

    def tables(self) -> Iterator[TextTable]:
        """Times by cell for unequal speeds, orders and counts by speed, and the habits alone."""
        yield from (self._times(speed) for speed in ("exp", "normal"))
        yield self._orders()
        if self._habits.has_runs(self._habits.cells):
            yield self._by_habit()

    def lines(self) -> Iterator[str]:
        """The finding in sentences, each with its numbers."""
        table, mini = entry_named("table-1"), entry_named("table-1-mini")
        yield from self.about(table, table.cells)
        yield self._lengths()
        for speed, word in SPEED_WORDS.items():
            yield (
                f"{word.capitalize()} speeds, FedCompass against FedAvg, FedAsync and FedBuff: "
                f"{self._ahead(_RIVALS, speed, 'cases')}; the order is the paper's in "
                f"{self._agreeing(speed)}."
            )
        yield (
            "All speeds, FedCompass against FedAsync and FedBuff: "
            f"{self._ahead(('fedasync', 'fedbuff'), None, 'cases')}."
        )
        for row, name in _VARIANTS.items():
            told = self._ahead((row,), "exp", "cells")
            yield f"Exponential speeds, FedCompass against {name}: {told}."
        yield self._complete()
        if self._mini[1].has_runs(self._mini[1].cells):
            yield from self.about(mini, mini.cells)

    def about(self, entry: Entry, cells: Sequence[Cell]) -> Iterator[str]:
        """The sentences that rows of some cells bear on first: how many runs reach the target."""
        mini = "Bundled sixth of MNIST, ten clients of exponential speed"
        tables = {
            "table-1": ("Exponential speeds", _ASYNCHRONOUS, (self.written, self.as_run)),
            "table-1-mini": (mini, _NAMES, self._mini),
        }
        where, names, both = tables.get(entry.name, ("", {}, self._mini))
        rows = [row.partition("@")[0] for row in entry.rows]
        if any(cell.speed == "exp" and cell in both[0].cells for cell in cells):
            for row, name in names.items():
                yield from _reached_lines(where, row, name, *both) if row in rows else ()

    def _some(self, name: str, rows: Sequence[str], speed: str | None) -> list[Compared]:
        """Rows by their plain names, of the cells of one speed or all."""
        own = map(as_run, rows) if name == "as run" else rows
        return self.both[name].some(own, speed)

    def _ahead(self, rows: Sequence[str], speed: str | None, what: str) -> str:
        """In how many cases FedCompass is ahead of these rows."""
        paper = ahead(item.paper_order for item in self._some("as written", rows, speed))
        written, run = (
            ahead(item.our_order for item in self._some(name, rows, speed)).in_words()
            for name in self.both
        )
        return (
            f"ahead in {paper.in_words()} {what} in the paper, {written} as written, {run} as run"
        )

    def _agreeing(self, speed: str) -> str:
        """In how many cases the order of the rivals is the paper's."""
        told = []
        for name in self.both:
            items = self._some(name, _RIVALS, speed)
            missed = agreeing_by_misses(items)
            shorter, same = agreeing_by_shorter(items), agreeing(items)
            notes = [
                *([f"{missed} of them by misses"] if missed else []),
                *([f"by the shorter horizon {shorter.in_words()}"] if shorter != same else []),
            ]
            told.append(f"{same.in_words()} {name}" + (f" ({'; '.join(notes)})" if notes else ""))
        return ", ".join(told)

    def _lengths(self) -> str:
        """How long the runs with exponential speeds were at most."""
        told = []
        for name, table in self.both.items():
            by_rounds: dict[str, list[str]] = {}
            for row in table.entry.rows:
                items = [item for item in table.some([row], "exp") if item.seeds]
                rounds = sorted({int(row_horizons(i.cell, row).target) for i in items})
                if rounds:
                    plain = row.partition("@")[0]
                    by_rounds.setdefault(from_to(rounds[0], rounds[-1]), []).append(plain)
            *few, (most, _) = sorted(by_rounds.items(), key=lambda item: len(item[1])) or [("", [])]
            parts = [f"{most} mean rounds", *(f"{r} for {', '.join(rows)}" for r, rows in few)]
            told.append(f"{name} {', '.join(parts)}")
        return f"Exponential speeds, how long a run goes on that misses: {'; '.join(told)}."

    def _times(self, speed: str) -> TextTable:
        cells = [cell for cell in self.cells if cell.speed == speed]
        rows = []
        for row in (*_RIVALS, "fedcompass"):
            printed = [self.written.at(cell, row).printed for cell in cells]
            rows.append([row, "paper", *map(paper_value, printed)])
            for name in self.both:
                items = [self.at(name, cell, row) for cell in cells]
                rows.append(["", name, *(our_value(item, "time") for item in items)])
        title = (
            f"{SPEED_WORDS[speed]} speeds: time to 90% relative to fedcompass, and runs that "
            "reached it"
        )
        header = ["", "", *(f"{short_partition(cell)}, m={cell.clients}" for cell in cells)]
        return TextTable(title, header, rows, left=(0, 1))

    def _orders(self) -> TextTable:
        header, rows = ["relative to fedcompass"], [[row] for row in ROWS]
        for speed, name in product(SPEED_WORDS, self.both):
            found = [self._some(name, (row,), speed) for row in ROWS]
            columns = {f"{speed}: {name}": [orders_told(items) for items in found]}
            shorter = [agreeing_by_shorter(items) for items in found]
            if shorter != [agreeing(items) for items in found]:
                columns["shorter"] = list(map(str, shorter))
            for heading, values in columns.items():
                header.append(heading)
                for line, value in zip(rows, values, strict=True):
                    line.append(value)
        title = (
            f"orders that are the paper's, of the cells with runs{BY_MISSES}; shorter: by the "
            "shorter of the two rows' horizons, where that gives others"
        )
        return TextTable(title, header, rows)

    def _by_habit(self) -> TextTable:
        """Runs that reached the target by the horizon of the rows as written."""
        rows = []
        for habit in (*_HABITS, "as-run"):
            shares = [self._soon(f"{name}@{habit}" if habit else name) for name in _NAMES]
            if any(share.of for share in shares):
                texts = [str(share) if share.of else "" for share in shares]
                rows.append([habit or "as written", *texts])
        title = (
            "each habit alone, exponential speeds: runs that reached 90% by the shortest horizon "
            "of their cell"
        )
        return TextTable(title, ["habit", *_NAMES], rows)

    def _soon(self, row: str) -> Share:
        known = [row] if row in self._habits.entry.rows else []
        return reached_soon(self._habits.some(known))

    def _complete(self) -> str:
        parts = []
        for name, table in self.both.items():
            empty = sum(item.seeds == 0 for item in table.found.values())
            none = f" ({empty} of {len(table.found)} rows have none)" if empty else ""
            parts.append(f"{name} {from_to(*table.seed_counts)} seeds a row{none}")
        return f"Stored runs of table 1 on MNIST: {', '.join(parts)}; the paper has 10 seeds."


def _both_of(runs: EntryRuns) -> tuple[ComparedTable, ComparedTable]:
    """A table as written and as run."""
    return compared(runs), compared(runs.under("as-run"), soon_as=runs.entry)


def _reached_lines(
    where: str, row: str, name: str, written: ComparedTable, run: ComparedTable
) -> Iterator[str]:
    """How many runs with exponential speeds reached the target, in their own time and soon.

    Nothing without runs of both.
    """
    first = next(cell for cell in written.cells if cell.speed == "exp")
    rounds = row_horizons(first, "fedcompass").target
    both = [written.some([row], "exp"), run.some([as_run(row)], "exp")]
    own = [reached(items) for items in both]
    if all(share.of for share in own):
        soon = [reached_soon(items).in_words() for items in both]
        yield (
            f"{where}, {name}: as written {own[0].in_words()} runs reach "
            f"{100 * first.settings.target:g}%, as run {own[1].in_words()}; within {rounds:g} "
            f"mean rounds {soon[0]} and {soon[1]}{_rarely(both[1])}."
        )


def _rarely(items: Sequence[Compared]) -> str:
    """The paper's times beside a row that has none in any cell."""
    printed = [item.printed.mean for item in items if item.printed and item.printed.mean]
    if not printed or any(2 * item.reached >= item.seeds for item in items if item.seeds):
        return ""
    return f" (the paper: {min(printed):.2f} to {max(printed):.2f} times FedCompass's time)"


def short_partition(cell: Cell) -> str:
    """The partition in a word."""
    return "class" if cell.settings.partition == "class" else "Dirichlet"
