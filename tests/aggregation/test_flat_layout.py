import pytest
import torch
from torch import nn

from fedcompass.aggregation import FlatState, Layout, TensorSpec
from fedcompass.aggregation.layout import frozen_of
from fedcompass.errors import LayoutMismatch


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def test_a_layout_sorts_a_modules_tensors_into_three_segments() -> None:
    layout = Layout.of(small_net())
    assert layout.sizes == {"trainable": 15, "averaged": 6, "counted": 1}
    assert [spec.name for spec in layout.specs if spec.segment == "counted"] == [
        "1.num_batches_tracked"
    ]
    assert str(layout.specs[0]) == "0.weight float32[3, 2]"


def test_a_frozen_parameter_never_travels() -> None:
    net = nn.Linear(2, 3)
    net.bias.requires_grad_(False)
    layout = Layout.of(net)
    assert layout.sizes == {"trainable": 6, "averaged": 0, "counted": 0}
    assert list(layout.unflatten(layout.state_of(net))) == ["weight"]
    assert torch.equal(frozen_of(net)["bias"], net.bias)


def test_equal_modules_have_equal_layouts_and_other_ones_do_not() -> None:
    assert Layout.of(small_net()) == Layout.of(small_net())
    assert Layout.of(small_net()) != Layout.of(nn.Linear(2, 3))


def test_a_module_comes_back_from_its_flat_state_unchanged() -> None:
    net = small_net()
    layout = Layout.of(net)
    net(torch.randn(8, 2))
    state = layout.state_of(net)
    other = small_net()
    layout.load(other, state)
    for name, tensor in net.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
        assert torch.equal(layout.unflatten(state)[name], tensor)


def test_views_write_through_to_the_flat_vectors() -> None:
    layout = Layout.of(nn.Linear(2, 1))
    state = layout.zeros()
    for _, view in layout.views(state):
        view.fill_(2.0)
    assert state.trainable.tolist() == [2.0, 2.0, 2.0]


def test_the_flat_vector_has_the_widest_float_type_and_unflatten_the_models_own() -> None:
    layout = Layout(
        (
            TensorSpec("half", (2,), torch.float16, "trainable"),
            TensorSpec("double", (1,), torch.float64, "trainable"),
        )
    )
    tensors = {
        "half": torch.tensor([1.0, 2.0], dtype=torch.float16),
        "double": torch.tensor([3.0], dtype=torch.float64),
    }
    state = layout.flatten(tensors)
    assert state.trainable.dtype == torch.float64
    assert state.averaged.dtype == torch.float32
    assert layout.unflatten(state)["half"].dtype == torch.float16


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"weight": torch.ones(1, 2)}, "tensor 'bias' is missing"),
        (
            {"weight": torch.ones(2), "bias": torch.ones(1)},
            r"tensor is weight float32\[2\], the model has weight float32\[1, 2\]",
        ),
        (
            {"weight": torch.ones(1, 2).half(), "bias": torch.ones(1)},
            "tensor is weight float16",
        ),
        ({"wait": torch.ones(1, 2)}, "tensor 'wait' is not part of the model"),
    ],
)
def test_flatten_refuses_other_names_shapes_and_dtypes(
    tensors: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(LayoutMismatch, match=message):
        Layout.of(nn.Linear(2, 1)).flatten(tensors)


def test_a_flat_state_copies_moves_and_counts_its_bytes() -> None:
    state = FlatState(torch.ones(3), torch.ones(2), torch.ones(1, dtype=torch.int64))
    copy = state.clone()
    state.trainable.zero_()
    assert copy.trainable.tolist() == [1.0, 1.0, 1.0]
    state.copy_(copy)
    assert state.trainable.tolist() == [1.0, 1.0, 1.0]
    assert state.to("cpu").trainable is state.trainable
    assert state.nbytes == 3 * 4 + 2 * 4 + 8
