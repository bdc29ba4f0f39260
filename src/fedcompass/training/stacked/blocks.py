"""Many models side by side: one block [capacity, ...] per tensor, clients first.

A block's first rows are a tensor of their own without copying, so a stack whose tasks are sorted
by steps shrinks as they finish.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fedcompass.aggregation.layout import SEGMENTS, FlatState, Layout, Segment

__all__ = ["Blocks", "Matrices", "matrices_of"]


@dataclass(slots=True)
class Matrices:
    """Flat states as rows: one matrix per segment."""

    trainable: Tensor
    averaged: Tensor
    counted: Tensor

    def row(self, number: int) -> FlatState:
        """One state, as views."""
        return FlatState(self.trainable[number], self.averaged[number], self.counted[number])

    def to(self, device: torch.device) -> "Matrices":
        """The same on another device (itself if it is there already)."""
        return Matrices(
            self.trainable.to(device), self.averaged.to(device), self.counted.to(device)
        )


def matrices_of(states: Sequence[FlatState], device: torch.device) -> Matrices:
    """States as rows on a device; one that occurs several times travels once."""
    numbers = {id(state): number for number, state in enumerate(states)}
    places = {number: place for place, number in enumerate(numbers.values())}
    rows = torch.tensor([places[numbers[id(state)]] for state in states], device=device)
    once = [states[number].tensors() for number in numbers.values()]

    def matrix(segment: Segment) -> Tensor:
        stacked = torch.stack([vectors[segment] for vectors in once]).to(device)
        return stacked if len(once) == len(states) else stacked.index_select(0, rows)

    return Matrices(matrix("trainable"), matrix("averaged"), matrix("counted"))


class Blocks:
    """Room for `capacity` models on a device."""

    def __init__(self, layout: Layout, capacity: int, device: torch.device) -> None:
        self._layout = layout
        self.capacity = capacity
        self.tensors = {
            spec.name: torch.zeros(
                (capacity, *spec.shape), dtype=layout.dtypes[spec.segment], device=device
            )
            for spec in layout.specs
        }

    def load(self, matrices: Matrices) -> None:
        """Write models into the first rows."""
        sources = {segment: getattr(matrices, segment) for segment in SEGMENTS}
        ends = dict.fromkeys(SEGMENTS, 0)
        for spec in self._layout.specs:
            source, start = sources[spec.segment], ends[spec.segment]
            ends[spec.segment] = end = start + prod(spec.shape)
            block = self.tensors[spec.name][: len(source)]
            block.copy_(source[:, start:end].view(block.shape))

    def collect(self, models: int) -> Matrices:
        """Copies of the first models."""
        return Matrices(*(self._matrix(segment, models) for segment in SEGMENTS))

    def _matrix(self, segment: Segment, models: int) -> Tensor:
        parts = [
            self.tensors[spec.name][:models].flatten(1)
            if spec.shape
            else self.tensors[spec.name][:models, None]
            for spec in self._layout.specs
            if spec.segment == segment
        ]
        if parts:
            return torch.cat(parts, 1)
        some = next(iter(self.tensors.values()))
        return torch.zeros(models, 0, dtype=self._layout.dtypes[segment], device=some.device)
