"""Batches without end from a site's data, whatever kind of data it is."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, default_collate

from fedcompass.deployment.app.trainer import Trainer
from fedcompass.errors import DataError
from fedcompass.training.problem import Samples
from fedcompass.training.streams import batch_indices

__all__ = ["Batches", "batches_of", "on_device"]

_STEPS_DRAWN_AT_ONCE = 256  # bounds the memory of drawn rows, whatever the length of the round


class Batches(Protocol):
    """Where the steps of a local round find their batches."""

    def draw(self, key: int) -> Iterator[Any]:
        """Batches without end on the device; the key selects the random stream."""
        ...


def batches_of(trainer: Trainer, device: torch.device) -> Batches:
    """The batches of a trainer's data; tensors move to the device once, others batch by batch."""
    match trainer.data:
        case Samples() as samples:
            return _TensorBatches(_moved(samples, device), trainer.batch_size, device)
        case DataLoader() as loader:
            return _LoadedBatches(loader, device)
        case IterableDataset() as stream:
            return _LoadedBatches(DataLoader(stream, trainer.batch_size), device)
        case dataset if hasattr(dataset, "__getitem__"):
            return _DrawnBatches(dataset, trainer.batch_size, device)
        case other:
            raise DataError(
                f"data is a {type(other).__name__}; allowed: fedcompass.Samples, a torch Dataset "
                "or a DataLoader"
            )


def on_device(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor in it on the device, whatever it is nested in."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: on_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [on_device(value, device) for value in batch]
    return batch


class _TensorBatches:
    """Rows of tensors that lie on the device."""

    def __init__(self, samples: Samples, batch_size: int, device: torch.device) -> None:
        self._samples, self._batch_size, self._device = samples, batch_size, device

    def draw(self, key: int) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in _rows(key, self._batch_size, len(self._samples), self._device):
            yield self._samples.batch(rows)


class _DrawnBatches:
    """Samples of a map-style dataset, fetched one by one and put together."""

    def __init__(self, dataset: Any, batch_size: int, device: torch.device) -> None:
        self._dataset, self._batch_size, self._device = dataset, batch_size, device

    def draw(self, key: int) -> Iterator[Any]:
        for rows in _rows(key, self._batch_size, len(self._dataset), torch.device("cpu")):
            batch = default_collate([self._dataset[row] for row in rows.tolist()])
            yield on_device(batch, self._device)


class _LoadedBatches:
    """What a loader gives, in its own order, from the start again whenever it ends.

    One pass goes on from round to round: short rounds must not see the same first batches only.
    """

    def __init__(self, loader: DataLoader[Any], device: torch.device) -> None:
        self._loader, self._device = loader, device
        self._pass: Iterator[Any] = iter(())

    def draw(self, key: int) -> Iterator[Any]:
        while True:
            for batch in self._pass:
                yield on_device(batch, self._device)
            self._pass = iter(self._loader)
            try:
                first = next(self._pass)
            except StopIteration:
                raise DataError("the site's data loader gives no batch at all") from None
            yield on_device(first, self._device)


def _rows(key: int, batch_size: int, samples: int, device: torch.device) -> Iterator[Tensor]:
    first = 0
    while True:
        yield from batch_indices(
            key,
            first_step=first,
            steps=_STEPS_DRAWN_AT_ONCE,
            batch_size=batch_size,
            samples=samples,
            device=device,
        )
        first += _STEPS_DRAWN_AT_ONCE


def _moved(samples: Samples, device: torch.device) -> Samples:
    rows = samples.indices
    return Samples(
        samples.inputs.to(device),
        samples.targets.to(device),
        None if rows is None else rows.to(device),
    )
