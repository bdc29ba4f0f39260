"""Every table and figure of the paper by a stable name, and the cells and rows it consists of."""

from collections.abc import Mapping
from typing import Any

from fedcompass.errors import SettingsError
from fedcompass.paper.cells import BLOCKS, SPEEDS, Cell
from fedcompass.paper.entry import Entry
from fedcompass.paper.hyperparameters import ALGORITHMS
from fedcompass.paper.numbers import PaperTable, SettingsTable, paper_tables
from fedcompass.paper.our_entries import our_entries
from fedcompass.setting_tables import unknown_key

__all__ = ["catalogue", "entry_named"]


def catalogue() -> dict[str, Entry]:
    """All entries by name: tables, then figures, in the paper's order, then ours."""
    entries = [*_tables(), *_figures(), *our_entries()]
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
    rows = next(iter(table.blocks.values())).rows
    more = _more_rows(rows)
    reference = next(row for row in ("1/Q=0.20", "lambda=1.00", "fedcompass") if row in rows)
    cells = tuple(
        _cell(block, column, reference)
        for block, content in table.blocks.items()
        for column in content.columns
    )
    return Entry(
        name=table.name,
        kind="table",
        title=table.caption,
        label=table.label,
        cells=cells,
        rows=(*rows, *more),
        quantity=table.quantity,
        reference=reference,
        numbers=table.name,
        same_as=more,
    )


def _more_rows(rows: Mapping[str, Any]) -> dict[str, str]:
    """The paper prints FedAsync's numbers at 1/Q = 1: ours runs FedCompass there, and both."""
    return {"fedasync": "1/Q=1.00"} if "1/Q=1.00" in rows else {}


def _cell(block: str, column: str, reference: str) -> Cell:
    clients, speed = column.removeprefix("m=").split("/")
    return Cell(
        block,
        int(clients),
        speed,
        changing=reference.startswith("lambda"),
        ablation=reference != "fedcompass",
    )


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
