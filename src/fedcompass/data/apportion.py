"""Whole numbers of samples from fractional shares, so that none is lost or given twice."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["apportion", "fill_empty_rows"]


def apportion(weights: NDArray[np.float64], total: int, at_least: int = 0) -> NDArray[np.int64]:
    """Split `total` in proportion to the weights by the largest remainder; none is lost.

    Equal remainders go to the earlier part. Where `total` allows, a part below `at_least` is lifted
    at the cost of the largest.
    """
    quotas = weights / weights.sum() * total
    parts: NDArray[np.int64] = np.floor(quotas).astype(np.int64)
    order = np.argsort(parts - quotas, kind="stable")  # largest remainder first
    short = total - int(parts.sum())
    parts[order[:short]] += 1
    if total >= at_least * len(parts):
        while (low := int(parts.argmin())) != (high := int(parts.argmax())) and (
            parts[low] < at_least
        ):
            parts[low] += 1
            parts[high] -= 1
    return parts


def fill_empty_rows(counts: NDArray[np.int64], wanted: NDArray[np.bool_]) -> None:
    """Give every empty row (client) one sample of the row with the most; in place.

    The sample is of a class that the empty client wants, if the largest client has one, otherwise
    of any. Columns keep their sums. Needs at least as many samples as rows.
    """
    for row in np.flatnonzero(counts.sum(axis=1) == 0):
        donor = int(counts.sum(axis=1).argmax())
        offered = np.where(wanted[row], counts[donor], 0)
        column = int((offered if offered.any() else counts[donor]).argmax())
        counts[donor, column] -= 1
        counts[row, column] += 1
