"""The paper's partitions: how many samples of each class a client gets (appendix).

What the paper leaves open, settled:

- ClassPartition: `randint(n_min, n_max)` includes both ends, as its text says n_i ∈ [n_min, n_max].
  The draw of classes is repeated until every class has a holder, as in the paper, but at most 1,000
  times; then the last draw is mended, so that every request that can be met is met. A share drawn
  from the normal law that is not positive is drawn again. Every holder of a class gets at least one
  sample of it, if there are that many.
- DualDirichletPartition: a class that underflows to zero in every client is shared in proportion to
  the clients' sizes.
- Both: shares become whole numbers by the largest remainder within each class, and a client left
  without any sample gets one from the largest.
"""

import numpy as np
from numpy.typing import NDArray

from fedcompass.errors import SettingsError
from fedcompass.settings.data import ClassRange

__all__ = [
    "apportion",
    "assign_classes",
    "draw_class_counts",
    "draw_dirichlet_counts",
    "fill_empty_rows",
]

_TRIES = 1_000


def draw_class_counts(
    class_sizes: NDArray[np.int64],
    clients: int,
    allowed: ClassRange,
    mean: float,
    std: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """How many samples of each class (column) each client (row) gets; columns sum to the sizes."""
    holds = assign_classes(clients, len(class_sizes), allowed, rng)
    counts = np.zeros(holds.shape, dtype=np.int64)
    for label, size in enumerate(class_sizes):
        holders = np.flatnonzero(holds[:, label])
        counts[holders, label] = apportion(
            _positive_normal(mean, std, len(holders), rng), int(size), at_least=1
        )
    fill_empty_rows(counts, holds)
    return counts


def assign_classes(
    clients: int, classes: int, allowed: ClassRange, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which client (row) holds which class (column); every class has a holder.

    Raises:
        SettingsError: no assignment can meet the range.
    """
    _check_possible(clients, classes, allowed)
    for _ in range(_TRIES):
        holds = np.zeros((clients, classes), dtype=np.bool_)
        for client in range(clients):
            held = int(rng.integers(allowed.n_min, allowed.n_max, endpoint=True))
            holds[client, rng.permutation(classes)[:held]] = True
        if holds.any(axis=0).all():
            return holds
    _mend(holds, allowed.n_max, rng)
    return holds


def _check_possible(clients: int, classes: int, allowed: ClassRange) -> None:
    for name, value in allowed._asdict().items():
        if value > classes:
            raise SettingsError(
                f"{name} is {value}; allowed: at most the {classes} classes there are"
            )
    if clients * allowed.n_max < classes:
        raise SettingsError(
            f"{clients} clients with at most n_max = {allowed.n_max} classes each cannot hold "
            f"{classes} classes; set n_max to at least {-(-classes // clients)}"
        )


def _mend(holds: NDArray[np.bool_], n_max: int, rng: np.random.Generator) -> None:
    """Give each class without a holder to a client, in place of one that has another holder too.

    It always ends well: if no class has two holders, the clients together hold fewer than all
    classes, so, as clients · n_max ≥ classes, one of them has room for another.
    """
    for label in rng.permutation(np.flatnonzero(~holds.any(axis=0))):
        twice = np.argwhere(holds & (holds.sum(axis=0) > 1))
        if len(twice):
            client, given_up = rng.choice(twice)
            holds[client, given_up] = False
        else:
            client = rng.choice(np.flatnonzero(holds.sum(axis=1) < n_max))
        holds[client, label] = True


def _positive_normal(
    mean: float, std: float, size: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Normal draws, those at or below zero drawn again; with mean > 0 at least half are kept."""
    draws = rng.normal(mean, std, size)
    while (refused := draws <= 0).any():
        draws[refused] = rng.normal(mean, std, int(refused.sum()))
    return draws


def draw_dirichlet_counts(
    class_sizes: NDArray[np.int64],
    clients: int,
    alpha1: float,
    alpha2: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Likewise, with uneven sizes and uneven classes."""
    client_prior = np.full(clients, 1 / clients)  # p_1
    class_prior = class_sizes / class_sizes.sum()  # p_2
    client_weights = rng.dirichlet(alpha1 * client_prior)
    class_weights = rng.dirichlet(alpha2 * class_prior, size=clients)
    weights = client_weights[:, None] * class_weights
    if not np.isfinite(weights).all():
        raise SettingsError(
            f"alpha1 = {alpha1:g} and alpha2 = {alpha2:g} give no usable draw: a concentration "
            "is too small or too large for its Dirichlet law; values around 0.01 to 1000 work"
        )
    unclaimed = weights.sum(axis=0) == 0
    weights[:, unclaimed] = client_weights[:, None]
    columns = [apportion(weights[:, c], int(size)) for c, size in enumerate(class_sizes)]
    counts = np.stack(columns, axis=1)
    fill_empty_rows(counts, class_weights > 0)
    return counts


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
