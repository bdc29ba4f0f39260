"""Many models side by side: one block [capacity, ...] per tensor, clients first.

A block's first rows are a tensor of their own without copying, so a stack whose tasks are sorted
by steps shrinks as they finish.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from fedcompass.aggregation.layout import SEGMENTS, FlatState, Layout, Segment

__all__ = ["Blocks", "matrices_of", "row_of"]


def matrices_of(states: Sequence[FlatState], device: torch.device) -> FlatState:
    """States as the rows of one, on a device; one that occurs several times travels once."""
    numbers = {id(state): number for number, state in enumerate(states)}
    places = {number: place for place, number in enumerate(numbers.values())}
    rows = torch.tensor([places[numbers[id(state)]] for state in states], device=device)
    once = [states[number].tensors() for number in numbers.values()]

    def matrix(segment: Segment) -> Tensor:
        stacked = torch.stack([vectors[segment] for vectors in once]).to(device)
        return stacked if len(once) == len(states) else stacked.index_select(0, rows)

    return FlatState(matrix("trainable"), matrix("averaged"), matrix("counted"))


def row_of(matrices: FlatState, number: int) -> FlatState:
    """One of the states, as views."""
    return FlatState(*(matrix[number] for matrix in matrices.tensors().values()))


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

    def load(self, matrices: FlatState) -> None:
        """Write models into the first rows."""
        sources = matrices.tensors()
        ends = dict.fromkeys(SEGMENTS, 0)
        for spec in self._layout.specs:
            source, start = sources[spec.segment], ends[spec.segment]
            ends[spec.segment] = end = start + prod(spec.shape)
            block = self.tensors[spec.name][: len(source)]
            block.copy_(source[:, start:end].view(block.shape))

    def collect(self, models: int) -> FlatState:
        """Copies of the first models."""
        return FlatState(*(self._matrix(segment, models) for segment in SEGMENTS))

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
