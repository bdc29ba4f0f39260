"""What is there of a medical dataset, center by center, beside what was published."""

from typing import NamedTuple

from torch import Tensor

from fedcompass.data.dataset import Dataset
from fedcompass.data.medical.published import MedicalSource

__all__ = ["CenterCensus", "census"]


class CenterCensus(NamedTuple):
    """One center's training and test samples, in this order.

    sizes: how many are there; 0 if the center is missing.
    published: how many FLamby has; None if nothing is published.
    labels: samples of each label; empty for masks.
    """

    name: str
    sizes: tuple[int, int]
    published: tuple[int, int] | None
    labels: tuple[list[int], list[int]]


def census(dataset: Dataset, source: MedicalSource) -> list[CenterCensus]:
    """Every published center, whether it is there or not."""
    rows = []
    for number, name in enumerate(source.centers):
        train = _of_center(number, dataset.train_targets, dataset.train_centers)
        test = _of_center(number, dataset.test_targets, dataset.test_centers)
        published = (source.train[number], source.test[number]) if source.train else None
        labels = _by_label(train, source), _by_label(test, source)
        rows.append(CenterCensus(name, (len(train), len(test)), published, labels))
    return rows


def _of_center(number: int, targets: Tensor, centers: Tensor | None) -> Tensor:
    assert centers is not None
    own = targets[centers == number]
    return own[:, 0].long() if own.ndim == 2 else own  # (event, time): the event


def _by_label(targets: Tensor, source: MedicalSource) -> list[int]:
    if not source.labels:
        return []
    counts: list[int] = targets.bincount(minlength=len(source.labels)).tolist()
    return counts
