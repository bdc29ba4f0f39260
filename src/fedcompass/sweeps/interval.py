"""How sure a mean ratio is: an interval from a bootstrap over seeds, right for few of them, too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import atan, cos, exp, pi, sqrt
from statistics import NormalDist, mean
from typing import TypeAlias

__all__ = ["BySeed", "Interval", "over_seeds"]

_RESAMPLES = 10_000
_SHARE = 0.95

BySeed: TypeAlias = Mapping[int, float]
"""Logarithms of a cell's ratios."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A geometric mean of ratios, and where the true one lies with 95% confidence.

    is_known: whether every cell has two seeds; one that has not would seem sure.
    """

    mean: float
    low: float
    high: float
    is_known: bool


def over_seeds(cells: Sequence[BySeed]) -> Interval:
    """Of the mean over cells of each cell's mean.

    Seeds are drawn anew, each with its pairs in all cells, since cells share a seed's clients and
    data: drawn cell by cell the interval would be too narrow. A cell that has none of those drawn
    is left out.
    """
    import numpy as np

    seeds = sorted({seed for cell in cells for seed in cell})
    share_of_each = np.full(len(seeds), 1 / len(seeds))
    drawn = np.random.default_rng(0).multinomial(len(seeds), share_of_each, size=_RESAMPLES)
    total, used = np.zeros(_RESAMPLES), np.zeros(_RESAMPLES)
    for cell in cells:
        pairs = drawn @ np.array([seed in cell for seed in seeds], dtype=float)
        sums = drawn @ np.array([cell.get(seed, 0.0) for seed in seeds])
        total += sums / np.maximum(pairs, 1)
        used += pairs > 0
    tail = _tail(len(seeds))
    low, high = np.quantile(total / used, (tail, 1 - tail))
    is_known = all(len(cell) > 1 for cell in cells)
    return Interval(exp(mean(mean(cell.values()) for cell in cells)), exp(low), exp(high), is_known)


def _tail(seeds: int) -> float:
    """The share of resamplings to leave out on either side, 2.5% for very many seeds.

    Resampled means of few values vary too little, and as if their spread were known: the percentile
    interval of ten covers 89% instead of 95%. Hesterberg's expanded percentiles (What Teachers
    Should Know about the Bootstrap, 2015, section 5.3) make it as wide as Student's t.
    """
    if seeds < 2:
        return (1 - _SHARE) / 2
    wider = sqrt(seeds / (seeds - 1)) * _student_t((1 + _SHARE) / 2, seeds - 1)
    return NormalDist().cdf(-wider)


def _student_t(share: float, freedom: int) -> float:
    """The value that a Student t of so many degrees of freedom is below in this share of cases."""
    low, high = 0.0, 1000.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < share else (low, middle)
    return low


def _below(value: float, freedom: int) -> float:
    """Of a Student t, for value >= 0: Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = atan(value / sqrt(freedom))
    is_odd = freedom % 2
    term = cos(angle) if is_odd else 1.0
    terms = 0.0
    for factor in range(3 if is_odd else 2, freedom + 1, 2):
        terms += term
        term *= cos(angle) ** 2 * (factor - 1) / factor
    sine = value / sqrt(freedom + value**2)
    within = 2 / pi * (angle + sine * terms) if is_odd else sine * terms
    return (1 + within) / 2
