"""A round's batches from a site's data, whatever kind of data it is."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, default_collate

from fedcompass.deployment.app.trainer import Trainer
from fedcompass.errors import DataError
from fedcompass.training.local import Draw
from fedcompass.training.problem import Samples
from fedcompass.training.streams import RowStream, batch_rows

__all__ = ["batches_of", "collated"]


def batches_of(trainer: Trainer, device: torch.device) -> Draw:
    """The batches of a trainer's data; tensors move to the device once, others batch by batch."""
    match trainer.data:
        case Samples() as samples:
            here = samples.moved(lambda tensor: tensor.to(device))
            return partial(here.batches, size=trainer.batch_size)
        case DataLoader() as loader:
            return _LoadedBatches(loader, device).draw
        case IterableDataset() as stream:
            return _LoadedBatches(DataLoader(stream, trainer.batch_size), device).draw
        case dataset if hasattr(dataset, "__getitem__"):
            return partial(_drawn, dataset, trainer.batch_size, device)
        case other:
            raise DataError(
                f"data is a {type(other).__name__}; allowed: fedcompass.Samples, a torch Dataset "
                "or a DataLoader"
            )


def collated(dataset: Any, rows: Tensor, device: torch.device) -> Any:
    """Samples of a map-style dataset, fetched one by one and put together."""
    return _on_device(default_collate([dataset[row] for row in rows.tolist()]), device)


def _on_device(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor in it on the device, whatever it is nested in."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: _on_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [_on_device(value, device) for value in batch]
    return batch


def _drawn(
    dataset: Any, batch_size: int, device: torch.device, stream: RowStream, steps: int
) -> Iterator[Any]:
    for rows in batch_rows(stream, steps=steps, batch_size=batch_size, samples=len(dataset)):
        yield collated(dataset, rows, device)


class _LoadedBatches:
    """What a loader gives, in its own order, from the start again whenever it ends.

    One pass goes on from round to round: short rounds must not see the same first batches only.
    """

    def __init__(self, loader: DataLoader[Any], device: torch.device) -> None:
        self._loader, self._device = loader, device
        self._pass: Iterator[Any] = iter(())

    def draw(self, _stream: RowStream, steps: int) -> Iterator[Any]:
        for _ in range(steps):
            yield _on_device(self._next(), self._device)

    def _next(self) -> Any:
        for batch in self._pass:
            return batch
        self._pass = iter(self._loader)
        for batch in self._pass:
            return batch
        raise DataError("the site's data loader gives no batch at all")
