"""Models as arrays on the wire: numpy's .npy format, read by what the model has, never by pickle.

A peer's word allocates nothing: names, dtypes, shapes and lengths are compared with the model's
layout before a byte is parsed.
"""

import io
import re
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from numpy.lib import format as npy

from fedcompass.aggregation.layout import FlatState, Layout, TensorSpec
from fedcompass.deployment.wire.messages import Arrays, WireArray
from fedcompass.errors import LayoutMismatch

__all__ = ["ArraysPayload", "array_bytes", "decode_arrays", "encode_state", "most_bytes"]

_HEADER = 1024
"""More than any array's header needs: numpy's are 128 bytes up to 6 dimensions or so."""

_PREFIX = re.compile(
    rb"\x93NUMPY(?:\x01\x00(?P<short>..)|\x02\x00(?P<long>....))"
    rb"(?P<text>\{'descr': '(?P<descr>[<>|=]?[a-zA-Z][0-9]{0,3})', "
    rb"'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>(?:[0-9]{1,12}(?:, [0-9]{1,12}){0,31},?)?)\), \} *\n)",
    re.DOTALL,
)
"""Everything before an array's values, as numpy has always written it. Its own reader parses any
Python literal, which is more than we want from a stranger."""

_NUMPY = {
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.bool: "bool",
}


@dataclass(frozen=True, slots=True)
class ArraysPayload:
    """A `Payload` of arrays by name, as Flower's clients send it."""

    arrays: Arrays

    @property
    def size(self) -> int:
        """How many bytes the arrays have together."""
        return sum(len(array.data) for array in self.arrays.values())

    def state(self, layout: Layout, start: FlatState) -> FlatState:  # as Payload
        """The end model.

        Raises:
            LayoutMismatch: names, dtypes, shapes or lengths are not the model's.
        """
        return decode_arrays(self.arrays, layout)


def encode_state(layout: Layout, state: FlatState) -> Arrays:
    """A model as it travels: every tensor in its own dtype and shape.

    Raises:
        LayoutMismatch: a tensor has a dtype numpy does not know, such as bfloat16.
    """
    return {
        spec.name: _encoded(spec, view.to(spec.dtype).detach().cpu())
        for spec, view in layout.views(state)
    }


def decode_arrays(arrays: Arrays, layout: Layout) -> FlatState:
    """The model that came over the wire, as flat vectors of its own.

    Raises:
        LayoutMismatch: names, dtypes, shapes or lengths are not the model's; the first that
            differs is named.
    """
    _check_names(arrays, layout)
    for spec in layout.specs:
        _check_declared(arrays[spec.name], spec)
    state = layout.empty()
    for spec, view in layout.views(state):
        view.copy_(torch.from_numpy(_parsed(arrays[spec.name].data, spec).copy()))
    return state


def most_bytes(layout: Layout) -> int:
    """No message with this model's arrays is longer, headers and names included."""
    return sum(array_bytes(s) + _HEADER + len(s.name.encode()) for s in layout.specs)


def array_bytes(spec: TensorSpec) -> int:
    """The length of a tensor's raw values.

    Raises:
        LayoutMismatch: numpy does not know its dtype.
    """
    return prod(spec.shape) * _dtype(spec).itemsize


def _dtype(spec: TensorSpec) -> "np.dtype[np.generic]":
    if spec.dtype not in _NUMPY:
        raise LayoutMismatch(
            f"tensor {spec} cannot travel; allowed: {', '.join(_NUMPY.values())}. "
            "Keep the model in float32 and cast inside a site's training"
        )
    return np.dtype(_NUMPY[spec.dtype]).newbyteorder("<")


def _encoded(spec: TensorSpec, tensor: torch.Tensor) -> WireArray:
    dtype = _dtype(spec)
    file = io.BytesIO()
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": spec.shape}
    npy.write_array_header_1_0(file, header)
    data = file.getvalue() + tensor.numpy().astype(dtype, copy=False).tobytes()
    return WireArray(dtype=dtype.name, shape=spec.shape, data=data)


def _check_names(arrays: Arrays, layout: Layout) -> None:
    known = {spec.name for spec in layout.specs}
    for name in arrays:
        if name not in known:
            raise LayoutMismatch(f"array {name[:80]!r} is not part of the model")
    for spec in layout.specs:
        if spec.name not in arrays:
            raise LayoutMismatch(f"array {spec.name!r} is missing")


def _check_declared(array: WireArray, spec: TensorSpec) -> None:
    dtype = _dtype(spec)
    if array.dtype != dtype.name or tuple(array.shape) != spec.shape:
        got = f"{str(array.dtype)[:20]}{list(array.shape)[:8]}"
        raise LayoutMismatch(f"array {spec.name!r} is {got}, the model has {spec}")
    expected = array_bytes(spec)
    if not expected < len(array.data) <= expected + _HEADER:
        raise LayoutMismatch(
            f"array {spec.name!r} has {len(array.data)} bytes; {spec} takes {expected} and a header"
        )


def _parsed(data: bytes, spec: TensorSpec) -> "np.ndarray[tuple[int, ...], np.dtype[np.generic]]":
    """The array in .npy bytes whose length was checked; a view of them, copied by the caller."""
    dtype, expected = _dtype(spec), array_bytes(spec)
    header = _PREFIX.fullmatch(data, 0, len(data) - expected)
    length = b"" if header is None else header["short"] or header["long"]
    if header is None or int.from_bytes(length, "little") != len(header["text"]):
        raise LayoutMismatch(f"array {spec.name!r} is not in the .npy format")
    found, shape = header["descr"].decode(), _numbers(header["shape"])
    if shape != spec.shape or found != npy.dtype_to_descr(dtype):
        got = f"{found}{list(shape)[:8]}"
        raise LayoutMismatch(f"array {spec.name!r} holds {got}, the model has {spec}")
    values = np.frombuffer(data, dtype=dtype, offset=len(data) - expected)
    return values.reshape(spec.shape, order="F" if header["fortran"] == b"True" else "C")


def _numbers(shape: bytes) -> tuple[int, ...]:
    return tuple(int(part) for part in shape.split(b",") if part.strip())
