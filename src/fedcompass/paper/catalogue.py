"""Every table and figure of the paper by a stable name, and the cells and rows it consists of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from fedcompass.errors import SettingsError
from fedcompass.paper.cells import BLOCKS, SPEEDS, Cell
from fedcompass.paper.hyperparameters import ALGORITHMS, settings_of
from fedcompass.paper.medical_runs import MEDICAL, medical_cells
from fedcompass.paper.numbers import PaperTable, Printed, Quantity, SettingsTable, paper_tables
from fedcompass.settings import unknown_key

__all__ = ["Entry", "Kind", "PlannedRun", "catalogue", "entry_named"]

Kind: TypeAlias = Literal[
    "table", "settings", "curves", "timeline", "partition", "paces", "groups", "medical"
]

_RATIOS = tuple(
    f"1/Q={ratio}" for ratio in ("0.05", "0.10", "0.20", "0.40", "0.60", "0.80", "1.00")
)
_LAMBDAS = tuple(f"lambda={value}" for value in ("1.00", "1.20", "1.50", "2.00"))
_MINI = {"mini-class": "mnist-class", "mini-dual-dirichlet": "mnist-dual-dirichlet"}
_CHOICE_ROWS = (
    *("fedavg", "fedasync", "fedbuff", "fedat", "fedcompass"),
    *(f"fedcompass@{habit}" for habit in ("authors", "join", "aim", "smooth", "decay")),
    *(f"{name}@own" for name in ("fedasync", "fedbuff")),
    *(f"{name}@equal" for name in ("fedavg", "fedasync", "fedbuff", "fedat", "fedcompass")),
    *(f"{name}@floor" for name in ("fedavg", "fedasync", "fedbuff", "fedat", "fedcompass")),
    *(f"{name}@nofloor" for name in ("fedavg", "fedasync", "fedbuff", "fedat", "fedcompass")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
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

    @property
    def first_seed(self) -> int:
        """Where its seeds begin: the medical targets were chosen with a look at seed 0."""
        return 1 if self.kind == "medical" else 0

    def printed(self, cell: Cell, row: str) -> Printed | None:
        """The paper's number for a row of a cell; None if it has none.

        A row under another choice has its strategy's; the reference under one has none.
        """
        row, _, choice = row.partition("@")
        table = None if choice and row == self.reference else paper_tables().get(self.numbers)
        if not isinstance(table, PaperTable):
            return None
        block = table.blocks.get(_MINI.get(cell.block, cell.block))
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
                raise SettingsError(
                    unknown_key(row, self.rows, self.name).replace("setting", "row")
                )
        return replace(self, rows=tuple(row for row in self.rows if row in wanted))

    def plan(self, cells: Sequence[Cell], seeds: Sequence[int]) -> list[PlannedRun]:
        """The runs of some of its cells: cell by cell, all rows of a seed before the next seed."""
        return [
            PlannedRun(cell=cell, row=row, seed=seed, settings=settings_of(cell, row, seed))
            for cell in cells
            for seed in seeds
            for row in self.rows
        ]


def catalogue() -> dict[str, Entry]:
    """All entries by name: tables, then figures, in the paper's order, then ours."""
    entries = [*_tables(), *_figures(), *_ours()]
    return {entry.name: entry for entry in entries}


def entry_named(name: str) -> Entry:
    """The entry of a name or of a LaTeX label.

    Raises:
        SettingsError: there is none.
    """
    entries = catalogue()
    by_label = {entry.label: entry for entry in entries.values() if entry.label}
    found = entries.get(name) or by_label.get(name)
    if found is None:
        raise SettingsError(unknown_key(name, entries, "the paper").replace("setting", "entry"))
    return found


def _tables() -> list[Entry]:
    return [
        _settings_entry(table) if isinstance(table, SettingsTable) else _results_entry(table)
        for table in paper_tables().values()
    ]


def _settings_entry(table: SettingsTable) -> Entry:
    return Entry(name=table.name, kind="settings", title=table.caption, label=table.label)


def _results_entry(table: PaperTable) -> Entry:
    cells = tuple(
        _cell(block, column, changing="lambda=1.00" in content.rows)
        for block, content in table.blocks.items()
        for column in content.columns
    )
    rows = next(iter(table.blocks.values())).rows
    more = _more_rows(rows)
    return Entry(
        name=table.name,
        kind="table",
        title=table.caption,
        label=table.label,
        cells=cells,
        rows=(*rows, *more),
        quantity=table.quantity,
        reference=next(row for row in ("1/Q=0.20", "lambda=1.00", "fedcompass") if row in rows),
        numbers=table.name,
        same_as=more,
    )


def _more_rows(rows: Mapping[str, Any]) -> dict[str, str]:
    """The paper prints FedAsync's numbers at 1/Q = 1: ours runs FedCompass there, and both."""
    return {"fedasync": "1/Q=1.00"} if "1/Q=1.00" in rows else {}


def _cell(block: str, column: str, *, changing: bool = False) -> Cell:
    clients, speed = column.removeprefix("m=").split("/")
    return Cell(block, int(clients), speed, changing)


def _figures() -> list[Entry]:
    return [
        Entry(
            name="figure-1",
            kind="timeline",
            title="Overview of an example run with Compass on five clients",
            label="fig:fedcompass-overview",
        ),
        _curves(2, "fig:mnist_cifar_acc", "mnist-dual-dirichlet", "cifar10-class", clients=5),
        *_data_figures(),
        *_curve_figures(),
        _curves(18, "fig:flamby_ixi", "fed-ixi", clients=3),
        _curves(19, "fig:flamby_isic", "fed-isic2019", clients=6),
        *_speed_change_figures(),
    ]


def _data_figures() -> list[Entry]:
    sample = "Sample class distribution of the {} partition among ten clients"
    return [
        Entry(
            name="figure-3",
            kind="partition",
            title=sample.format("class"),
            label="fig:MNIST_Class_Par_Example",
            cells=(Cell("mnist-class", 10, "homo"),),
        ),
        Entry(
            name="figure-4",
            kind="partition",
            title=sample.format("dual Dirichlet"),
            label="fig:MNIST_Dirichlet_Example",
            cells=(Cell("mnist-dual-dirichlet", 10, "homo"),),
        ),
        Entry(
            name="figure-5",
            kind="paces",
            title="Seconds per local step among 50 clients, normal and exponential",
            label="fig:distri_sim",
        ),
    ]


def _curve_figures() -> list[Entry]:
    """Figures 6 to 17: two datasets, two partitions, three numbers of clients."""
    labels = {
        "mnist-class": "fig:mnist_par_{}clients",
        "mnist-dual-dirichlet": "fig:mnist_diri_{}clients",
        "cifar10-class": "fig:cifar_par_{}clients",
        "cifar10-dual-dirichlet": "fig:cifar_dirichlet_{}clients",
    }
    misspelt = {"fig:mnist_diri_10clients": "fig:mnist_didi_10clients"}  # so in the source
    entries: list[Entry] = []
    for block, label in labels.items():
        for clients in BLOCKS[block].clients:
            name = label.format(clients)
            number = 6 + len(entries)
            entries.append(_curves(number, misspelt.get(name, name), block, clients=clients))
    return entries


def _curves(number: int, label: str, *blocks: str, clients: int) -> Entry:
    return Entry(
        name=f"figure-{number}",
        kind="curves",
        title=f"Accuracy over time: {' and '.join(blocks)}, {clients} clients",
        label=label,
        cells=tuple(Cell(block, clients, speed) for block in blocks for speed in SPEEDS),
        rows=ALGORITHMS,
        quantity="accuracy",
    )


def _speed_change_figures() -> list[Entry]:
    titles = {
        "fig:fedcompass-speedup": "a client speeds up and waits for its group",
        "fig:fedcompass-slowdown-0": "a client slows down and comes before T_max",
        "fig:fedcompass-slowdown-1": "a client slows down and comes after T_max",
    }
    return [
        Entry(name=f"figure-{number}", kind="timeline", title=f"Five clients: {title}", label=label)
        for number, (label, title) in enumerate(titles.items(), start=20)
    ]


def _ours() -> list[Entry]:
    mini = tuple(Cell(block, 5, speed) for block in _MINI for speed in SPEEDS)
    chosen = ("mnist-class", "mnist-dual-dirichlet")
    return [
        Entry(
            name="table-1-mini",
            kind="table",
            title="Table 1 on the bundled sixth of MNIST (80%), beside the paper's MNIST numbers",
            cells=mini,
            rows=ALGORITHMS,
            numbers="table-1",
        ),
        Entry(
            name="choices",
            kind="table",
            title="What the paper leaves open, decided the other way: a row @choice is relative to "
            "fedcompass@choice, and that to fedcompass",
            cells=tuple(Cell(block, 5, "exp") for block in chosen),
            rows=_CHOICE_ROWS,
            numbers="table-1",
        ),
        Entry(
            name="choices-mini",
            kind="table",
            title="The same on the bundled sixth of MNIST (80%): any laptop can repeat it",
            cells=tuple(cell for cell in mini if cell.speed == "exp"),
            rows=_CHOICE_ROWS,
            numbers="table-1",
        ),
        Entry(
            name="figure-groups",
            kind="groups",
            title="Number of groups over time beside ceil(log_Q mu), 1,000 random fleets",
        ),
        *(
            Entry(
                name=f"medical-{block}",
                kind="medical",
                title=runs.title,
                cells=medical_cells(block),
                rows=runs.rows,
            )
            for block, runs in MEDICAL.items()
        ),
    ]
