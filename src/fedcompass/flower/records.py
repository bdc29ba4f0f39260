"""Our models and facts as Flower's records, and back.

A peer's word allocates nothing: an answer's arrays must be byte for byte what numpy writes for the
model's dtypes and shapes, values apart. Nothing is parsed.
"""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.lib import format as npy

from fedcompass.aggregation.layout import FlatState, Layout, TensorSpec
from fedcompass.errors import LayoutMismatch

__all__ = [
    "Config",
    "Facts",
    "RecordPayload",
    "content_of",
    "facts_of",
    "number",
    "record_of",
    "whole",
]

Config: TypeAlias = Mapping[str, int | float | str]
"""What a message says besides arrays."""

Facts: TypeAlias = dict[str, int | float | str]
"""What an answer says besides arrays, of whatever kind."""


def content_of(config: Config, arrays: ArrayRecord) -> RecordDict:
    """A message's content under the names that Flower's own strategies use."""
    return RecordDict({"config": ConfigRecord(dict(config)), "arrays": arrays})


def facts_of(content: RecordDict) -> Facts:
    """Metrics and config of a message in one; lists and bytes, which nobody asked for, are left."""
    records: Iterable[ConfigRecord | MetricRecord] = (
        *content.config_records.values(),
        *content.metric_records.values(),
    )
    return {
        key: value
        for record in records
        for key, value in record.items()
        if isinstance(value, (int, float, str))
    }


def whole(value: object) -> int | None:
    """A fact that is a whole number, also one written as 3.0; None: it is something else."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: object) -> float | None:
    """A fact that is a number; None: it is something else, or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def record_of(layout: Layout, state: FlatState) -> ArrayRecord:
    """A model as Flower's clients expect it: every tensor in its own dtype and shape.

    Raises:
        LayoutMismatch: a tensor has a dtype numpy does not know, such as bfloat16.
    """
    return ArrayRecord(
        {
            spec.name: Array(view.detach().cpu().numpy().astype(_dtype(spec)))
            for spec, view in layout.views(state)
        }
    )


@dataclass(frozen=True, slots=True)
class RecordPayload:
    """An `UnreadModel`: the arrays of a client's answer, whatever its records are called."""

    content: RecordDict

    @property
    def size(self) -> int:
        """How many bytes the arrays have together."""
        records = self.content.array_records.values()
        return sum(len(array.data) for record in records for array in record.values())

    @property
    def file(self) -> None:
        """It is in memory."""
        return None

    def state(self, layout: Layout, start: FlatState) -> FlatState:  # as UnreadModel
        """The end model.

        Raises:
            LayoutMismatch: names, dtypes or shapes are not the model's; the first that differs is
                named.
        """
        arrays = self._by_name({spec.name for spec in layout.specs})
        state = layout.empty()
        for spec, view in layout.views(state):
            view.copy_(torch.from_numpy(_values(arrays[spec.name], spec)))
        return state

    def _by_name(self, known: set[str]) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for record in self.content.array_records.values():
            for name, array in record.items():
                if name not in known or name in arrays:
                    problem = "came twice" if name in arrays else "is not part of the model"
                    raise LayoutMismatch(f"array {name[:80]!r} {problem}")
                arrays[name] = array
        for name in sorted(known - set(arrays)):
            raise LayoutMismatch(f"array {name!r} is missing")
        return arrays


def _dtype(spec: TensorSpec) -> "np.dtype[np.generic]":
    try:
        return torch.empty(0, dtype=spec.dtype).numpy().dtype
    except TypeError:
        raise LayoutMismatch(
            f"tensor {spec} cannot travel: numpy has no such dtype. Keep the model in float32 and "
            "cast inside a client's training"
        ) from None


def _values(array: Array, spec: TensorSpec) -> "np.ndarray[tuple[int, ...], np.dtype[np.generic]]":
    """The array in .npy bytes, copied, if they are those of such a tensor."""
    dtype = _dtype(spec)
    for order in ("C", "F"):
        header = _header(dtype, spec.shape, fortran=order == "F")
        size = int(np.prod(spec.shape, dtype=np.int64)) * dtype.itemsize
        if len(array.data) == len(header) + size and array.data.startswith(header):
            values = np.frombuffer(array.data, dtype, offset=len(header))
            return values.reshape(spec.shape, order=order).copy()
    got = f"{array.dtype[:20]}{list(array.shape)[:8]} in {len(array.data)} bytes"
    raise LayoutMismatch(
        f"array {spec.name!r} is {got} of {array.stype[:20]}, the model has {spec}"
    )


def _header(dtype: "np.dtype[np.generic]", shape: tuple[int, ...], *, fortran: bool) -> bytes:
    file = io.BytesIO()
    descr = npy.dtype_to_descr(dtype)
    npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": fortran, "shape": shape})
    return file.getvalue()
