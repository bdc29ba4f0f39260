"""Arrays on the wire are read by what the model has, never by what a peer says."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedcompass.aggregation.layout import Layout
from fedcompass.deployment.wire.arrays import decode_arrays, encode_state, most_bytes
from fedcompass.deployment.wire.messages import WireArray
from fedcompass.errors import LayoutMismatch


class Everything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("halves", torch.ones(2, 2, dtype=torch.float16))
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("nothing", torch.zeros(0, 4))
        self.wide = nn.Parameter(torch.rand(4, dtype=torch.float64))


LAYOUT = Layout.of(Everything())
STATE = LAYOUT.state_of(Everything())
ARRAYS = encode_state(LAYOUT, STATE)


def npy(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], **options: bool) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def test_a_model_comes_back_bit_by_bit() -> None:
    decoded = decode_arrays(ARRAYS, LAYOUT)
    for ours, theirs in zip(STATE.tensors().values(), decoded.tensors().values(), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_the_bytes_are_numpys_own_format() -> None:
    weight = np.load(io.BytesIO(ARRAYS["layer.weight"].data), allow_pickle=False)
    expected = LAYOUT.unflatten(STATE)["layer.weight"].numpy()
    assert np.array_equal(weight, expected)
    assert ARRAYS["layer.weight"].data == npy(expected)
    assert (ARRAYS["layer.weight"].dtype, ARRAYS["layer.weight"].shape) == ("float32", (2, 3))


def test_the_order_of_names_does_not_matter_and_the_bound_holds() -> None:
    decode_arrays(dict(reversed(ARRAYS.items())), LAYOUT)
    assert sum(len(a.data) for a in ARRAYS.values()) < most_bytes(LAYOUT)


def test_an_array_in_fortran_order_is_read_right() -> None:
    weight = LAYOUT.unflatten(STATE)["layer.weight"].numpy()
    data = npy(np.asfortranarray(weight))
    decoded = decode_arrays({**ARRAYS, "layer.weight": WireArray("float32", (2, 3), data)}, LAYOUT)
    assert torch.equal(decoded.trainable, STATE.trainable)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (WireArray("float32", (3, 2), ARRAYS["layer.weight"].data), r"is float32\[3, 2\]"),
        (WireArray("float64", (2, 3), ARRAYS["layer.weight"].data), r"is float64"),
        (WireArray("float32", (2, 3), b""), "has 0 bytes"),
        (WireArray("float32", (2, 3), bytes(10**6)), "has 1000000 bytes; .* takes 24"),
        (WireArray("float32", (2, 3), bytes(152)), "not in the .npy format"),
        (WireArray("float32", (2, 3), npy(np.zeros(6, np.float32))), r"holds <f4\[6\]"),
        (WireArray("float32", (2, 3), npy(np.zeros((2, 3), np.int32))), "holds <i4"),
        (WireArray("float32", (2, 3), npy(np.zeros((2, 3), ">f4"))), "holds >f4"),
        (WireArray("float32", (2, 3), npy(np.zeros((2, 3), np.float32)) + b"x"), "npy|holds"),
        (
            WireArray("float32", (2, 3), npy(np.full((2, 3), None), allow_pickle=True)),
            "npy|holds object|has .* bytes",
        ),
    ],
)
def test_an_array_that_is_not_the_models_is_refused(array: WireArray, message: str) -> None:
    with pytest.raises(LayoutMismatch, match=message):
        decode_arrays({**ARRAYS, "layer.weight": array}, LAYOUT)


def test_missing_and_foreign_names_are_refused() -> None:
    without = {name: array for name, array in ARRAYS.items() if name != "layer.bias"}
    with pytest.raises(LayoutMismatch, match=r"'layer\.bias' is missing"):
        decode_arrays(without, LAYOUT)
    with pytest.raises(LayoutMismatch, match="'x' is not part of the model"):
        decode_arrays({**ARRAYS, "x": ARRAYS["layer.bias"]}, LAYOUT)


def test_a_dtype_numpy_does_not_know_is_told_when_it_is_sent() -> None:
    layout = Layout.of(nn.Linear(2, 2).to(torch.bfloat16))
    with pytest.raises(LayoutMismatch, match=r"bfloat16.*cannot travel"):
        encode_state(layout, layout.zeros())


@given(st.data())
def test_no_bytes_whatever_do_more_than_be_refused(data: st.DataObject) -> None:
    good = ARRAYS["layer.weight"].data
    position = data.draw(st.integers(0, len(good) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=40))
    changed = (good[:position] + patch + good[position + len(patch) :])[: len(good)]
    array = replace(ARRAYS["layer.weight"], data=changed)
    try:
        decode_arrays({**ARRAYS, "layer.weight": array}, LAYOUT)
    except LayoutMismatch as error:
        assert "\n" not in str(error)  # noqa: PT017
