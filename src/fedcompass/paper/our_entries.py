"""Entries that are not the paper's: other targets, choices it leaves open, other data."""

from collections.abc import Iterable

from fedcompass.paper.cells import BLOCKS, SPEEDS, Cell
from fedcompass.paper.entry import MINI, Entry
from fedcompass.paper.hyperparameters import ALGORITHMS
from fedcompass.paper.medical_runs import MEDICAL, medical_cells

__all__ = ["our_entries"]

_FULL = ("mnist-class", "mnist-dual-dirichlet")
_MAIN = ("fedavg", "fedasync", "fedbuff", "fedat", "fedcompass")
_CAUSES = ("authors", "decay", "equal", "floor")
_ALONE = ("sign", "fleet", "sign+fleet", "rate", "warm-up", "join", "aim", "smooth", "naps")
_HABIT_ROWS = (
    "fedcompass",
    *(f"fedcompass@{habit}" for habit in _ALONE),
    "fedcompass@as-run",
    "fedavg",
    "fedavg@fleet",
    *(
        f"{name}{habit}"
        for name in ("fedasync", "fedbuff")
        for habit in ("", "@sign", "@fleet", "@sign+fleet")
    ),
)
_RATIOS = tuple(f"1/Q={ratio:.2f}" for ratio in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0))
_CHOICE_ROWS = (
    *_MAIN,
    "fedcompass@long",
    *(f"fedcompass@{habit}" for habit in ("authors", "join", "aim", "smooth", "decay")),
    *(f"{name}@own" for name in ("fedasync", "fedbuff")),
    *(f"{name}@{choice}" for choice in ("equal", "floor", "nofloor") for name in _MAIN),
)


def our_entries() -> list[Entry]:
    """In the order in which they are listed."""
    return [
        Entry(
            name="finding",
            kind="finding",
            title="Table 1 on MNIST: what the paper says, what its formulas give and what its "
            "authors' public code gives",
        ),
        Entry(
            name="figure-times",
            kind="times",
            title="Time to target on MNIST by cell: the paper, as written, as run",
        ),
        Entry(
            name="figure-signs",
            kind="signs",
            title="Accuracy over time on MNIST, exponential speeds, with both signs of the "
            "staleness exponent",
        ),
        *(_at(percent) for percent in (70, 80)),
        _mini_table(),
        _choices(),
        *(_habits(name, blocks) for name, blocks in (("habits", _FULL), ("habits-mini", MINI))),
        _longer(),
        _wider(),
        _mini_choices(),
        _mini_ratios(),
        _mini_ten(),
        Entry(
            name="figure-groups",
            kind="groups",
            title="Number of groups over time beside ceil(log_Q mu), 1,000 random fleets",
        ),
        *(_medical(block) for block in MEDICAL),
    ]


def _at(percent: int) -> Entry:
    return Entry(
        name=f"table-1-at-{percent}",
        kind="table",
        title=f"Table 1 on MNIST with a target of {percent}%, from the same runs, beside the "
        "paper's numbers for 90%",
        cells=tuple(
            Cell(block, clients, speed)
            for block in _FULL
            for clients in BLOCKS[block].clients
            for speed in SPEEDS
        ),
        rows=ALGORITHMS,
        numbers="table-1",
        target=percent / 100,
    )


def _mini_table() -> Entry:
    return Entry(
        name="table-1-mini",
        kind="table",
        title="Table 1 on the bundled sixth of MNIST (80%), beside the paper's MNIST numbers",
        cells=(
            *(Cell(block, 5, speed) for block in MINI for speed in SPEEDS),
            *(Cell(block, 10, "exp") for block in MINI),  # where both signs differ most
        ),
        rows=ALGORITHMS,
        numbers="table-1",
    )


def _choices() -> Entry:
    return Entry(
        name="choices",
        kind="table",
        title="FedCompass, exponential speeds, with what the paper leaves open decided the other "
        "way",
        cells=tuple(Cell(block, clients, "exp") for block in _FULL for clients in (5, 10)),
        rows=("fedavg", "fedcompass", *(f"fedcompass@{choice}" for choice in _CAUSES)),
        numbers="table-1",
    )


def _habits(name: str, blocks: Iterable[str]) -> Entry:
    return Entry(
        name=name,
        kind="table",
        title="Exponential speeds, each habit of the authors' public code alone: a row @habit is "
        "relative to fedcompass@habit where that is a row",
        cells=tuple(
            Cell(block, clients, "exp") for block in blocks for clients in BLOCKS[block].clients
        ),
        rows=_HABIT_ROWS,
        numbers="table-1",
    )


def _longer() -> Entry:
    return Entry(
        name="longer",
        kind="table",
        title="FedCompass, exponential speeds, five clients, run as long as FedAvg",
        cells=tuple(Cell(block, 5, "exp") for block in _FULL),
        rows=("fedavg", "fedcompass@long"),
        reference="fedcompass@long",
        numbers="table-1",
    )


def _wider() -> Entry:
    return Entry(
        name="wider",
        kind="table",
        title="FedCompass with Q_min a 20th of Q_max, exponential speeds, and the synchronous "
        "strategies",
        cells=tuple(
            Cell(block, clients, "exp", ablation=True)
            for block in _FULL
            for clients in BLOCKS[block].clients
        ),
        rows=("fedavg", "fedavgm", "1/Q=0.20", "1/Q=0.05"),
        reference="1/Q=0.05",
    )


def _mini_choices() -> Entry:
    return Entry(
        name="choices-mini",
        kind="table",
        title="All choices on the bundled sixth of MNIST (80%): a row @choice is relative to "
        "fedcompass@choice, and that to fedcompass",
        cells=tuple(Cell(block, 5, "exp") for block in MINI),
        rows=_CHOICE_ROWS,
        numbers="table-1",
    )


def _mini_ratios() -> Entry:
    return Entry(
        name="table-19-mini",
        kind="table",
        title="Table 19 on the bundled sixth of MNIST (80%), beside the paper's MNIST numbers",
        cells=tuple(Cell(block, 5, speed, ablation=True) for block in MINI for speed in SPEEDS),
        rows=(*_RATIOS, "fedbuff", "fedasync"),
        reference="1/Q=0.20",
        numbers="table-19",
        same_as={"fedasync": "1/Q=1.00"},
    )


def _mini_ten() -> Entry:
    return Entry(
        name="ten-clients-mini",
        kind="table",
        title="Ten clients of exponential speed on the bundled sixth of MNIST (80%), beside the "
        "paper's MNIST numbers",
        cells=tuple(Cell(block, 10, "exp") for block in MINI),
        rows=(
            "fedavg",
            "fedasync",
            "fedcompass",
            "fedcompass@long",
            "1/Q=0.05",
            "fedcompass@authors",
            "fedasync@floor",
            "fedcompass@floor",
        ),
        numbers="table-1",
    )


def _medical(block: str) -> Entry:
    runs = MEDICAL[block]
    return Entry(
        name=f"medical-{block}",
        kind="medical",
        title=runs.title,
        cells=medical_cells(block),
        rows=runs.rows,
    )
