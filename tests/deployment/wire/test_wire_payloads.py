"""Payloads: a model's bytes without anything to parse."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.deployment.wire.payloads import (
    layout_digest,
    payload_bytes,
    payload_pieces,
    read_payload,
)
from fedcompass.errors import LayoutMismatch


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(4, 3).double())


LAYOUT = Layout.of(network())
START = LAYOUT.state_of(network())


def moved(state: FlatState, by: float) -> FlatState:
    end = state.clone()
    end.trainable += by * torch.randn(
        end.trainable.shape, generator=torch.Generator().manual_seed(1)
    )
    end.averaged += 1
    end.counted += 7
    return end


def written(path: Path, form: str, state: FlatState) -> Path:
    path.write_bytes(b"".join(payload_pieces(LAYOUT, form, state, START)))
    return path


def test_a_model_travels_to_the_bit(tmp_path: Path) -> None:
    end = moved(START, 0.1)
    end = LAYOUT.flatten(LAYOUT.unflatten(end))  # rounded to the tensors' own dtypes
    path = written(tmp_path / "payload", "model", end)
    assert path.stat().st_size == payload_bytes(LAYOUT, "model")
    back = read_payload(path, LAYOUT, "model", START)
    for name, vector in back.tensors().items():
        assert torch.equal(vector, end.tensors()[name])


def test_a_change_in_bfloat16_is_near_however_small_it_is_and_buffers_are_exact(
    tmp_path: Path,
) -> None:
    end = moved(START, 1e-6)
    path = written(tmp_path / "payload", "change-bfloat16", end)
    assert path.stat().st_size < 0.6 * payload_bytes(LAYOUT, "model")
    back = read_payload(path, LAYOUT, "change-bfloat16", START)
    change, told = end.trainable - START.trainable, back.trainable - START.trainable
    assert torch.allclose(told, change, rtol=2**-8, atol=1e-12)
    assert torch.equal(back.averaged, end.averaged)
    assert torch.equal(back.counted, end.counted)


def test_a_change_that_is_not_finite_stays_so(tmp_path: Path) -> None:
    end = START.clone()
    end.trainable[0] = torch.nan
    path = written(tmp_path / "payload", "change-bfloat16", end)
    assert read_payload(path, LAYOUT, "change-bfloat16", START).trainable[0].isnan()


@given(length=st.integers(0, 1000), form=st.sampled_from(["model", "change-bfloat16"]))
def test_a_payload_of_another_length_is_refused(
    tmp_path_factory: pytest.TempPathFactory, length: int, form: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "payload"
    path.write_bytes(bytes(length))
    if length == payload_bytes(LAYOUT, form):
        read_payload(path, LAYOUT, form, START)
    else:
        with pytest.raises(LayoutMismatch, match=f"the payload has {length} bytes"):
            read_payload(path, LAYOUT, form, START)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(LayoutMismatch, match="form is 'zip'; allowed: model, change-bfloat16"):
        payload_bytes(LAYOUT, "zip")


def test_layouts_differ_by_names_shapes_dtypes_and_what_is_trained() -> None:
    def one(name: str = "a", size: int = 2, dtype: torch.dtype = torch.float32) -> Layout:
        return Layout.of(nn.ParameterDict({name: torch.zeros(size, dtype=dtype)}))

    frozen = nn.ParameterDict({"a": nn.Parameter(torch.zeros(2), requires_grad=False)})
    layouts = [one(), one("b"), one(size=3), one(dtype=torch.float64), Layout.of(frozen)]
    assert len({layout_digest(layout) for layout in layouts}) == 5
    assert layout_digest(one()) == layout_digest(one())
