"""Every table and figure of the paper by a stable name, and the cells and rows it consists of."""

from fedcompass.errors import SettingsError
from fedcompass.paper.cells import BLOCKS, SPEEDS, Cell
from fedcompass.paper.entry import Entry
from fedcompass.paper.hyperparameters import ALGORITHMS
from fedcompass.paper.numbers import PaperTable, paper_tables
from fedcompass.paper.our_entries import OUR_ENTRIES
from fedcompass.setting_tables import unknown_key

__all__ = ["catalogue", "entry_named"]


def catalogue() -> dict[str, Entry]:
    """All entries by name: tables, then figures, in the paper's order, then ours."""
    tables = (
        _results_entry(table)
        if isinstance(table, PaperTable)
        else Entry(name=table.name, kind="settings", title=table.caption, label=table.label)
        for table in paper_tables().values()
    )
    return {entry.name: entry for entry in (*tables, *_FIGURES, *OUR_ENTRIES)}


def entry_named(name: str) -> Entry:
    """The entry of a name or of a LaTeX label.

    Raises:
        SettingsError: there is none.
    """
    entries = catalogue()
    by_label = {entry.label: entry for entry in entries.values() if entry.label}
    found = entries.get(name) or by_label.get(name)
    if found is None:
        raise SettingsError(unknown_key(name, entries, "the paper", "entry"))
    return found


def _results_entry(table: PaperTable) -> Entry:
    rows = next(iter(table.blocks.values())).rows
    # The paper prints FedAsync's numbers at 1/Q = 1: ours runs FedCompass there, and both.
    more = {"fedasync": "1/Q=1.00"} if "1/Q=1.00" in rows else {}
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


def _cell(block: str, column: str, reference: str) -> Cell:
    clients, speed = column.removeprefix("m=").split("/")
    return Cell(
        block,
        int(clients),
        speed,
        changing=reference.startswith("lambda"),
        ablation=reference != "fedcompass",
    )


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


def _split(number: int, label: str, block: str, words: str) -> Entry:
    return Entry(
        name=f"figure-{number}",
        kind="partition",
        title=f"Sample class distribution of the {words} partition among ten clients",
        label=label,
        cells=(Cell(block, 10, "homo"),),
    )


def _timeline(number: int, label: str, title: str) -> Entry:
    return Entry(name=f"figure-{number}", kind="timeline", title=title, label=label)


_CURVES = {
    "mnist-class": "fig:mnist_par_{}clients",
    "mnist-dual-dirichlet": "fig:mnist_diri_{}clients",
    "cifar10-class": "fig:cifar_par_{}clients",
    "cifar10-dual-dirichlet": "fig:cifar_dirichlet_{}clients",
}
"""The labels of figures 6 to 17: two datasets, two partitions, three numbers of clients."""

_MISSPELT = {"fig:mnist_diri_10clients": "fig:mnist_didi_10clients"}  # so in the source

_FIGURES = (
    _timeline(
        1, "fig:fedcompass-overview", "Overview of an example run with Compass on five clients"
    ),
    _curves(2, "fig:mnist_cifar_acc", "mnist-dual-dirichlet", "cifar10-class", clients=5),
    _split(3, "fig:MNIST_Class_Par_Example", "mnist-class", "class"),
    _split(4, "fig:MNIST_Dirichlet_Example", "mnist-dual-dirichlet", "dual Dirichlet"),
    Entry(
        name="figure-5",
        kind="paces",
        title="Seconds per local step among 50 clients, normal and exponential",
        label="fig:distri_sim",
    ),
    *(
        _curves(number, _MISSPELT.get(label, label), block, clients=clients)
        for number, (block, clients, label) in enumerate(
            (
                (block, clients, label.format(clients))
                for block, label in _CURVES.items()
                for clients in BLOCKS[block].clients
            ),
            start=6,
        )
    ),
    _curves(18, "fig:flamby_ixi", "fed-ixi", clients=3),
    _curves(19, "fig:flamby_isic", "fed-isic2019", clients=6),
    _timeline(
        20, "fig:fedcompass-speedup", "Five clients: a client speeds up and waits for its group"
    ),
    _timeline(
        21, "fig:fedcompass-slowdown-0", "Five clients: a client slows down and comes before T_max"
    ),
    _timeline(
        22, "fig:fedcompass-slowdown-1", "Five clients: a client slows down and comes after T_max"
    ),
)
