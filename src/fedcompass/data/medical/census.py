"""What is there of a medical dataset, center by center, beside what was published."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcompass.data.dataset import Dataset
from fedcompass.data.medical.published import MedicalSource

__all__ = ["CenterCensus", "census"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CenterCensus:
    """One center's samples.

    train, test: how many are there; 0 if the center is missing.
    published: training and test samples in FLamby, None if nothing is published.
    train_labels, test_labels: samples of each label; empty for masks.
    """

    number: int
    name: str
    train: int
    test: int
    published: tuple[int, int] | None
    train_labels: tuple[int, ...]
    test_labels: tuple[int, ...]


def census(dataset: Dataset, source: MedicalSource) -> list[CenterCensus]:
    """Every published center, whether it is there or not."""
    train = _by_center(dataset.train_targets, dataset.train_centers, source)
    test = _by_center(dataset.test_targets, dataset.test_centers, source)
    published: list[tuple[int, int] | None] = [None] * len(source.centers)
    if source.train:
        published = list(zip(source.train, source.test, strict=True))
    return [
        CenterCensus(
            number=number,
            name=name,
            train=train[number][0],
            test=test[number][0],
            published=published[number],
            train_labels=train[number][1],
            test_labels=test[number][1],
        )
        for number, name in enumerate(source.centers)
    ]


def _by_center(
    targets: Tensor, centers: Tensor | None, source: MedicalSource
) -> list[tuple[int, tuple[int, ...]]]:
    """Each center's samples, and how many of each label."""
    assert centers is not None
    labels = targets[:, 0].long() if targets.ndim == 2 else targets  # (event, time): the event
    counts = []
    for number in range(len(source.centers)):
        own = labels[centers == number]
        by_label = own.bincount(minlength=len(source.labels)) if source.labels else torch.empty(0)
        counts.append((len(own), tuple(by_label.long().tolist())))
    return counts
