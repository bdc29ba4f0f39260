import csv
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedcompass.data.medical.isic import centre_crop, crop_of, fitted, read_picture, shades_of_gray
from fedcompass.data.medical.isic_files import listed_images, split_of
from fedcompass.data.medical.loading import find, load, usual_clients
from fedcompass.data.medical.published import ISIC
from fedcompass.errors import DataError

RealData = Callable[[str], Path]
SPLIT = [("a", 0, 1, "train"), ("b", 7, 1, "test"), ("c", 1, 3, "train"), ("d", 2, 3, "test")]


def made_folder(root: Path, size: tuple[int, int] = (80, 60), below: str = "") -> Path:
    """Four noisy images of two centers, in FLamby's layout."""
    folder = root / "fed_isic2019"
    (folder / below).mkdir(parents=True)
    lines = [f"{image},{target},{center},{fold}" for image, target, center, fold in SPLIT]
    (folder / "train_test_split").write_text("image,target,center,fold\n" + "\n".join(lines))
    rng = np.random.default_rng(0)
    for image, *_ in SPLIT:
        pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / below / f"{image}.jpg")
    return folder


def test_the_real_centers_have_the_sizes_and_labels_of_flambys_split(
    real_medical: RealData,
) -> None:
    folder, present = find(ISIC, real_medical("fed_isic2019"))
    images, preprocessed = listed_images(folder, present)
    assert not preprocessed
    with next(folder.glob("*split*")).open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["center"]) in present]
    split = Counter((int(row["center"]), row["fold"], int(row["target"])) for row in rows)
    assert Counter((i.center, i.fold, i.label) for i in images) == split
    sizes = Counter((image.center, image.fold) for image in images)
    for center in present:
        assert sizes[center, "train"] == ISIC.train[center]
        assert sizes[center, "test"] == ISIC.test[center]


def test_real_images_keep_their_reduced_resolution_and_it_is_said(
    real_medical: RealData, tmp_path: Path
) -> None:
    folder, present = find(ISIC, real_medical("fed_isic2019"))
    chosen = listed_images(folder, present)[0][:200:10]
    few = tmp_path / "fed_isic2019"
    few.mkdir()
    lines = [f"{i.path.stem},{i.label},{i.center},{i.fold}" for i in chosen]
    (few / "split.csv").write_text("image,target,center,fold\n" + "\n".join(lines))
    for image in chosen:
        shutil.copy(image.path, few)
    dataset = load("fed-isic2019", tmp_path)
    assert len(dataset.train_inputs) + len(dataset.test_inputs) == len(chosen)
    assert dataset.train_inputs.shape[1:] == (3, 150, 200)
    assert dataset.input_shape == (3, 134, 134)
    assert "centers, reduced resolution (without bcn" in dataset.remarks[0]
    assert "short edge 150 instead of 224, crops of 134" in dataset.remarks[0]
    first = next(image for image in chosen if image.fold == "train")
    expected = shades_of_gray(np.asarray(Image.open(first.path)))
    assert np.array_equal(dataset.train_inputs[0].numpy().transpose(1, 2, 0), expected)


def test_images_above_flambys_size_are_made_smaller_and_cropped_to_200(tmp_path: Path) -> None:
    made_folder(tmp_path, (400, 300), below="ISIC_2019_Training_Input")
    dataset = load("fed-isic2019", tmp_path)
    assert dataset.train_inputs.shape == (2, 3, 224, 298)
    assert dataset.test_inputs.shape == (2, 3, 200, 200)
    assert dataset.remarks == (
        "fed-isic2019: 2 centers (without bcn and vidir_modern and msk and vienna_dias)",
    )
    assert torch.as_tensor(dataset.train_centers).tolist() == [1, 3]
    assert dataset.train_targets.tolist() == [0, 1]


def test_flambys_preprocessed_images_are_not_preprocessed_again(tmp_path: Path) -> None:
    folder = made_folder(tmp_path, (298, 224), below="ISIC_2019_Training_Input_preprocessed")
    dataset = load("fed-isic2019", tmp_path)
    path = folder / "ISIC_2019_Training_Input_preprocessed" / "a.jpg"
    stored = dataset.train_inputs[0].numpy().transpose(1, 2, 0)
    assert np.array_equal(stored, np.asarray(Image.open(path)))


def test_there_is_one_client_for_each_center_that_is_there(tmp_path: Path) -> None:
    assert usual_clients("fed-isic2019", tmp_path) == 6
    folder = made_folder(tmp_path)
    assert usual_clients("fed-isic2019", tmp_path) == 2
    (folder / "c.jpg").unlink()
    (folder / "d.jpg").unlink()
    assert usual_clients("fed-isic2019", tmp_path) == 1


def test_a_missing_image_is_named_before_anything_is_prepared(tmp_path: Path) -> None:
    folder = made_folder(tmp_path)
    (folder / "b.jpg").unlink()
    with pytest.raises(DataError, match=r"lacks b\.jpg of center vidir_molemax; get them again"):
        load("fed-isic2019", tmp_path)


@pytest.mark.parametrize("content", [b"", b"no image", None])
def test_a_damaged_or_truncated_image_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = made_folder(tmp_path) / "c.jpg"
    path.write_bytes(path.read_bytes()[:900] if content is None else content)
    with pytest.raises(DataError, match=r"c\.jpg is missing or damaged: "):
        load("fed-isic2019", tmp_path)
    made = made_folder(tmp_path / "again") / "c.jpg"  # put back, it loads
    shutil.copy(made, path)
    assert len(load("fed-isic2019", tmp_path).train_inputs) == 2


def test_a_damaged_split_is_named_by_its_line(tmp_path: Path) -> None:
    folder = made_folder(tmp_path)
    (folder / "train_test_split").write_text("image,target,center,fold\na,0,1,train\nb,8,1,test\n")
    with pytest.raises(DataError, match="train_test_split, line 3, is not image, target 0-7"):
        split_of(folder)


def test_crops_shrink_with_the_images() -> None:
    assert [crop_of(edge) for edge in (224, 150, 112)] == [200, 134, 100]


def test_shades_of_gray_of_two_pixels_by_hand() -> None:
    # Channel means of power 6: 64, 128 and 128 (both pixels alike); their norm is 192.
    pixels = np.array([[[64, 128, 128], [64, 128, 128]]], dtype=np.uint8)
    # factors 1 / (1/3 √3), 1 / (2/3 √3): 1.7320 and 0.8660; 64 -> 110.85, 128 -> 110.85
    assert shades_of_gray(pixels).tolist() == [[[110, 110, 110], [110, 110, 110]]]


def test_shades_of_gray_stays_white_beyond_white() -> None:
    pixels = np.array([[[255, 255, 10], [0, 0, 10]]], dtype=np.uint8)
    assert shades_of_gray(pixels)[0, 1, 2] == shades_of_gray(pixels)[0, 0, 2] > 50
    assert shades_of_gray(np.zeros((2, 2, 3), np.uint8)).max() == 0


def test_an_image_is_resized_by_its_shorter_side(tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    Image.new("L", (450, 600), 128).save(path)  # grey and upright
    assert read_picture(path, 224).shape == (298, 224, 3)


def test_a_canvas_shows_the_middle_and_mirrors_the_border() -> None:
    row = np.arange(6, dtype=np.uint8)[None, :, None].repeat(3, axis=2).repeat(4, axis=0)
    assert fitted(row, 2, 4)[:, :, 0].tolist() == [[1, 2, 3, 4]] * 2
    assert fitted(row, 4, 10)[0, :, 0].tolist() == [2, 1, 0, 1, 2, 3, 4, 5, 4, 3]
    assert centre_crop(row, 2)[0, :, 0].tolist() == [2, 3]
