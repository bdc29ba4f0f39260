"""One task of a stack, and the rows of the stored samples that its steps read."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcompass.aggregation.layout import FlatState
from fedcompass.settings.aggregation import Payload
from fedcompass.training.problem import Samples
from fedcompass.training.streams import RowStream, TaskRows
from fedcompass.vocabulary import Steps

__all__ = ["RowSource", "StackedTask"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StackedTask:
    """One local round of one client.

    start: the model to start from; tasks with the very same object share its copy.
    samples: the client's, on the trainer's device; all tasks of a stack share the stored tensors.
    stream: where the rows of its batches come from.
    steps: how many batches, exactly.
    payload: what goes into the update's `trainable`.
    rate_scale: factor on the learning rate.
    """

    start: FlatState
    samples: Samples
    stream: RowStream
    steps: Steps
    payload: Payload
    rate_scale: float = 1.0


class RowSource:
    """Draws the batches of a stack's tasks: the rows each task would draw alone."""

    def __init__(self, tasks: Sequence[StackedTask], batch_size: int, device: torch.device) -> None:
        streams = [task.stream for task in tasks]
        self._rows = TaskRows(streams, [len(task.samples) for task in tasks], batch_size, device)
        self._table, self._offsets = _table(tasks, device)

    def draw(self, tasks: int, *, first_step: int, steps: int) -> Tensor:
        """Stored rows for the first so many tasks: int64 [steps, tasks, batch_size]."""
        drawn = self._rows.draw(tasks, first_step=first_step, steps=steps)
        if self._table is not None:
            drawn = self._table[drawn + self._offsets[:tasks, None, None]]
        return drawn.transpose(0, 1).contiguous()


def _table(tasks: Sequence[StackedTask], device: torch.device) -> tuple[Tensor | None, Tensor]:
    """All clients' row numbers in one vector, and where each task's begin; None: all rows."""
    places: dict[int, int] = {}  # by the identity of the clients' row numbers
    pieces: list[Tensor] = []
    offsets, end = [], 0
    if all(task.samples.indices is None for task in tasks):
        return None, torch.zeros(len(tasks), dtype=torch.int64, device=device)
    for task in tasks:
        rows = task.samples.indices
        identity = id(task.samples.inputs) if rows is None else id(rows)
        if identity not in places:
            places[identity] = end
            pieces.append(torch.arange(len(task.samples), device=device) if rows is None else rows)
            end += len(task.samples)
        offsets.append(places[identity])
    return torch.cat(pieces), torch.tensor(offsets, device=device)
