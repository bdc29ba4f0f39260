"""A dataset in memory, and the step from stored bytes to what a network reads."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from fedcompass.errors import DataError
from fedcompass.training.problem import Augment, Loss

__all__ = ["Dataset", "Normalize"]


class Normalize:
    """Turn a stored batch into float32: uint8 NCHW pixels to (pixel / 255 - mean) / std.

    One multiplication and one addition per pixel, on the batch's own device; leading axes beyond
    the batch (a stack of clients) are fine. Float inputs skip the division by 255; an empty `mean`
    only converts to float32.
    """

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        if len(mean) != len(std) or any(value <= 0 for value in std):
            raise DataError(
                f"mean {mean} and std {std} do not fit: one of each per channel, std above 0"
            )
        self.mean, self.std = mean, std
        self._factors: dict[tuple[torch.device, float], tuple[Tensor, Tensor]] = {}

    def __call__(self, batch: Tensor) -> Tensor:
        """The batch as normalized float32; the batch itself is left as it is."""
        if not self.mean:
            return batch.to(torch.float32)
        scale, shift = self._on(batch.device, 255.0 if batch.dtype == torch.uint8 else 1.0)
        # `mul` of a float copy, then in place: one temporary, whatever the batch's dtype.
        return batch.to(torch.float32).mul(scale).add_(shift)

    def _on(self, device: torch.device, full: float) -> tuple[Tensor, Tensor]:
        key = (device, full)
        if key not in self._factors:
            scale = [1.0 / (full * std) for std in self.std]
            shift = [-mean / std for mean, std in zip(self.mean, self.std, strict=True)]
            self._factors[key] = tuple(  # type: ignore[assignment]
                torch.tensor(v, dtype=torch.float32, device=device).view(-1, 1, 1)
                for v in (scale, shift)
            )
        return self._factors[key]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples as stored; images are uint8 NCHW until a batch is normalized.

    train_inputs, test_inputs: one sample per row; uint8 for images, any float for features.
    train_targets, test_targets: one per sample; int64 in 0..classes-1 for classification.
    classes: how many outputs a network for this task has.
    mean, std: per channel, of the training pixels scaled to 0..1; empty for no normalization.
    train_centers, test_centers: the natural center of each sample, for the partition by center.
    loss: what a network for this task is trained with.
    augment: varies training batches, and cuts them to the test inputs' shape.
    remarks: what a reader of results must know, one line each.
    """

    name: str
    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    train_centers: Tensor | None = None
    test_centers: Tensor | None = None
    loss: Loss = functional.cross_entropy
    augment: Augment | None = None
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together.

        Raises:
            DataError: naming the parts and their sizes.
        """
        self._check_lengths("train", self.train_inputs, self.train_targets)
        self._check_lengths("test", self.test_inputs, self.test_targets)
        if self.augment is None and self.train_inputs.shape[1:] != self.test_inputs.shape[1:]:
            raise DataError(
                f"dataset {self.name!r} has training inputs of shape "
                f"{tuple(self.train_inputs.shape[1:])} and test inputs of shape "
                f"{self.input_shape}; make them equal"
            )
        if self.train_centers is not None:
            self._check_lengths("train", self.train_inputs, self.train_centers, "centers")
        if self.test_centers is not None:
            self._check_lengths("test", self.test_inputs, self.test_centers, "centers")
        self._check_classes("train", self.train_targets)
        self._check_classes("test", self.test_targets)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample, as a network's factory takes it."""
        return tuple(self.test_inputs.shape[1:])

    @cached_property
    def normalize(self) -> Normalize:
        """The step from a stored batch to float32."""
        return Normalize(self.mean, self.std)

    def _check_lengths(
        self, part: str, inputs: Tensor, other: Tensor, what: str = "targets"
    ) -> None:
        if len(inputs) != len(other) or len(inputs) == 0:
            raise DataError(
                f"dataset {self.name!r} has {len(inputs)} {part} inputs and {len(other)} {what}; "
                "give one for each input, and at least one input"
            )

    def _check_classes(self, part: str, targets: Tensor) -> None:
        if targets.ndim != 1 or targets.dtype.is_floating_point:
            return  # a segmentation mask or a regression value
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= self.classes:
            raise DataError(
                f"dataset {self.name!r} has {part} targets from {low} to {high}; "
                f"with {self.classes} classes they lie in 0..{self.classes - 1}"
            )
