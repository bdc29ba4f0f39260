from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedcompass.errors import SettingsError
from fedcompass.models import build
from fedcompass.models.networks import MEDICAL_NAMES
from fedcompass.models.weights import build_from, load_weights

IXI = (1, 48, 60, 48)
UNET_LAYERS = {
    "encoder1.conv1": 1 * 8 * 27 + 8,
    "encoder1.act1": 1,
    "encoder1.conv2": 8 * 16 * 27,
    "encoder1.norm2": 32,
    "encoder1.act2": 1,
    "encoder2.conv1": 16 * 16 * 27,
    "encoder2.norm1": 32,
    "encoder2.act1": 1,
    "encoder2.conv2": 16 * 32 * 27,
    "encoder2.norm2": 64,
    "encoder2.act2": 1,
    "bottom.conv1": 32 * 32 * 27,
    "bottom.norm1": 64,
    "bottom.act1": 1,
    "bottom.conv2": 32 * 64 * 27,
    "bottom.norm2": 128,
    "bottom.act2": 1,
    "decoder2.conv1": 96 * 32 * 27,
    "decoder2.norm1": 64,
    "decoder2.act1": 1,
    "decoder2.conv2": 32 * 32 * 27,
    "decoder2.norm2": 64,
    "decoder2.act2": 1,
    "decoder1.conv1": 48 * 16 * 27,
    "decoder1.norm1": 32,
    "decoder1.act1": 1,
    "decoder1.conv2": 16 * 16 * 27,
    "decoder1.norm2": 32,
    "decoder1.act2": 1,
    "classifier": 16 * 2 + 2,
}


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_unet_has_flambys_layers_and_246156_parameters() -> None:
    network = build("unet3d", input_shape=IXI, classes=2)
    layers = {
        name: parameters(layer)
        for name, layer in network.named_modules()
        if not list(layer.children()) and parameters(layer)
    }
    assert layers == UNET_LAYERS
    assert parameters(network) == sum(UNET_LAYERS.values()) == 246_156


def test_the_unet_gives_each_voxel_a_probability_of_each_class() -> None:
    network = build("unet3d", input_shape=(1, 8, 12, 8), classes=2)
    probabilities = network(torch.randn(2, 1, 8, 12, 8))
    assert probabilities.shape == (2, 2, 8, 12, 8)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(2, 8, 12, 8))


def test_volumes_that_cannot_be_halved_twice_are_refused() -> None:
    with pytest.raises(SettingsError, match="sides in multiples of 4"):
        build("unet3d", input_shape=(1, 48, 60, 47), classes=2)
    with pytest.raises(SettingsError, match=r"cannot read inputs of shape \(3, 32, 32\)"):
        build("unet3d", input_shape=(3, 32, 32), classes=2)


def test_the_efficientnet_has_4017796_parameters_for_8_classes() -> None:
    network = build("efficientnet_b0", input_shape=(3, 134, 134), classes=8)
    assert parameters(network) == 4_017_796
    assert network.eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 8)
    with pytest.raises(SettingsError, match="at least 32 pixels a side"):
        build("efficientnet_b0", input_shape=(3, 28, 28), classes=8)


def test_the_linear_model_scores_a_sample_once_for_two_classes_or_fewer() -> None:
    assert parameters(build("linear", input_shape=(13,), classes=2)) == 14
    assert parameters(build("linear", input_shape=(39,), classes=1)) == 40
    assert build("linear", input_shape=(39,), classes=8)(torch.zeros(3, 39)).shape == (3, 8)


def test_an_unknown_model_is_told_of_the_medical_ones_too() -> None:
    with pytest.raises(SettingsError, match=f"{', '.join(MEDICAL_NAMES)}"):
        build("unet", input_shape=IXI, classes=2)


@pytest.mark.parametrize("ending", ["safetensors", "pth"])
def test_saved_weights_are_where_a_network_starts(tmp_path: Path, ending: str) -> None:
    saved, path = build("mlp", input_shape=(4,), classes=3), tmp_path / f"w.{ending}"
    (save_file if ending == "safetensors" else torch.save)(saved.state_dict(), path)
    network = build_from(path, "mlp", input_shape=(4,), classes=3)
    for own, other in zip(network.parameters(), saved.parameters(), strict=True):
        assert torch.equal(own, other)


def test_a_network_trained_on_other_classes_lends_all_but_its_head(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    saved = build("mlp", input_shape=(4,), classes=10)
    save_file(saved.state_dict(), path)
    network = build("mlp", input_shape=(4,), classes=3)
    assert load_weights(network, path) == ("fc2.weight", "fc2.bias")
    assert torch.equal(network.state_dict()["fc1.weight"], saved.state_dict()["fc1.weight"])


def test_weights_of_another_network_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file(build("mlp", input_shape=(5,), classes=3).state_dict(), path)
    with pytest.raises(SettingsError, match=r"do not fit the model: .*fc1\.weight"):
        build_from(path, "mlp", input_shape=(4,), classes=3)


class Harm:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("harm",)


def test_files_that_are_no_weights_are_refused_and_never_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network, path = build("mlp", input_shape=(4,), classes=3), tmp_path / "w.pth"
    with pytest.raises(SettingsError, match=r"w\.pth is not there"):
        load_weights(network, path)
    torch.save({"harm": Harm()}, path)
    with pytest.raises(SettingsError, match="hold more than tensors"):
        load_weights(network, path)
    assert "harm" not in capsys.readouterr().out
    path.write_bytes(b"nothing")
    with pytest.raises(SettingsError, match=r"w\.pth"):
        load_weights(network, path)
    torch.save([1, 2], path)
    with pytest.raises(SettingsError, match="not tensors by name"):
        load_weights(network, path)
