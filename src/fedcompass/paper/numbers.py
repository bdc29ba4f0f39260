"""The paper's printed numbers, typed from its LaTeX source into numbers/*.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias

__all__ = ["Block", "PaperTable", "Printed", "Quantity", "SettingsTable", "paper_tables"]

Quantity: TypeAlias = Literal["time", "accuracy"]
"""Time to target relative to a reference row, or top accuracy in percent."""

DASH = "-"
"""What the paper prints where fewer than half of the runs reached the target."""


@dataclass(frozen=True, slots=True)
class Printed:
    """One cell as printed: a mean, perhaps with a standard deviation; a dash has neither."""

    mean: float | None
    deviation: float | None = None

    @classmethod
    def read(cls, cell: float | str) -> "Printed":
        """A number, a dash, or a text such as 92.42±3.96."""
        if not isinstance(cell, str):
            return cls(float(cell))
        if cell == DASH:
            return cls(None)
        mean, _, deviation = cell.partition("±")
        return cls(float(mean), float(deviation))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The part of a table about one dataset and partition.

    columns: such as m=5/homo.
    rows: by method, one cell per column.
    """

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[Printed, ...]]
    target: float | None

    def at(self, row: str, column: str) -> Printed | None:
        """One cell; None if the paper does not have it."""
        if row not in self.rows or column not in self.columns:
            return None
        return self.rows[row][self.columns.index(column)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """A table of results; label is the one in its LaTeX source."""

    name: str
    label: str
    caption: str
    quantity: Quantity
    blocks: Mapping[str, Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsTable:
    """A table of settings or of a network's layers, as printed."""

    name: str
    label: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def value(self, row: str, column: str) -> str:
        """One cell, by the row's first cell and the column's heading."""
        found = next(cells for cells in self.rows if cells[0] == row)
        return found[self.columns.index(column)]


@cache
def paper_tables() -> Mapping[str, PaperTable | SettingsTable]:
    """Every table with numbers by its name, table-1 to table-22, in the paper's order.

    Tables 4 and 5, of notation, hold none.
    """
    folder = files(__package__) / "numbers"
    paths = sorted((p for p in folder.iterdir() if p.name.endswith(".toml")), key=lambda p: p.name)
    tables = [_table(tomllib.loads(path.read_text(encoding="utf-8"))) for path in paths]
    return {table.name: table for table in tables}


def _table(values: dict[str, Any]) -> PaperTable | SettingsTable:
    named = {key: values[key] for key in ("name", "label", "caption")}
    if "blocks" not in values:
        rows = tuple(tuple(row) for row in values["rows"])
        return SettingsTable(**named, columns=tuple(values["columns"]), rows=rows)
    blocks = {name: _block(block) for name, block in values["blocks"].items()}
    return PaperTable(**named, quantity=values["quantity"], blocks=blocks)


def _block(values: dict[str, Any]) -> Block:
    rows = {row: tuple(map(Printed.read, cells)) for row, cells in values["rows"].items()}
    return Block(columns=tuple(values["columns"]), rows=rows, target=values.get("target"))
