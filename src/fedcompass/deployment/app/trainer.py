"""What a site brings to a federation: its data, and how one local step is done."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset

from fedcompass.errors import DataError, SettingsError
from fedcompass.settings.training import Sampling
from fedcompass.training.device import check_device
from fedcompass.training.problem import Augment, Loss, Samples, Transform, checked_loss
from fedcompass.vocabulary import Seconds

__all__ = ["MakeOptimizer", "Site", "SiteData", "Trainer"]

MakeOptimizer: TypeAlias = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
"""Makes the optimizer of one local round, such as `partial(torch.optim.Adam, lr=0.003)`."""

SiteData: TypeAlias = Samples | Dataset[Any] | DataLoader[Any]
"""Tensors; a map-style or iterable `Dataset`; or a `DataLoader`, for its worker processes."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a trainer runs: what `trainer(site)` in a user's app.py is given.

    name: the site's own name.
    data: the folder with the site's data; None if it did not name one.
    device: what torch calls it, such as "cpu" or "cuda:0".
    settings: the site's own settings, from its site.toml.
    state: the folder with what the site's own process keeps; None outside `fedcompass deploy`.
    """

    name: str
    data: Path | None = None
    device: str = "cpu"
    settings: Mapping[str, Any] = field(default_factory=dict)
    state: Path | None = None

    def check_device(self) -> None:
        """Refuse a device that is not on this machine.

        Raises:
            SettingsError: it is none.
        """
        check_device(self.device, "correct device in site.toml; allowed: cpu, or one that is here")


@dataclass(kw_only=True)
class Trainer:
    """How a site trains; derive from it and override `train_step` for anything unusual.

    data: what to train on. Tensors and map-style datasets are drawn from as `sampling` says; an
        iterable dataset or a loader goes on where the last round stopped, and starts again at its
        end.
    optimizer: makes a fresh optimizer for every local round.
    loss: (outputs, targets) -> the batch's mean loss.
    batch_size: rows in a batch; a DataLoader has its own.
    sampling: "epochs" (the default): batches are taken from shuffled passes over the data, which go
        on from task to task, in an order that seed and site decide; "rounds": each task begins new
        passes; "replacement": every batch is drawn from all samples.
    transform: prepares a batch's inputs; None leaves them.
    augment: varies prepared inputs, drawing from its generator alone; None leaves them.
    samples: how many samples the site counts for; to be given where the data cannot tell.
    max_seconds: a task that takes longer is stopped early and counts with the steps it has done.
    seconds_per_step: a step that is faster waits, so that the pace is this one: to leave a shared
        machine to others, or to try a federation of unequal sites on one machine.
    seed: selects the random streams.
    """

    data: SiteData
    optimizer: MakeOptimizer
    loss: Loss = functional.cross_entropy
    batch_size: int = 64
    sampling: Sampling | None = None
    transform: Transform | None = None
    augment: Augment | None = None
    samples: int | None = None
    max_seconds: Seconds | None = None
    seconds_per_step: Seconds = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise SettingsError(f"batch_size is {self.batch_size}; allowed: at least 1")
        if self.sampling not in (None, *get_args(Sampling)):
            raise SettingsError(
                f"sampling is {self.sampling!r}; allowed: {', '.join(get_args(Sampling))}"
            )
        if self.sampling is not None and isinstance(self.data, DataLoader | IterableDataset):
            raise SettingsError(
                f"sampling is {self.sampling!r}, and data is a {type(self.data).__name__}, which "
                "has its own order; leave sampling out, or give tensors or a map-style Dataset"
            )
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise SettingsError(f"max_seconds is {self.max_seconds}; allowed: above 0, or None")
        if not 0 <= self.seconds_per_step < inf:
            raise SettingsError(f"seconds_per_step is {self.seconds_per_step}; allowed: 0 or above")
        if not callable(self.optimizer):
            raise SettingsError(
                f"optimizer is a {type(self.optimizer).__name__}; give a function of the "
                "parameters, such as functools.partial(torch.optim.Adam, lr=0.003)"
            )
        self.samples = self._counted()

    def train_step(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batch: Any,
        generator: torch.Generator,
    ) -> Tensor:
        """Do one local step on one batch and return its loss, which must be finite."""
        optimizer.zero_grad(set_to_none=True)
        loss = self.loss_on(model, batch, generator)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    def loss_on(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor:
        """The mean loss of a batch, whose inputs are prepared and varied.

        Raises:
            SettingsError: the loss is not one number with a gradient.
        """
        inputs, targets = batch
        inputs = self.prepared(inputs)
        if self.augment is not None:
            inputs = self.augment(inputs, generator)
        return checked_loss(self.loss, self.loss(model(inputs), targets), trains=True)

    def prepared(self, inputs: Tensor) -> Tensor:
        """Inputs as the model takes them."""
        return inputs if self.transform is None else self.transform(inputs)

    def should_stop(self) -> bool:
        """Whether to stop now and send what there is; asked after every step."""
        return False

    def sample_count(self) -> int:
        """How many samples the site counts for, at least 1."""
        assert self.samples is not None  # since __post_init__
        return self.samples

    def _counted(self) -> int:
        source = self.data.dataset if isinstance(self.data, DataLoader) else self.data
        count = self.samples
        if count is None:
            try:
                count = len(source)  # type: ignore[arg-type]
            except TypeError:
                raise DataError(
                    f"a {type(source).__name__} does not say how many samples it has; "
                    "give Trainer(samples=...)"
                ) from None
        if count < 1:
            raise DataError(f"this site has {count} samples; it needs at least 1 to train")
        return count
