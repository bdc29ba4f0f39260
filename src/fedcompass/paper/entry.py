"""What an entry of the catalogue is: a table or figure, its cells and rows, and the runs of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from fedcompass.as_run import profile_named
from fedcompass.errors import SettingsError
from fedcompass.paper.cells import Cell
from fedcompass.paper.hyperparameters import as_run, settings_of
from fedcompass.paper.numbers import PaperTable, Printed, Quantity, paper_tables
from fedcompass.setting_tables import unknown_key

__all__ = ["MINI", "Entry", "Kind", "TableRun"]

Kind: TypeAlias = Literal[
    "table",
    "settings",
    "curves",
    "timeline",
    "partition",
    "paces",
    "groups",
    "medical",
    "finding",
    "times",
    "signs",
]

MINI = {"mini-class": "mnist-class", "mini-dual-dirichlet": "mnist-dual-dirichlet"}
"""The bundled part of MNIST: whose printed numbers stand beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRun:
    """One run: a row of a cell with a seed, and the settings of its experiment."""

    cell: Cell
    row: str
    seed: int
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A table or figure.

    label: in the paper's LaTeX source; empty for what is ours alone.
    cells, rows: what is run for it; none if nothing is trained.
    reference: the row that times and orders are relative to.
    numbers: the paper's table that holds its numbers; empty if there are none.
    same_as: rows of ours whose printed numbers stand in another row.
    target: another than its cells', read off the same runs' curves.
    """

    name: str
    kind: Kind
    title: str
    label: str = ""
    cells: tuple[Cell, ...] = ()
    rows: tuple[str, ...] = ()
    quantity: Quantity = "time"
    reference: str = "fedcompass"
    numbers: str = ""
    same_as: Mapping[str, str] = field(default_factory=dict)
    target: float | None = None

    @property
    def first_seed(self) -> int:
        """Where its seeds begin: the medical targets were chosen with a look at seed 0."""
        return 1 if self.kind == "medical" else 0

    @property
    def to_target(self) -> bool:
        """Whether its runs may end at their target: nothing else of them is looked at."""
        return self.kind == "table" and self.quantity == "time"

    @property
    def can_be_as_run(self) -> bool:
        """Whether its rows are the paper's, so that each can also be run as its authors ran it."""
        return self.kind in ("table", "curves") and not any("@" in row for row in self.rows)

    def under(self, profile: str) -> "Entry":
        """The same table as the authors ran it, or as it is written.

        Raises:
            SettingsError: there is no such profile, or the entry is no table of the paper's rows.
        """
        if profile_named(profile) == "paper":
            return self
        if profile != "as-run":
            raise SettingsError(f"--profile is {profile!r}; allowed: as-written (or paper), as-run")
        if not self.can_be_as_run:
            raise SettingsError(
                f"{self.name} has no profile as-run; it is for tables and curves of the paper's "
                "rows; leave --profile out"
            )
        return replace(
            self,
            rows=tuple(map(as_run, self.rows)),
            reference=as_run(self.reference),
        )

    def printed(self, cell: Cell, row: str) -> Printed | None:
        """The paper's number for a row of a cell; None if it has none.

        A row under another choice has its strategy's; the reference under one has none.
        """
        row, _, choice = row.partition("@")
        table = None if choice and row == self.reference else paper_tables().get(self.numbers)
        if not isinstance(table, PaperTable):
            return None
        block = table.blocks.get(MINI.get(cell.block, cell.block))
        return block.at(self.same_as.get(row, row), cell.column) if block else None

    def reference_of(self, row: str) -> str:
        """What a row is compared to: the reference, under the same choice if that is a row."""
        _, _, choice = row.partition("@")
        same = f"{self.reference}@{choice}"
        return same if choice and same in self.rows and same != row else self.reference

    def only(self, rows: str | None) -> "Entry":
        """The same with some of its rows, names with commas between; None: all.

        Raises:
            SettingsError: it has no such row.
        """
        if rows is None:
            return self
        wanted = [row.strip() for row in rows.split(",")]
        for row in wanted:
            if row not in self.rows:
                raise SettingsError(unknown_key(row, self.rows, self.name, "row"))
        return replace(self, rows=tuple(row for row in self.rows if row in wanted))

    def plan(self, cells: Sequence[Cell], seeds: Sequence[int]) -> list[TableRun]:
        """The runs of some of its cells: cell by cell, all rows of a seed before the next seed."""
        return [
            TableRun(
                cell=cell,
                row=row,
                seed=seed,
                settings=settings_of(cell, row, seed, to_target=self.to_target),
            )
            for cell in cells
            for seed in seeds
            for row in self.rows
        ]
