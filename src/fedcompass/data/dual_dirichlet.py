"""The paper's dual Dirichlet partition: uneven sizes, uneven classes (DualDirichletPartition).

What the paper leaves open, settled: whole numbers come from the largest remainder within each
class; a class that underflows to zero in every client is shared in proportion to the clients'
sizes; a client left without any sample gets one from the largest.
"""

import numpy as np
from numpy.typing import NDArray

from fedcompass.data.apportion import apportion, fill_empty_rows
from fedcompass.errors import SettingsError

__all__ = ["draw_dirichlet_counts"]


def draw_dirichlet_counts(
    class_sizes: NDArray[np.int64],
    clients: int,
    alpha1: float,
    alpha2: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """How many samples of each class (column) each client (row) gets; columns sum to the sizes."""
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
