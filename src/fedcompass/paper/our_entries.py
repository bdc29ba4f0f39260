"""Entries that are not the paper's: other targets, choices it leaves open, other data."""

from collections.abc import Iterable
from typing import Any

from fedcompass.paper.cells import BLOCKS, SPEEDS, Cell
from fedcompass.paper.entry import MINI, Entry
from fedcompass.paper.hyperparameters import ALGORITHMS
from fedcompass.paper.medical_runs import MEDICAL

__all__ = ["OUR_ENTRIES"]

_FULL = ("mnist-class", "mnist-dual-dirichlet")
_MAIN = ("fedavg", "fedasync", "fedbuff", "fedat", "fedcompass")
_CAUSES = ("authors", "decay", "equal", "floor")
_ALONE = (
    *("sign", "fleet", "sign+fleet", "rate", "warm-up", "join", "aim", "smooth", "naps"),
    *("pass-over", "rounds"),
)
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
_HABITS = (
    "Exponential speeds, each habit of the authors' public code alone: a row @habit is relative to "
    "fedcompass@habit where that is a row"
)
_RATIOS = tuple(f"1/Q={ratio:.2f}" for ratio in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0))
_CHOICE_ROWS = (
    *_MAIN,
    "fedcompass@long",
    *(f"fedcompass@{habit}" for habit in ("authors", "join", "aim", "smooth", "decay")),
    *(f"{name}@own" for name in ("fedasync", "fedbuff")),
    *(f"{name}@{choice}" for choice in ("equal", "floor", "nofloor") for name in _MAIN),
)
_TEN_ROWS = (
    "fedavg",
    "fedasync",
    "fedcompass",
    "fedcompass@long",
    "1/Q=0.05",
    "fedcompass@authors",
    "fedasync@floor",
    "fedcompass@floor",
)


def _cells(
    blocks: Iterable[str],
    clients: tuple[int, ...] = (),
    speeds: Iterable[str] = ("exp",),
    *,
    ablation: bool = False,
) -> tuple[Cell, ...]:
    """Every combination; without `clients`, with each block's usual numbers of them."""
    return tuple(
        Cell(block, count, speed, ablation=ablation)
        for block in blocks
        for count in clients or BLOCKS[block].clients
        for speed in speeds
    )


def _table(
    name: str, title: str, cells: tuple[Cell, ...], rows: tuple[str, ...], **more: Any
) -> Entry:
    """A table of ours beside the numbers of table 1, unless `more` names another."""
    beside = {"numbers": "table-1", **more}
    return Entry(name=name, kind="table", title=title, cells=cells, rows=rows, **beside)


OUR_ENTRIES = (
    Entry(
        name="finding",
        kind="finding",
        title="Table 1 on MNIST: what the paper says, what its formulas give and what its authors' "
        "public code gives",
    ),
    Entry(
        name="figure-times",
        kind="times",
        title="Time to target on MNIST by cell: the paper, as written, as run",
    ),
    Entry(
        name="figure-signs",
        kind="signs",
        title="Accuracy over time on MNIST, exponential speeds, with both signs of the staleness "
        "exponent",
    ),
    *(
        _table(
            f"table-1-at-{percent}",
            f"Table 1 on MNIST with a target of {percent}%, from the same runs, beside the paper's "
            "numbers for 90%",
            _cells(_FULL, speeds=SPEEDS),
            ALGORITHMS,
            target=percent / 100,
        )
        for percent in (70, 80)
    ),
    _table(
        "table-1-mini",
        "Table 1 on the bundled sixth of MNIST (80%), beside the paper's MNIST numbers",
        (*_cells(MINI, (5,), SPEEDS), *_cells(MINI, (10,))),  # ten: where both signs differ most
        ALGORITHMS,
    ),
    _table(
        "choices",
        "FedCompass, exponential speeds, with what the paper leaves open decided the other way",
        _cells(_FULL, (5, 10)),
        ("fedavg", "fedcompass", *(f"fedcompass@{choice}" for choice in _CAUSES)),
    ),
    _table("habits", _HABITS, _cells(_FULL), _HABIT_ROWS),
    _table("habits-mini", _HABITS, _cells(MINI), _HABIT_ROWS),
    _table(
        "longer",
        "FedCompass, exponential speeds, five clients, run as long as FedAvg",
        _cells(_FULL, (5,)),
        ("fedavg", "fedcompass@long"),
        reference="fedcompass@long",
    ),
    _table(
        "wider",
        "FedCompass with Q_min a 20th of Q_max, exponential speeds, and the synchronous strategies",
        _cells(_FULL, ablation=True),
        ("fedavg", "fedavgm", "1/Q=0.20", "1/Q=0.05"),
        reference="1/Q=0.05",
        numbers="",
    ),
    _table(
        "choices-mini",
        "All choices on the bundled sixth of MNIST (80%): a row @choice is relative to "
        "fedcompass@choice, and that to fedcompass",
        _cells(MINI, (5,)),
        _CHOICE_ROWS,
    ),
    _table(
        "table-19-mini",
        "Table 19 on the bundled sixth of MNIST (80%), beside the paper's MNIST numbers",
        _cells(MINI, (5,), SPEEDS, ablation=True),
        (*_RATIOS, "fedbuff", "fedasync"),
        reference="1/Q=0.20",
        numbers="table-19",
        same_as={"fedasync": "1/Q=1.00"},
    ),
    _table(
        "ten-clients-mini",
        "Ten clients of exponential speed on the bundled sixth of MNIST (80%), beside the paper's "
        "MNIST numbers",
        _cells(MINI, (10,)),
        _TEN_ROWS,
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
            cells=_cells([block], speeds=runs.speeds),
            rows=runs.rows,
        )
        for block, runs in MEDICAL.items()
    ),
)
"""In the order in which they are listed."""
