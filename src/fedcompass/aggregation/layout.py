"""A model as three flat vectors, and the layout that says which tensor lies where."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from fedcompass.errors import LayoutMismatch

__all__ = ["FlatState", "Layout", "Segment", "TensorSpec", "frozen_of"]

Segment: TypeAlias = Literal["trainable", "averaged", "counted"]
"""How a tensor travels: trained parameters; float buffers (BatchNorm); integer buffers."""

SEGMENTS: tuple[Segment, ...] = ("trainable", "averaged", "counted")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One named tensor of a model: its shape, dtype and the segment it lies in."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    segment: Segment

    def __str__(self) -> str:
        return f"{self.name} {str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


@dataclass(slots=True)
class FlatState:
    """A model, an update or a buffer: one flat vector per segment, all on one device.

    trainable: parameters (or their change), in the widest float type of the model.
    averaged: float buffers, always as values, never as changes.
    counted: integer buffers as int64.
    """

    trainable: Tensor
    averaged: Tensor
    counted: Tensor

    def clone(self) -> "FlatState":
        """Copy all three vectors."""
        return FlatState(self.trainable.clone(), self.averaged.clone(), self.counted.clone())

    def copy_(self, other: "FlatState") -> None:
        """Overwrite all three vectors in place."""
        self.trainable.copy_(other.trainable)
        self.averaged.copy_(other.averaged)
        self.counted.copy_(other.counted)

    def to(self, device: torch.device | str) -> "FlatState":
        """The same state on another device (itself if it is there already)."""
        return FlatState(
            self.trainable.to(device), self.averaged.to(device), self.counted.to(device)
        )

    def tensors(self) -> dict[Segment, Tensor]:
        """The three vectors by the name of their segment."""
        return {
            "trainable": self.trainable,
            "averaged": self.averaged,
            "counted": self.counted,
        }

    @property
    def nbytes(self) -> int:
        """Size of all three vectors in memory."""
        return sum(vector.nbytes for vector in self.tensors().values())


@dataclass(frozen=True)
class Layout:
    """Names, shapes and dtypes of a model's tensors, in order; equal layouts hold equal models."""

    specs: tuple[TensorSpec, ...]

    @classmethod
    def of(cls, module: nn.Module) -> "Layout":
        """Read the layout off a module: parameters that train, and buffers that are saved.

        A frozen parameter (`requires_grad=False`) has no place in it and never travels: everybody
        has it from making the model.
        """
        named = module.named_parameters(remove_duplicate=False)  # tied ones under every name
        trains = {name: parameter.requires_grad for name, parameter in named}
        return cls(
            tuple(
                TensorSpec(name, tuple(t.shape), t.dtype, _segment(t, name in trains))
                for name, t in module.state_dict().items()
                if trains.get(name, True)
            )
        )

    @cached_property
    def dtypes(self) -> dict[Segment, torch.dtype]:
        """The dtype of each flat vector."""
        return {
            "trainable": self._widest("trainable"),
            "averaged": self._widest("averaged"),
            "counted": torch.int64,
        }

    @cached_property
    def sizes(self) -> dict[Segment, int]:
        """The length of each flat vector."""
        return {
            segment: sum(prod(s.shape) for s in self.specs if s.segment == segment)
            for segment in SEGMENTS
        }

    @cached_property
    def variances(self) -> Tensor:
        """Where the variances of batch norm lie in the averaged vector."""
        places, start = [torch.empty(0, dtype=torch.int64)], 0
        for spec in self.specs:
            if spec.segment == "averaged":
                end = start + prod(spec.shape)
                if spec.name.rpartition(".")[2] == "running_var":
                    places.append(torch.arange(start, end))
                start = end
        return torch.cat(places)

    def _widest(self, segment: Segment) -> torch.dtype:
        widest = torch.float32
        for spec in self.specs:
            if spec.segment == segment:
                widest = torch.promote_types(widest, spec.dtype)
        return widest

    def empty(self, device: torch.device | str = "cpu") -> FlatState:
        """Unwritten vectors of the right lengths and dtypes."""
        return FlatState(*(self._vector(s, device) for s in SEGMENTS))

    def zeros(self, device: torch.device | str = "cpu") -> FlatState:
        """Vectors of zeros of the right lengths and dtypes."""
        return FlatState(*(self._vector(s, device).zero_() for s in SEGMENTS))

    def _vector(self, segment: Segment, device: torch.device | str) -> Tensor:
        return torch.empty(self.sizes[segment], dtype=self.dtypes[segment], device=device)

    def views(self, state: FlatState) -> Iterator[tuple[TensorSpec, Tensor]]:
        """Each tensor's spec with its shaped slice of the flat vectors; a view, so writable."""
        offsets = dict.fromkeys(SEGMENTS, 0)
        vectors = state.tensors()
        for spec in self.specs:
            start = offsets[spec.segment]
            offsets[spec.segment] = end = start + prod(spec.shape)
            yield spec, vectors[spec.segment][start:end].view(spec.shape)

    def flatten(
        self, tensors: Mapping[str, Tensor], device: torch.device | str = "cpu"
    ) -> FlatState:
        """Copy named tensors into flat vectors.

        Raises:
            LayoutMismatch: a name is missing or unknown, or a shape or dtype differs.
        """
        self.check(tensors)
        state = self.empty(device)
        with torch.no_grad():
            for spec, view in self.views(state):
                view.copy_(tensors[spec.name])
        return state

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Compare names, shapes and dtypes; change nothing.

        Raises:
            LayoutMismatch: naming the first tensor that differs.
        """
        expected = {spec.name: spec for spec in self.specs}
        for name, tensor in tensors.items():
            if name not in expected:
                raise LayoutMismatch(f"tensor {name!r} is not part of the model")
            spec = expected.pop(name)
            got = TensorSpec(name, tuple(tensor.shape), tensor.dtype, spec.segment)
            if got != spec:
                raise LayoutMismatch(f"tensor is {got}, the model has {spec}")
        if expected:
            raise LayoutMismatch(f"tensor {next(iter(expected))!r} is missing")

    def unflatten(self, state: FlatState) -> dict[str, Tensor]:
        """Named tensors of the model's own shapes and dtypes (views where the dtype allows)."""
        return {spec.name: view.to(spec.dtype) for spec, view in self.views(state)}

    def state_of(self, module: nn.Module, device: torch.device | str = "cpu") -> FlatState:
        """A module's present values as flat vectors, without its frozen parameters."""
        frozen = frozen_of(module)
        held = module.state_dict()
        return self.flatten({k: t for k, t in held.items() if k not in frozen}, device)

    def load(self, module: nn.Module, state: FlatState) -> None:
        """Write flat vectors into a module in place."""
        with torch.no_grad():
            tensors = module.state_dict()
            for spec, view in self.views(state):
                tensors[spec.name].copy_(view)


def frozen_of(module: nn.Module) -> dict[str, Tensor]:
    """The parameters that do not train, by name; a layout does not have them."""
    named = module.named_parameters(remove_duplicate=False)
    return {name: p.detach() for name, p in named if not p.requires_grad}


def _segment(tensor: Tensor, trained: bool) -> Segment:
    if trained:
        return "trainable"
    return "averaged" if tensor.dtype.is_floating_point else "counted"
