"""Models as Flower's arrays: read by what the model has, never by what a peer says."""

import io

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.errors import LayoutMismatch
from fedcompass.flower.records import RecordPayload, number, record_of


class Everything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("halves", torch.ones(2, 2, dtype=torch.float16))
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("nothing", torch.zeros(0, 4))
        self.wide = nn.Parameter(torch.rand(4, dtype=torch.float64))


MODULE = Everything()
LAYOUT = Layout.of(MODULE)
STATE = LAYOUT.state_of(MODULE)
RECORD = record_of(LAYOUT, STATE)
WEIGHT = LAYOUT.unflatten(STATE)["layer.weight"].numpy()


def npy(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], **options: bool) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def read(*records: dict[str, Array]) -> FlatState:
    content = RecordDict({f"r{i}": ArrayRecord(record) for i, record in enumerate(records)})
    return RecordPayload(content).state(LAYOUT, STATE)


def weight(data: bytes) -> dict[str, Array]:
    """All arrays, with these bytes as one of them."""
    array = Array(dtype="float32", shape=(2, 3), stype="numpy.ndarray", data=data)
    return {**RECORD, "layer.weight": array}


def test_a_model_comes_back_bit_by_bit() -> None:
    for ours, theirs in zip(
        STATE.tensors().values(), read(dict(RECORD)).tensors().values(), strict=True
    ):
        assert torch.equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_it_is_what_a_client_of_flower_sends_and_reads() -> None:
    theirs = ArrayRecord(MODULE.state_dict())
    assert {name: array.data for name, array in theirs.items()} == {
        name: array.data for name, array in RECORD.items()
    }
    Everything().load_state_dict(RECORD.to_torch_state_dict())


def test_the_order_and_the_records_of_names_do_not_matter() -> None:
    names = list(RECORD)
    read({name: RECORD[name] for name in names[3:]}, {name: RECORD[name] for name in names[:3]})


def test_an_array_in_fortran_order_is_read_right() -> None:
    decoded = read(weight(npy(np.asfortranarray(WEIGHT))))
    assert torch.equal(decoded.trainable, STATE.trainable)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(10**6),
        bytes(152),
        npy(np.zeros(6, np.float32)),
        npy(np.zeros((3, 2), np.float32)),
        npy(np.zeros((2, 3), np.int32)),
        npy(np.zeros((2, 3), ">f4")),
        npy(np.zeros((2, 3), np.float32)) + b"x",
        npy(np.full((2, 3), None), allow_pickle=True),
    ],
)
def test_an_array_that_is_not_the_models_is_refused(data: bytes) -> None:
    told = rf"array 'layer\.weight' is float32\[2, 3\] in {len(data)} bytes of numpy\.ndarray, the"
    with pytest.raises(LayoutMismatch, match=told):
        read(weight(data))


def test_missing_foreign_and_repeated_names_are_refused() -> None:
    without = {name: array for name, array in RECORD.items() if name != "layer.bias"}
    with pytest.raises(LayoutMismatch, match=r"'layer\.bias' is missing"):
        read(without)
    with pytest.raises(LayoutMismatch, match="'x' is not part of the model"):
        read({**RECORD, "x": RECORD["layer.bias"]})
    with pytest.raises(LayoutMismatch, match=r"'layer\.bias' came twice"):
        read(dict(RECORD), {"layer.bias": RECORD["layer.bias"]})


def test_a_dtype_numpy_does_not_know_is_told_when_it_is_sent() -> None:
    layout = Layout.of(nn.Linear(2, 2).to(torch.bfloat16))
    with pytest.raises(LayoutMismatch, match=r"bfloat16.*cannot travel"):
        record_of(layout, layout.zeros())


def test_a_payload_says_its_size() -> None:
    content = RecordDict({"arrays": RECORD})
    assert RecordPayload(content).size == sum(len(array.data) for array in RECORD.values())


@given(st.data())
def test_no_bytes_whatever_do_more_than_be_refused(data: st.DataObject) -> None:
    good = RECORD["layer.weight"].data
    position = data.draw(st.integers(0, len(good) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=40))
    changed = (good[:position] + patch + good[position + len(patch) :])[: len(good)]
    try:
        read(weight(changed))
    except LayoutMismatch as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_a_number_beyond_all_floats_is_none() -> None:
    assert number(10**400) is None
