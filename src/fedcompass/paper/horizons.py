"""How long each cell is run: a number of mean rounds, the same for all strategies of one kind.

The paper says only that the rounds were enough to converge, and that in one setting all synchronous
algorithms take the same time and all asynchronous ones too. Ours, in mean rounds of Q steps:

- asynchronous strategies: so many mean rounds by dataset; half as many with exponential speeds,
  where the fast clients alone do several times the steps of a homogeneous fleet;
- synchronous strategies: so many rounds of the slowest client, whose pace is expected to be
  1 (homogeneous), 1 + 0.3 E[max of m normals] or H_m = 1 + 1/2 + ... + 1/m (exponential) means.
"""

from math import ceil
from statistics import NormalDist

from fedcompass.paper.cells import Cell

__all__ = ["SYNCHRONOUS", "horizon", "mean_rounds", "slowest_expected"]

SYNCHRONOUS = ("fedavg", "fedavgm")
"""The strategies that wait for everybody; the others share the asynchronous horizon."""

ASYNCHRONOUS_ROUNDS = {"mnist": 40, "mnist-mini": 20, "cifar10": 30, "fed-ixi": 20}
SYNCHRONOUS_ROUNDS = {"mnist": 40, "mnist-mini": 20, "cifar10": 30, "fed-ixi": 20}
_OTHERS = 30  # fed-isic2019
_SPREAD = 0.3  # σ of the normal speeds, in means


def horizon(cell: Cell, strategy: str, steps: int, mean_seconds_per_step: float) -> float:
    """Virtual seconds for which a strategy is run in a cell; `steps` is the paper's Q there."""
    seconds = mean_rounds(cell, strategy) * steps * mean_seconds_per_step
    return round(seconds, 6)  # 184 * 200 * 0.15 is the same text everywhere


def mean_rounds(cell: Cell, strategy: str) -> int:
    """The horizon in rounds of Q steps at the mean pace."""
    dataset = cell.settings.dataset
    if strategy in SYNCHRONOUS:
        rounds = SYNCHRONOUS_ROUNDS.get(dataset, _OTHERS)
        return ceil(rounds * slowest_expected(cell.speed, cell.clients))
    rounds = ASYNCHRONOUS_ROUNDS.get(dataset, _OTHERS)
    return rounds // 2 if cell.speed == "exp" else rounds


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
