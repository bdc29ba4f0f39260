"""The split into training and test part that FLamby's Fed-Heart-Disease draws when it loads.

FLamby calls scikit-learn's `train_test_split` with a fixed seed. This draws the same numbers in the
same order from the same (frozen) generator of numpy, so that no further package is needed.
"""

from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

__all__ = ["stratified_split"]


def stratified_split(
    labels: NDArray[np.int64], train_share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and test rows, ascending; classes keep their shares if each has 3 or more rows."""
    train, test = floor(train_share * len(labels)), ceil((1 - train_share) * len(labels))
    rng = np.random.RandomState(seed)
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2 or counts.min() <= 2:
        order = rng.permutation(len(labels))
        return np.sort(order[test : test + train]), np.sort(order[:test])
    in_train = _mode(counts, train, rng)
    in_test = _mode(counts - in_train, test, rng)
    parts: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
    for label, first, second in zip(classes, in_train, in_test, strict=True):
        rows = np.flatnonzero(labels == label)
        rows = rows[rng.permutation(len(rows))]
        parts[0].append(rows[:first])
        parts[1].append(rows[first : first + second])
    return np.sort(np.concatenate(parts[0])), np.sort(np.concatenate(parts[1]))


def _mode(counts: NDArray[np.int64], draws: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """The likeliest numbers of each class among so many draws; ties are broken by chance."""
    expected = counts / counts.sum() * draws
    whole = np.floor(expected)
    short = int(draws - whole.sum())
    rest = expected - whole
    for value in np.unique(rest)[::-1]:
        if short == 0:
            break
        tied = np.flatnonzero(rest == value)
        lucky = rng.choice(tied, size=min(len(tied), short), replace=False)
        whole[lucky] += 1
        short -= len(lucky)
    found: NDArray[np.int64] = whole.astype(np.int64)
    return found
