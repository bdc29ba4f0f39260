"""How long each cell is run: mean rounds, the same for all strategies of one kind.

The paper says only that the rounds were enough to converge, and that in one setting all synchronous
algorithms take the same time and all asynchronous ones too. Ours has two horizons, in mean rounds
of Q steps: every run goes on to the accuracy horizon, up to which top accuracies and curves are
told; one that has not reached the target by then goes on until it does, to the target horizon at
the latest. Ablation tables have shorter ones of their own; a longer run of another table serves
them too.

- Asynchronous strategies: so many mean rounds by dataset, fewer with exponential speeds. A client
  of pace p does 1/p times the mean client's steps, and over exponential paces of at least 0.02
  means 1/p is 4.3 on average (3.4 without those at the floor): 4 mean rounds of such a fleet take
  as many steps as 14 to 17 of a homogeneous one.
- Synchronous strategies: so many rounds of the slowest client, whose pace is expected to be
  1 (homogeneous), 1 + 0.3 E[max of m normals] or H_m = 1 + 1/2 + ... + 1/m (exponential) means.
"""

from functools import cache
from math import ceil
from statistics import NormalDist
from typing import NamedTuple

from fedcompass.paper.cells import Cell

__all__ = [
    "ABLATIONS",
    "ROUNDS",
    "SYNCHRONOUS",
    "Horizons",
    "Rounds",
    "mean_rounds",
    "slowest_expected",
]

SYNCHRONOUS = ("fedavg", "fedavgm")
"""The strategies that wait for everybody; the others share the asynchronous horizons."""


class Horizons(NamedTuple):
    """Until when every run goes on, and until when one that has not reached the target does."""

    accuracy: float
    target: float

    @property
    def differ(self) -> bool:
        """Whether a run may stop at its target."""
        return self.accuracy < self.target

    def in_seconds(self, of_a_round: float) -> "Horizons":
        """Mean rounds as virtual seconds."""
        # Rounded, so that 184 * 200 * 0.15 is the same text everywhere.
        return Horizons(*(round(rounds * of_a_round, 6) for rounds in self))


class Rounds(NamedTuple):
    """A dataset's horizons in rounds of the mean client, in an exponential fleet others than usual.

    Synchronous strategies get the usual ones, in rounds of the slowest client.
    """

    usual: Horizons
    exponential: Horizons


ABLATIONS = {"mnist": Rounds(Horizons(6, 15), Horizons(2, 8))}
"""Instead of `ROUNDS` in ablation tables; of other datasets the same."""

ROUNDS = {
    "mnist": Rounds(Horizons(10, 25), Horizons(4, 15)),
    "mnist-mini": Rounds(Horizons(10, 20), Horizons(4, 10)),
    "cifar10": Rounds(Horizons(4, 12), Horizons(2, 5)),
    "fed-ixi": Rounds(Horizons(20, 20), Horizons(10, 10)),
    "fed-isic2019": Rounds(Horizons(30, 30), Horizons(15, 15)),
}
_SPREAD = 0.3  # σ of the normal speeds, in means


def mean_rounds(cell: Cell, strategy: str, slowest: float | None = None) -> Horizons:
    """The horizons of a strategy in a cell, in rounds of Q steps at the mean pace.

    `slowest` is the slowest client's pace in means, where the fleet is known.
    """
    dataset = cell.settings.dataset
    rounds = ROUNDS[dataset]
    if cell.ablation:
        rounds = ABLATIONS.get(dataset, rounds)
    if strategy in SYNCHRONOUS:
        slowest = slowest or slowest_expected(cell.speed, cell.clients)
        return Horizons(*(ceil(some * slowest) for some in rounds.usual))
    return rounds.exponential if cell.speed == "exp" else rounds.usual


@cache
def slowest_expected(speed: str, clients: int) -> float:
    """The expected pace of the slowest of so many clients, in means."""
    match speed:
        case "exp":
            return sum(1 / k for k in range(1, clients + 1))
        case "normal":
            return 1 + _SPREAD * _largest_normal(clients)
        case _:
            return 1.0


def _largest_normal(clients: int, points: int = 2000) -> float:
    """E[max of m standard normals]: the mean of Φ⁻¹(u^(1/m)) over u, by the midpoint rule."""
    inverse = NormalDist().inv_cdf
    return sum(inverse(((k + 0.5) / points) ** (1 / clients)) for k in range(points)) / points
