import pytest
import torch
from torch import Tensor, nn

from fedcompass.errors import SettingsError
from fedcompass.models import NAMES, build, build_seeded
from fedcompass.models.resnet import ResidualBlock

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
STANDARD = (
    nn.Conv2d,
    nn.BatchNorm2d,
    nn.ReLU,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.Linear,
    nn.Flatten,
    nn.Identity,
)


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def layer_table(
    network: nn.Module, shape: tuple[int, ...]
) -> list[tuple[str, tuple[int, ...], int]]:
    """Name, output shape and parameters of each layer of a Sequential, as in the paper's tables."""
    assert isinstance(network, nn.Sequential)
    rows, values = [], torch.zeros(2, *shape)
    for name, layer in network.named_children():
        values = layer(values)
        rows.append((name, tuple(values.shape[1:]), parameters(layer)))
    return rows


def test_the_mnist_cnn_is_the_papers_table() -> None:
    network = build("mnist_cnn", input_shape=MNIST, classes=10)
    assert layer_table(network, MNIST) == [
        ("conv1", (32, 24, 24), 832),
        ("relu1", (32, 24, 24), 0),
        ("pool1", (32, 12, 12), 0),
        ("conv2", (64, 8, 8), 51_264),
        ("relu2", (64, 8, 8), 0),
        ("pool2", (64, 4, 4), 0),
        ("flatten", (1024,), 0),
        ("fc1", (512,), 524_800),
        ("relu3", (512,), 0),
        ("fc2", (10,), 5_130),
    ]
    assert parameters(network) == 582_026


def test_the_resnet_is_the_papers_table() -> None:
    network = build("resnet18", input_shape=CIFAR, classes=10)
    assert layer_table(network, CIFAR) == [
        ("conv1", (64, 32, 32), 1_728),
        ("bn1", (64, 32, 32), 128),
        ("relu1", (64, 32, 32), 0),
        ("block1_1", (64, 32, 32), 73_984),
        ("block1_2", (64, 32, 32), 73_984),
        ("block2_1", (128, 16, 16), 230_144),
        ("block2_2", (128, 16, 16), 295_424),
        ("block3_1", (256, 8, 8), 919_040),
        ("block3_2", (256, 8, 8), 1_180_672),
        ("block4_1", (512, 4, 4), 3_673_088),
        ("block4_2", (512, 4, 4), 4_720_640),
        ("pool", (512, 1, 1), 0),
        ("flatten", (512,), 0),
        ("fc", (10,), 5_130),
    ]
    assert parameters(network) == 11_173_962


def test_a_residual_block_adds_its_input_before_the_last_relu() -> None:
    block = ResidualBlock(2, 2, stride=1).eval()
    for parameter in (block.conv1.weight, block.conv2.weight):
        nn.init.zeros_(parameter)
    values = torch.tensor([[[[-1.0]], [[2.0]]]])
    assert torch.equal(block(values), values.relu())
    assert isinstance(block.shortcut, nn.Identity)


@pytest.mark.parametrize(("planes", "stride"), [(2, 2), (4, 1), (4, 2)])
def test_the_shortcut_is_a_convolution_where_planes_or_stride_differ(
    planes: int, stride: int
) -> None:
    block = ResidualBlock(2, planes, stride)
    assert isinstance(block.shortcut, nn.Sequential)
    assert block(torch.zeros(2, 2, 8, 8)).shape == (2, planes, 8 // stride, 8 // stride)


def test_the_mlp_reads_inputs_of_any_shape() -> None:
    assert parameters(build("mlp", input_shape=MNIST, classes=10)) == 50_890
    assert build("mlp", input_shape=(13,), classes=2)(torch.zeros(3, 13)).shape == (3, 2)


@pytest.mark.parametrize("name", NAMES)
def test_networks_are_made_of_standard_layers_and_residual_blocks(name: str) -> None:
    network = build(name, input_shape=CIFAR, classes=7)
    leaves = [module for module in network.modules() if not list(module.children())]
    assert all(isinstance(leaf, STANDARD) for leaf in leaves)
    assert network(torch.zeros(2, *CIFAR)).shape == (2, 7)


@pytest.mark.parametrize("name", NAMES)
def test_networks_fit_other_image_sizes(name: str) -> None:
    for shape in ((1, 28, 28), (3, 64, 48), (1, 17, 16)):
        assert build(name, input_shape=shape, classes=4)(torch.zeros(2, *shape)).shape == (2, 4)


@pytest.mark.parametrize("name", ["mnist_cnn", "resnet18"])
def test_inputs_that_are_no_images_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"model '{name}' cannot read inputs of shape \(13,\)"):
        build(name, input_shape=(13,), classes=2)
    with pytest.raises(SettingsError, match="at least 16 pixels a side"):
        build("mnist_cnn", input_shape=(1, 15, 20), classes=2)


def flat(network: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def test_a_seed_gives_the_same_network_bit_for_bit_and_disturbs_no_random_state() -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    first = flat(build_seeded("mnist_cnn", 7, input_shape=MNIST, classes=10))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(456)
    again = flat(build_seeded("mnist_cnn", 7, input_shape=MNIST, classes=10))
    other = flat(build_seeded("mnist_cnn", 8, input_shape=MNIST, classes=10))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_an_unknown_name_lists_the_known_ones_and_the_way_to_your_own() -> None:
    with pytest.raises(SettingsError) as caught:
        build("resnet", input_shape=CIFAR, classes=10)
    assert str(caught.value) == (
        "fedcompass has no model 'resnet' (did you mean 'resnet18'?); "
        "it has: mnist_cnn, resnet18, mlp, linear, unet3d, efficientnet_b0, quick_efficientnet_b0; "
        "your own is named package.module:name or FILE.py:name"
    )
