import pytest
import torch
from torch import Tensor

from fedcompass.data.medical.augmentation import IsicAugment

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SHAPE = (150, 200)


def normalized(pixels: Tensor) -> Tensor:
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (MEAN, STD))
    return (pixels - mean) / std


def pixels_of(images: Tensor) -> Tensor:
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (MEAN, STD))
    return images * std + mean


def varied(images: Tensor, seed: int = 0, crop: int = 134) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return IsicAugment(crop, MEAN, STD)(images, generator)


def drawn(monkeypatch: pytest.MonkeyPatch, **given: float) -> None:
    """Let chance give these numbers, nothing happen otherwise, and the crop lie in the middle."""
    names = ["scale?", "rotate?", "light?", "flip?", "shear?", "holes?"]
    names += ["scale", "angle", "brightness", "contrast", "flip", "x", "y"]
    row = torch.full((len(names) + 17,), 0.5)
    for name, value in given.items():
        row[names.index(name.replace("_", "?"))] = value

    def rand(shape: tuple[int, int], **_: object) -> Tensor:
        return row.expand(shape).clone()

    monkeypatch.setattr(torch, "rand", rand)


def test_the_same_generator_gives_the_same_variation_and_leaves_the_images() -> None:
    images = torch.randn(4, 3, *SHAPE)
    kept = images.clone()
    assert torch.equal(varied(images, 7), varied(images, 7))
    assert not torch.equal(varied(images, 7), varied(images, 8))
    assert torch.equal(images, kept)
    assert varied(images).shape == (4, 3, 134, 134)


def test_pixels_stay_between_black_and_white() -> None:
    pixels = pixels_of(varied(normalized(torch.rand(16, 3, *SHAPE))))
    assert pixels.min() >= -1e-6
    assert pixels.max() <= 1 + 1e-6


def test_a_grey_image_varies_in_light_and_holes_only() -> None:
    pixels = pixels_of(varied(normalized(torch.full((64, 3, *SHAPE), 0.5))))
    for image in pixels:
        found = image[image > 0.01]
        assert found.min() >= 0.5 * 0.9 - 0.15 - 1e-5
        assert found.max() <= 0.5 * 1.1 + 0.15 + 1e-5
        assert found.max() - found.min() < 1e-5
    holes = (pixels[:, 0] < 0.01).flatten(1).sum(1)
    assert (holes == 0).any()
    assert holes.max() <= 8 * 11 * 11  # 8 squares of 16 / 200 of 134 pixels
    assert holes[holes > 0].min() >= 11 * 11


def test_without_any_luck_it_is_a_crop(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randn(2, 3, 150, 200)
    drawn(monkeypatch, x=0.0, y=1.0)
    clamped = images.clamp(-torch.tensor(MEAN).view(3, 1, 1) / torch.tensor(STD).view(3, 1, 1))
    cut = varied(images)
    top = (1 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    torch.testing.assert_close(cut, clamped[:, :, 16:, :134].minimum(top), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("kind", "axes"), [(0.1, (3,)), (0.5, (2,)), (0.9, (2, 3))])
def test_a_flip_mirrors_across_mirrors_down_or_both(
    monkeypatch: pytest.MonkeyPatch, kind: float, axes: tuple[int, ...]
) -> None:
    images = normalized(torch.rand(1, 3, 150, 200))
    drawn(monkeypatch)
    plain = varied(images)
    drawn(monkeypatch, flip_=0.0, flip=kind)
    torch.testing.assert_close(varied(images), plain.flip(axes), atol=1e-4, rtol=0)


def test_a_rotation_turns_by_the_angle_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    across = torch.arange(200.0).expand(150, -1)
    images = normalized((across / 200).expand(1, 3, -1, -1))
    drawn(monkeypatch, rotate_=0.0, angle=(30 / 50 + 1) / 2)
    pixels = pixels_of(varied(images))[0, 0] * 200
    slope_x, slope_y = pixels[60, 80] - pixels[60, 60], pixels[70, 60] - pixels[60, 60]
    assert slope_x / 20 == pytest.approx(0.866, abs=1e-3)  # cos 30°
    assert abs(slope_y) / 10 == pytest.approx(0.5, abs=1e-3)  # sin 30°


def test_a_scale_brings_neighbours_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    images = normalized((torch.arange(200.0) / 200).expand(1, 3, 150, -1))
    drawn(monkeypatch, scale_=0.0, scale=1.0)
    row = pixels_of(varied(images))[0, 0, 60] * 200
    assert (row[100] - row[30]) / 70 == pytest.approx(1 / 1.07, abs=1e-4)
    assert row.mean() == pytest.approx(99.5, abs=1e-3)  # around the middle


def test_mirrored_borders_go_around_the_outermost_pixel(monkeypatch: pytest.MonkeyPatch) -> None:
    images = normalized((torch.arange(200.0) / 200).expand(1, 3, 150, -1))
    drawn(monkeypatch, rotate_=0.0, angle=1.0)  # 50 degrees: corners lie outside
    pixels = pixels_of(varied(images, crop=148))[0, 0] * 200
    assert pixels.min() >= -1e-3
    assert pixels.max() <= 199 + 1e-3
