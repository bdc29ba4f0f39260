"""What is to be learned, and from whose samples: the one thing a user hands to a driver."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcompass.errors import DataError, SettingsError
from fedcompass.own_code import described
from fedcompass.training.streams import RowStream, batch_rows

__all__ = [
    "Augment",
    "Collate",
    "Inputs",
    "Items",
    "Loss",
    "Problem",
    "Samples",
    "Transform",
    "checked_loss",
    "outputs_of",
]

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) -> the batch's mean loss, a scalar."""

Transform: TypeAlias = Callable[[Any], Any]
"""Stored inputs of a batch -> what the model takes, such as uint8 pixels -> normalized floats."""

Augment: TypeAlias = Callable[[Any, torch.Generator], Any]
"""Prepared inputs of a training batch -> a random variation, drawn from the generator alone."""

Inputs: TypeAlias = Tensor | Mapping[str, Tensor]
"""A batch's inputs: a tensor, or several by the name of the model's argument that takes each."""

Collate: TypeAlias = Callable[[list[Any]], tuple[Inputs, Tensor]]
"""Items -> a batch's inputs and targets, as PyTorch's `collate_fn`."""


def outputs_of(module: nn.Module, inputs: Inputs) -> Any:
    """What a model gives for a batch; a dict of tensors is handed over argument by argument.

    Of a Hugging Face model's output, which is an object with several things, it is the logits.
    """
    outputs = module(inputs) if isinstance(inputs, Tensor) else module(**inputs)
    return outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", outputs)


def checked_loss(loss: Loss, value: Any, *, trains: bool) -> Tensor:
    """What a loss gave for a batch, if it is one number as a tensor.

    Args:
        loss: the function, for messages.
        value: what it gave.
        trains: whether it needs a gradient, too.

    Raises:
        SettingsError: naming the loss, what it gave and how to mend it.
    """
    if not isinstance(value, Tensor):
        what, remedy = described(value), "return the tensor itself, without .item() or float()"
    elif value.numel() != 1:
        what, remedy = f"a tensor of shape {list(value.shape)}", "return its .mean()"
    elif trains and not value.requires_grad:
        what = "a tensor without a gradient"
        remedy = "compute it from the outputs with torch alone, without detach() or no_grad()"
    else:
        return value
    raise SettingsError(
        f"loss {_told_as(loss)} returned {what}; allowed: the batch's mean as a scalar tensor with "
        f"a gradient; {remedy}"
    )


def _told_as(function: Any) -> str:
    """A function's name, and its file and line."""
    name = getattr(function, "__name__", type(function).__name__)
    code = getattr(function, "__code__", None)
    where = "" if code is None else f" ({Path(code.co_filename).name}:{code.co_firstlineno})"
    return f"{name}{where}"


@dataclass(frozen=True, slots=True)
class Items:
    """Stored samples of any kind, such as texts of different lengths.

    items: one for each sample.
    collate: makes a batch of some of them.
    """

    items: Sequence[Any]
    collate: Collate

    def __len__(self) -> int:
        return len(self.items)

    def batch(self, rows: Tensor) -> tuple[Inputs, Tensor]:
        """The items of these rows as one batch, on the rows' device.

        Raises:
            DataError: the collate function gave something else.
        """
        made = self.collate([self.items[row] for row in rows.tolist()])
        if not isinstance(made, tuple) or len(made) != 2:
            raise DataError(
                f"the collate function returned {described(made)}; allowed: a pair of inputs (a "
                "tensor, or a dict of tensors) and targets (a tensor)"
            )
        inputs, targets = made
        _check_inputs("the collate function's inputs", inputs)
        _check_tensor("the collate function's targets", targets)
        return _moved(inputs, lambda tensor: tensor.to(rows.device)), targets.to(rows.device)


def _check_tensor(what: str, given: object) -> None:
    if not isinstance(given, Tensor):
        hint = "; torch.from_numpy makes one" if hasattr(given, "__array__") else ""
        raise DataError(f"{what} are {described(given)}; allowed: a torch.Tensor{hint}")


def _check_inputs(what: str, given: object) -> None:
    if isinstance(given, Mapping):
        for name, tensor in given.items():
            _check_tensor(f"{what} {name!r}", tensor)
    elif not isinstance(given, Tensor):
        hint = "; torch.from_numpy makes a tensor" if hasattr(given, "__array__") else ""
        raise DataError(
            f"{what} are {described(given)}; allowed: a torch.Tensor or a dict of them{hint}"
        )


def _moved(inputs: Inputs, move: Callable[[Tensor], Tensor]) -> Inputs:
    if isinstance(inputs, Tensor):
        return move(inputs)
    return {name: move(tensor) for name, tensor in inputs.items()}


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs and targets, or chosen rows of tensors that several clients share.

    inputs: one row per stored sample in a tensor, or in each of several by name; or `Items`.
    targets: one row per stored sample, on the same device. `Items` bring those of a batch along;
        then these are only for splitting the samples by class.
    indices: the stored rows that belong here, int64; None means all of them.
    """

    inputs: Inputs | Items
    targets: Tensor
    indices: Tensor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, Items):
            _check_inputs("inputs", self.inputs)
        _check_tensor("targets", self.targets)
        for count in self._counts():
            if count != len(self.targets):
                raise DataError(
                    f"{count} inputs have {len(self.targets)} targets; give one target for each "
                    "input, in the same order"
                )
        rows = self.indices
        if rows is None:
            return
        _check_tensor("indices", rows)
        if rows.ndim != 1 or rows.dtype != torch.int64:
            raise DataError(f"indices are {rows.dtype} {list(rows.shape)}; give a vector of int64")
        stored = len(self.targets)
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < stored:
            raise DataError(f"indices go from {rows.min()} to {rows.max()} of {stored}")

    def _counts(self) -> list[int]:
        inputs = self.inputs
        return [*map(len, inputs.values())] if isinstance(inputs, Mapping) else [len(inputs)]

    def __len__(self) -> int:
        return len(self.targets if self.indices is None else self.indices)

    @property
    def device(self) -> torch.device:
        """Where batches are made."""
        return self.targets.device

    @property
    def tensor(self) -> Tensor:
        """The inputs, where they are one tensor.

        Raises:
            DataError: they are not.
        """
        if not isinstance(self.inputs, Tensor):
            raise DataError(f"inputs are {described(self.inputs)}, not one tensor")
        return self.inputs

    def batch(self, rows: Tensor) -> tuple[Any, Tensor]:
        """Copies of the given rows' inputs and targets."""
        stored = rows if self.indices is None else self.indices.index_select(0, rows)
        if isinstance(self.inputs, Items):
            return self.inputs.batch(stored)
        chosen = _moved(self.inputs, lambda tensor: tensor.index_select(0, stored))
        return chosen, self.targets.index_select(0, stored)

    def batches(self, stream: RowStream, steps: int, size: int) -> Iterator[tuple[Any, Tensor]]:
        """So many batches of the rows that the stream gives."""
        samples, device = len(self), self.device
        rows = batch_rows(stream, steps=steps, batch_size=size, samples=samples, device=device)
        return map(self.batch, rows)

    def moved(self, move: Callable[[Tensor], Tensor]) -> "Samples":
        """The same samples with each of their tensors where `move` puts it."""
        rows, inputs = self.indices, self.inputs
        placed = inputs if isinstance(inputs, Items) else _moved(inputs, move)
        return Samples(placed, move(self.targets), None if rows is None else move(rows))


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
        if isinstance(self.model, nn.Module) or not callable(self.model):
            raise DataError(
                f"model is {described(self.model)}; allowed: a function that makes a new "
                "torch.nn.Module, or its class"
            )
        if not callable(self.loss):
            raise DataError(f"loss is {described(self.loss)}; allowed: a function")
        for what, samples in self._parts():
            if not isinstance(samples, Samples):
                raise DataError(
                    f"{what} is {described(samples)}; allowed: fedcompass.Samples(inputs, targets)"
                )
        for client, samples in enumerate(self.clients):
            if len(samples) == 0:
                raise DataError(f"client {client} has no samples; leave it out or give it some")
        tests = self.client_tests
        if tests is not None and len(tests) != len(self.clients):
            raise DataError(f"{len(self.clients)} clients have {len(tests)} client_tests")

    def _parts(self) -> Iterator[tuple[str, Any]]:
        yield from ((f"clients[{number}]", part) for number, part in enumerate(self.clients))
        yield "test", self.test
        tests = enumerate(self.client_tests or ())
        yield from ((f"client_tests[{number}]", part) for number, part in tests)

    @classmethod
    def from_tensors(
        cls,
        model: Callable[[], nn.Module],
        *,
        train: tuple[Inputs, Tensor],
        test: tuple[Inputs, Tensor],
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

    def prepared(self, inputs: Any) -> Any:
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
            stored = replace(samples, indices=None).moved(move)
            return replace(stored, indices=None if rows is None else rows.to(device))

        tests = self.client_tests
        return replace(
            self,
            clients=tuple(map(placed, self.clients)),
            test=placed(self.test),
            client_tests=None if tests is None else tuple(map(placed, tests)),
        )
