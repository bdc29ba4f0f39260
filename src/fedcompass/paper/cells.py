"""Cells of the paper's tables: a dataset's partition, a number of clients and a speed setting.

A cell is addressed as `mnist-class/m=5/exp`; one with clients that change their speed ends in
`/changing`. No torch here: `fedcompass paper show` needs none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from fedcompass.errors import SettingsError

__all__ = ["BLOCKS", "SPEEDS", "BlockSettings", "Cell", "chosen", "pinned"]

SPEEDS = {"homo": "homogeneous", "normal": "normal", "exp": "exponential"}
"""The paper's short names, and our settings'."""


class BlockSettings(NamedTuple):
    """What a block of a table stands for."""

    dataset: str
    partition: str
    target: float
    metric: str = "accuracy"
    clients: tuple[int, ...] = (5, 10, 20)


BLOCKS = {
    "mnist-class": BlockSettings("mnist", "class", 0.9),
    "mnist-dual-dirichlet": BlockSettings("mnist", "dual-dirichlet", 0.9),
    "cifar10-class": BlockSettings("cifar10", "class", 0.6),
    "cifar10-dual-dirichlet": BlockSettings("cifar10", "dual-dirichlet", 0.5),
    "fed-ixi": BlockSettings("fed-ixi", "center", 0.98, "dice", (3,)),
    "fed-isic2019": BlockSettings("fed-isic2019", "center", 0.5, "balanced_accuracy", (6,)),
    # The bundled sixth of MNIST: not in the paper, but on any laptop in minutes.
    "mini-class": BlockSettings("mnist-mini", "class", 0.8, clients=(5,)),
    "mini-dual-dirichlet": BlockSettings("mnist-mini", "dual-dirichlet", 0.8, clients=(5,)),
    # The medical data at hand: not the paper's; `medical_runs` has their settings.
    "heart": BlockSettings("fed-heart-disease", "center", 0.72, "binary_accuracy", (4,)),
    "brca": BlockSettings("fed-tcga-brca", "center", 0.75, "concordance", (6,)),
    "isic": BlockSettings("fed-isic2019", "center", 0.25, "balanced_accuracy", (4,)),
    "hippocampus": BlockSettings("msd-hippocampus", "center", 0.8, "dice", (3,)),
}


_BATCH_NORM = ("cifar10", "fed-ixi", "fed-isic2019", "msd-hippocampus")
"""Datasets whose networks have it."""


def pinned(dataset: str, strategy: str) -> dict[str, str]:
    """A strategy's settings that are not left to a default, which became another one.

    BatchNorm's statistics move as they did when the stored runs were made, so that the runs of a
    table can be compared, new ones too. FedAT has no such setting.
    """
    is_pinned = dataset in _BATCH_NORM and strategy != "fedat"
    return {"model_buffers": "moving"} if is_pinned else {}


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One column of one block.

    changing: each round a client's speed is drawn anew by 10%.
    ablation: of an ablation table, whose runs may be shorter.
    """

    block: str
    clients: int
    speed: str
    changing: bool = False
    ablation: bool = False

    def __str__(self) -> str:
        return f"{self.block}/{self.column}" + ("/changing" if self.changing else "")

    @property
    def column(self) -> str:
        """The heading of its column in the paper's tables, such as m=5/exp."""
        return f"m={self.clients}/{self.speed}"

    @property
    def settings(self) -> BlockSettings:
        """The dataset, its partition and the target."""
        return BLOCKS[self.block]


def chosen(cells: Iterable[Cell], pattern: str | None) -> list[Cell]:
    """The cells a pattern names: the beginning of an address, or one with * in it; None: all.

    Several patterns have commas between them.

    Raises:
        SettingsError: no cell is named so.
    """
    cells = list(cells)
    if pattern is None:
        return cells
    named = [part.strip() for part in pattern.split(",")]
    patterns = [*named, *(f"{part}/*" for part in named)]
    found = [cell for cell in cells if any(fnmatchcase(str(cell), part) for part in patterns)]
    if not found:
        few = ", ".join(map(str, cells[:3])) or "none"
        more = f", … ({len(cells)} cells)" if len(cells) > 3 else ""
        raise SettingsError(
            f"--cells is {pattern!r}; the cells are: {few}{more}; all of them: "
            "fedcompass paper list --cells"
        )
    return found
