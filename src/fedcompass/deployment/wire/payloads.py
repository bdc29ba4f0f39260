"""A model's tensors as the bytes of a payload: raw values in the layout's order, nothing to parse.

Form `model` has the end model in its own dtypes. Form `change-bfloat16` has the change of the
trained tensors since the start in bfloat16 (half the bytes of float32), and buffers as they are.
Both have one length for one layout, so that a payload is right or wrong by its size alone.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import torch

from fedcompass.aggregation.layout import FlatState, Layout, TensorSpec
from fedcompass.errors import LayoutMismatch

__all__ = [
    "Form",
    "PayloadFile",
    "layout_digest",
    "payload_bytes",
    "payload_pieces",
    "read_payload",
]

Form: TypeAlias = Literal["model", "change-bfloat16"]
"""How an answer's tensors are written."""

_FORMS: tuple[Form, ...] = get_args(Form)


@dataclass(frozen=True, slots=True)
class PayloadFile:
    """A payload on this machine's disk, whose SHA-256 was found to be `digest`."""

    path: Path
    form: str
    digest: str


def layout_digest(layout: Layout) -> str:
    """SHA-256 of a layout's names, dtypes and shapes: who has the same one has the same model."""
    lines = "".join(f"{spec} {spec.segment}\n" for spec in layout.specs)
    return hashlib.sha256(lines.encode()).hexdigest()


def payload_bytes(layout: Layout, form: str) -> int:
    """How long a payload of this form is, exactly."""
    return sum(prod(spec.shape) * _dtype(spec, form).itemsize for spec in layout.specs)


def payload_pieces(
    layout: Layout, form: str, state: FlatState, start: FlatState | None = None
) -> Iterator[memoryview]:
    """The bytes of a model, one tensor after the other; a change is told against `start`."""
    told = _change(state, start) if start is not None and _is_change(form) else state
    for spec, tensor in layout.views(told):
        values = tensor.detach().to("cpu", _dtype(spec, form)).contiguous().reshape(-1)
        if values.numel():
            yield values.view(torch.uint8).numpy().data


def read_payload(
    path: Path, layout: Layout, form: str, start: FlatState, size: int | None = None
) -> FlatState:
    """The end model that a payload tells of a task that began with `start`.

    The payload has `size` bytes, where the file has more after it.

    Raises:
        LayoutMismatch: it does not have the length of this model's.
    """
    expected, found = payload_bytes(layout, form), path.stat().st_size if size is None else size
    if found != expected:
        raise LayoutMismatch(f"the payload has {found} bytes; this model's has {expected}")
    state = layout.empty()
    with path.open("rb") as file, torch.no_grad():
        for spec, view in layout.views(state):
            in_place = view.dtype == _dtype(spec, form)
            values = view if in_place else torch.empty(spec.shape, dtype=_dtype(spec, form))
            if values.numel():
                flat = values.reshape(-1).view(torch.uint8).numpy()
                if file.readinto(flat.data) != flat.nbytes:
                    raise LayoutMismatch(f"the payload ends within {spec}")
            if not in_place:
                view.copy_(values)
        if _is_change(form):
            torch.add(start.trainable, state.trainable, out=state.trainable)
    return state


def _change(state: FlatState, start: FlatState) -> FlatState:
    return FlatState(state.trainable - start.trainable, state.averaged, state.counted)


def _is_change(form: str) -> bool:
    return form == "change-bfloat16"


def _dtype(spec: TensorSpec, form: str) -> torch.dtype:
    if form not in _FORMS:
        raise LayoutMismatch(f"form is {form[:40]!r}; allowed: {', '.join(_FORMS)}")
    return torch.bfloat16 if _is_change(form) and spec.segment == "trainable" else spec.dtype
