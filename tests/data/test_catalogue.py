import gzip
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from fedcompass.data.catalogue import NAMES, load
from fedcompass.data.places import cache_folder, roots
from fedcompass.data.sources import MNIST
from fedcompass.errors import DataError, SettingsError

REPOSITORY = Path(__file__).parents[2]
BUNDLED = REPOSITORY / "src/fedcompass/data/bundled/mnist-mini"
TRAIN_HISTOGRAM = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST_HISTOGRAM = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.fixture(autouse=True)
def no_data_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's own data folders is found by accident."""
    monkeypatch.delenv("FEDCOMPASS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_bundled_subset_loads_without_any_file_of_the_users() -> None:
    dataset = load("mnist-mini")
    assert dataset.train_inputs.shape == (10_000, 1, 28, 28)
    assert dataset.test_inputs.shape == (2_000, 1, 28, 28)
    assert dataset.train_inputs.dtype == torch.uint8
    assert dataset.classes == 10


def test_the_bundled_subset_keeps_the_class_shares_of_mnist() -> None:
    dataset = load("mnist-mini")
    kept = torch.bincount(dataset.train_targets)
    assert (kept - torch.tensor(TRAIN_HISTOGRAM) / 6).abs().max() < 1
    kept = torch.bincount(dataset.test_targets)
    assert (kept - torch.tensor(TEST_HISTOGRAM) / 5).abs().max() < 1


def test_the_bundled_files_are_small_and_carry_their_licence() -> None:
    sizes = {path.name: path.stat().st_size for path in BUNDLED.iterdir()}
    assert sum(sizes.values()) < 2_000_000
    assert sorted(sizes) == ["LICENCE.md", *sorted(file.name for file in MNIST.files)]


def test_the_script_makes_the_bundled_subset_again_from_the_full_mnist(real_data: Path) -> None:
    made = mini_script().make(real_data)
    for name, content in made.items():
        packed = (BUNDLED / f"{name}.gz").read_bytes()
        assert gzip.decompress(packed) == content
        assert packed[4:8] == bytes(4)  # no time stamp, so that making it again changes nothing


def test_the_real_mnist_has_its_published_counts(real_data: Path) -> None:
    dataset = load("mnist", real_data)
    assert dataset.train_inputs.shape == (60_000, 1, 28, 28)
    assert dataset.test_inputs.shape == (10_000, 1, 28, 28)
    assert torch.bincount(dataset.train_targets).tolist() == TRAIN_HISTOGRAM
    assert torch.bincount(dataset.test_targets).tolist() == TEST_HISTOGRAM
    pixels = dataset.train_inputs.float() / 255
    assert pixels.mean().item() == pytest.approx(dataset.mean[0], abs=1e-4)
    assert pixels.std().item() == pytest.approx(dataset.std[0], abs=1e-4)


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
def test_mnist_is_found_where_people_keep_it(
    real_data: Path, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    link_mnist(real_data, tmp_path / "root" / folder)
    monkeypatch.setenv("FEDCOMPASS_DATA", str(tmp_path / "root"))
    assert len(load("mnist").train_inputs) == 60_000


def test_mnist_unpacked_and_in_the_cache_folder_is_found(real_data: Path) -> None:
    folder = cache_folder() / "mnist"
    link_mnist(real_data, folder)
    packed = folder / "train-labels-idx1-ubyte.gz"
    (folder / "train-labels-idx1-ubyte").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    assert len(load("mnist").train_targets) == 60_000


def test_mnist_is_not_taken_for_fashion_mnist(real_data: Path, tmp_path: Path) -> None:
    link_mnist(real_data, tmp_path)
    with pytest.raises(DataError, match="'fashion-mnist' was not found"):
        load("fashion-mnist", tmp_path)


def test_other_images_under_mnists_names_are_refused(tmp_path: Path) -> None:
    shutil.copytree(BUNDLED, tmp_path / "mnist")
    with pytest.raises(DataError, match=r"is not the published train-images-idx3-ubyte.gz"):
        load("mnist", tmp_path)


def test_a_missing_dataset_is_one_line_with_the_places_and_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDCOMPASS_DATA", str(tmp_path / "shared"))
    with pytest.raises(DataError) as caught:
        load("fashion-mnist", tmp_path / "mine")
    assert str(caught.value) == (
        "dataset 'fashion-mnist' was not found: looked for train-images-idx3-ubyte.gz and 3 more "
        f"files in {tmp_path / 'mine'}, {tmp_path / 'shared'}, {tmp_path / 'cache/fedcompass'} "
        "(and there in fashion-mnist, FashionMNIST/raw, FashionMNIST, fashion_mnist, raw); "
        "run `fedcompass data fetch fashion-mnist`, "
        "or name the folder that holds it with --data-root or $FEDCOMPASS_DATA"
    )


def test_a_folder_that_lacks_one_file_is_pointed_out(tmp_path: Path) -> None:
    shutil.copytree(BUNDLED, tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"mnist lacks t10k-labels-idx1-ubyte.gz; run"):
        load("mnist", tmp_path)


def test_missing_cifar_names_both_versions(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cifar-10-batches-bin or cifar-10-binary.tar.gz or"):
        load("cifar10", tmp_path)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(SettingsError) as caught:
        load("mnis")
    assert str(caught.value) == (
        f"the catalogue has no dataset 'mnis' (did you mean 'mnist'?); it has: {', '.join(NAMES)}"
    )


def test_the_roots_are_searched_in_order_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDCOMPASS_DATA", str(tmp_path))
    assert roots(tmp_path) == [tmp_path, tmp_path / "cache/fedcompass"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert roots() == [tmp_path, tmp_path / ".cache/fedcompass"]


def test_settings_and_fetching_load_no_torch() -> None:
    program = (
        "import sys, fedcompass.data.fetch, fedcompass.settings.data\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def link_mnist(real_data: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in MNIST.files:
        (folder / file.name).symlink_to((real_data / "mnist" / file.name).resolve())


def mini_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_mnist_mini", REPOSITORY / "scripts" / "make_mnist_mini.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
