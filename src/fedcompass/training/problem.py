"""What is to be learned, and from whose samples: the one thing a user hands to a driver."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcompass.errors import DataError
from fedcompass.training.streams import batch_rows

__all__ = ["Augment", "Loss", "Problem", "Samples", "Transform"]

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) -> the batch's mean loss, a scalar."""

Transform: TypeAlias = Callable[[Tensor], Tensor]
"""Stored inputs of a batch -> what the model takes, such as uint8 pixels -> normalized floats."""

Augment: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]
"""Prepared inputs of a training batch -> a random variation, drawn from the generator alone."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs and targets, or chosen rows of tensors that several clients share.

    inputs, targets: one row per stored sample, on one device.
    indices: the stored rows that belong here, int64; None means all of them.
    """

    inputs: Tensor
    targets: Tensor
    indices: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise DataError(f"{len(self.inputs)} inputs have {len(self.targets)} targets")
        rows = self.indices
        if rows is None:
            return
        if rows.ndim != 1 or rows.dtype != torch.int64:
            raise DataError(f"indices are {rows.dtype} {list(rows.shape)}; give a vector of int64")
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self.inputs):
            raise DataError(f"indices go from {rows.min()} to {rows.max()} of {len(self.inputs)}")

    def __len__(self) -> int:
        return len(self.inputs if self.indices is None else self.indices)

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of the given rows' inputs and targets."""
        stored = rows if self.indices is None else self.indices.index_select(0, rows)
        return self.inputs.index_select(0, stored), self.targets.index_select(0, stored)

    def batches(self, key: int, steps: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """So many batches, drawn at random with replacement; the key selects the random stream."""
        device = self.inputs.device
        rows = batch_rows(key, steps=steps, batch_size=size, samples=len(self), device=device)
        return map(self.batch, rows)

    def moved(self, move: Callable[[Tensor], Tensor]) -> "Samples":
        """The same samples with each of their tensors where `move` puts it."""
        rows = self.indices
        return Samples(move(self.inputs), move(self.targets), None if rows is None else move(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A model, the clients' training samples and a test set.

    Worker processes receive it by pickle (the tensors through shared memory), so its functions must
    be importable: defined at the top level of a module or script, or a `functools.partial` of such.

    model: makes a new module; called once in each process, with torch's generator seeded alike.
    clients: each client's training samples, by client number; nobody is without samples.
    test: what the global model is measured on; the experiment's `evaluation.metrics` says how.
    client_tests: what it is measured on client by client; None means their training samples.
    loss: mean loss of a batch.
    transform: prepares a batch's inputs, in training and evaluation; None leaves them.
    augment: varies prepared inputs, in training only; None leaves them.
    """

    model: Callable[[], nn.Module]
    clients: Sequence[Samples]
    test: Samples
    client_tests: Sequence[Samples] | None = None
    loss: Loss = functional.cross_entropy
    transform: Transform | None = None
    augment: Augment | None = None

    def __post_init__(self) -> None:
        for client, samples in enumerate(self.clients):
            if len(samples) == 0:
                raise DataError(f"client {client} has no samples; leave it out or give it some")
        tests = self.client_tests
        if tests is not None and len(tests) != len(self.clients):
            raise DataError(f"{len(self.clients)} clients have {len(tests)} client_tests")

    @classmethod
    def from_tensors(
        cls,
        model: Callable[[], nn.Module],
        *,
        train: tuple[Tensor, Tensor],
        test: tuple[Tensor, Tensor],
        parts: Sequence[Tensor],
        loss: Loss = functional.cross_entropy,
        transform: Transform | None = None,
        augment: Augment | None = None,
    ) -> "Problem":
        """A problem from (inputs, targets) and each client's rows of the training tensors."""
        return cls(
            model=model,
            clients=tuple(Samples(*train, torch.as_tensor(part)) for part in parts),
            test=Samples(*test),
            loss=loss,
            transform=transform,
            augment=augment,
        )

    def prepared(self, inputs: Tensor) -> Tensor:
        """Inputs as the model takes them."""
        return inputs if self.transform is None else self.transform(inputs)

    def tests_of_clients(self) -> Sequence[Samples]:
        """What the model is measured on client by client."""
        return self.clients if self.client_tests is None else self.client_tests

    def to(
        self, device: torch.device | str, moved: dict[int, tuple[Tensor, Tensor]] | None = None
    ) -> "Problem":
        """The same problem with its samples on a device; tensors that are shared move once.

        Args:
            device: where to.
            moved: what problems before have moved, by the original's identity, with the original
                (so that the identity stays taken); added to.
        """
        moved = {} if moved is None else moved

        def move(tensor: Tensor) -> Tensor:
            if id(tensor) not in moved:
                moved[id(tensor)] = tensor, tensor.to(device)
            return moved[id(tensor)][1]

        def placed(samples: Samples) -> Samples:
            rows = samples.indices
            return Samples(
                move(samples.inputs),
                move(samples.targets),
                None if rows is None else rows.to(device),
            )

        tests = self.client_tests
        return replace(
            self,
            clients=tuple(map(placed, self.clients)),
            test=placed(self.test),
            client_tests=None if tests is None else tuple(map(placed, tests)),
        )
