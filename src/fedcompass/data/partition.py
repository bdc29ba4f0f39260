"""Split training samples among clients: each sample to one client, no client without samples.

The class and dual Dirichlet partitions are the paper's (appendix "Classic Dataset Partition
Strategy"): they decide how many samples of each class a client gets; which ones is a shuffle.
"""

from collections.abc import Sequence
from typing import assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcompass.data.dataset import Dataset
from fedcompass.data.paper_partitions import draw_class_counts, draw_dirichlet_counts
from fedcompass.errors import SettingsError
from fedcompass.settings.data import (
    ClassRange,
    PartitionSettings,
    paper_class_range,
)

__all__ = ["class_counts", "partition", "split_counts"]

_STREAM = 0x70617274  # "part": keeps these draws apart from others made from the same seed


def partition(
    targets: Tensor,
    classes: int,
    clients: int,
    settings: PartitionSettings,
    seed: int,
    centers: Tensor | None = None,
) -> list[Tensor]:
    """The sample indices of each client, ascending; the same seed gives the same partition.

    Args:
        targets: of the training samples; the `iid` and `center` partitions only count them.
        classes: how many classes there are.
        clients: how many clients there are.
        settings: which partition, and its parameters.
        seed: a whole number from 0 up.
        centers: the natural center of each sample, for the `center` partition.

    Raises:
        SettingsError: what is asked for cannot be done with these samples.
    """
    if not 1 <= clients <= len(targets):
        raise SettingsError(
            f"clients is {clients}; allowed: 1 to {len(targets)}, the number of training samples"
        )
    if seed < 0:
        raise SettingsError(f"seed is {seed}; allowed: a whole number at least 0")
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _STREAM])))
    match settings.kind:
        case "iid":
            parts = np.array_split(rng.permutation(len(targets)), clients)
        case "center":
            parts = _by_center(centers, clients, len(targets))
        case "own":
            raise SettingsError(
                "partition.kind is 'own' (--partition), and these data are one dataset, not one "
                "per client; choose 'class', 'dual-dirichlet', 'iid' or 'center'"
            )
        case "class" | "dual-dirichlet":
            parts = _by_class(targets, classes, clients, settings, rng)
        case _:
            assert_never(settings.kind)
    return [torch.from_numpy(np.sort(part)) for part in parts]


def class_counts(parts: Sequence[Tensor], targets: Tensor, classes: int) -> Tensor:
    """How many samples of each class (column) each client (row) has, as int64.

    Raises:
        SettingsError: the samples have no class each.
    """
    if targets.ndim != 1 or targets.dtype.is_floating_point:
        raise SettingsError(
            "this dataset has no class per sample to count; `fedcompass data check` counts others"
        )
    return torch.stack([torch.bincount(targets[part], minlength=classes) for part in parts])


def split_counts(dataset: Dataset, clients: int, settings: PartitionSettings, seed: int) -> Tensor:
    """The `class_counts` of a dataset's partition."""
    targets, classes = dataset.train_targets, dataset.classes
    parts = partition(targets, classes, clients, settings, seed, dataset.train_centers)
    return class_counts(parts, targets, classes)


def _by_center(centers: Tensor | None, clients: int, samples: int) -> list[NDArray[np.int64]]:
    """One client per center, in the order of the centers' numbers."""
    if centers is None:
        raise SettingsError(
            "partition.kind is 'center' (--partition), and this dataset has no natural centers; "
            "choose 'class', 'dual-dirichlet' or 'iid'"
        )
    if len(centers) != samples:
        raise SettingsError(f"there are {len(centers)} centers for {samples} training samples")
    numbers = centers.cpu().numpy()
    present = np.unique(numbers)
    if clients != len(present):
        raise SettingsError(
            f"clients is {clients}; allowed with kind 'center': {len(present)}, "
            "one for each center of the dataset"
        )
    return [np.flatnonzero(numbers == center) for center in present]


def _by_class(
    targets: Tensor,
    classes: int,
    clients: int,
    settings: PartitionSettings,
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    labels = _checked_labels(targets, classes, settings.kind)
    present, sizes = np.unique(labels, return_counts=True)  # a class without samples has no holder
    if settings.kind == "class":
        allowed = _class_range(settings, clients, len(present))
        mean = 10.0 if settings.mean is None else settings.mean
        std = 3.0 if settings.std is None else settings.std
        counts = draw_class_counts(sizes, clients, allowed, mean, std, rng)
    else:
        alpha1 = float(clients) if settings.alpha1 is None else settings.alpha1
        alpha2 = 0.5 if settings.alpha2 is None else settings.alpha2
        counts = draw_dirichlet_counts(sizes, clients, alpha1, alpha2, rng)
    return _deal(labels, present, counts, rng)


def _checked_labels(targets: Tensor, classes: int, kind: str) -> NDArray[np.int64]:
    if targets.ndim != 1 or targets.dtype.is_floating_point:
        raise SettingsError(
            f"partition.kind is {kind!r} (--partition), and this dataset has no class per sample "
            "(its targets are numbers, or none); choose 'iid', or 'center' if it has centers"
        )
    labels: NDArray[np.int64] = targets.cpu().numpy().astype(np.int64)
    if labels.min() < 0 or labels.max() >= classes:
        raise SettingsError(
            f"targets run from {labels.min()} to {labels.max()}; allowed: 0 to {classes - 1}"
        )
    return labels


def _class_range(settings: PartitionSettings, clients: int, classes: int) -> ClassRange:
    """The paper's range where the settings leave it open; a given end may move the other."""
    n_min, n_max = paper_class_range(clients, classes)
    if settings.n_min is not None:
        n_min, n_max = settings.n_min, max(n_max, settings.n_min)
    if settings.n_max is not None:
        n_min, n_max = min(n_min, settings.n_max), settings.n_max
    return ClassRange(n_min, n_max)


def _deal(
    labels: NDArray[np.int64],
    present: NDArray[np.int64],
    counts: NDArray[np.int64],
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """Shuffle each class and hand consecutive runs of it to the clients."""
    hands: list[list[NDArray[np.int64]]] = [[] for _ in counts]
    for column, label in enumerate(present):
        shuffled = rng.permutation(np.flatnonzero(labels == label))
        runs = np.split(shuffled, np.cumsum(counts[:-1, column]))
        for hand, run in zip(hands, runs, strict=True):
            hand.append(run)
    return [np.concatenate(hand) for hand in hands]
