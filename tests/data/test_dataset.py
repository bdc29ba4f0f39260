import pytest
import torch
from torch import Tensor

from fedcompass.data.dataset import Dataset, Normalize
from fedcompass.errors import DataError


def images(count: int, channels: int = 1) -> Tensor:
    return torch.arange(count * channels * 4, dtype=torch.uint8).view(count, channels, 2, 2)


def test_normalizing_gives_pixel_over_255_minus_mean_over_std_per_channel() -> None:
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    batch = images(5, channels=3)
    expected = (batch.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(
        3, 1, 1
    )
    normalized = Normalize(mean, std)(batch)
    assert normalized.dtype == torch.float32
    torch.testing.assert_close(normalized.double(), expected, rtol=1e-5, atol=1e-6)


def test_normalizing_leaves_the_stored_batch_and_a_float_batch_untouched() -> None:
    normalize = Normalize((0.5,), (0.5,))
    stored, floats = images(2), torch.full((2, 1, 2, 2), 0.75)
    normalize(stored)
    assert torch.equal(stored, images(2))
    assert torch.equal(normalize(floats), torch.full((2, 1, 2, 2), 0.5))
    assert torch.equal(floats, torch.full((2, 1, 2, 2), 0.75))


def test_a_stack_of_clients_normalizes_like_each_client_alone() -> None:
    normalize = Normalize((0.1, 0.2, 0.3), (1.0, 2.0, 3.0))
    stack = torch.stack([images(4, 3), images(4, 3) + 1])
    assert torch.equal(normalize(stack), torch.stack([normalize(client) for client in stack]))


def test_without_a_mean_features_only_become_float32() -> None:
    features = torch.tensor([[1.5, -2.0]], dtype=torch.float64)
    assert torch.equal(Normalize((), ())(features), torch.tensor([[1.5, -2.0]]))


def test_a_mean_without_its_std_is_refused() -> None:
    with pytest.raises(DataError, match="one of each per channel"):
        Normalize((0.5,), ())


def test_a_dataset_knows_the_shape_of_one_input_and_normalizes_with_its_own_statistics() -> None:
    labels = torch.tensor([0, 1])
    dataset = Dataset("toy", images(2), labels, images(2), labels, 2, (0.5,), (0.25,))
    assert dataset.input_shape == (1, 2, 2)
    assert torch.equal(dataset.normalize(images(2)), Normalize((0.5,), (0.25,))(images(2)))


def test_a_segmentation_mask_is_no_class_label_and_is_accepted() -> None:
    masks = torch.ones(2, 2, 2)
    assert Dataset("masks", images(2), masks, images(2), masks, classes=2).classes == 2


@pytest.mark.parametrize(
    ("train", "targets", "test", "message"),
    [
        (2, [0, 1, 1], (2, 1), "2 train inputs and 3 targets"),
        (0, [], (2, 1), "0 train inputs and 0 targets"),
        (2, [0, 2], (2, 1), "targets from 0 to 2; with 2 classes they lie in 0..1"),
        (2, [-1, 1], (2, 1), "targets from -1 to 1"),
        (2, [0, 1], (2, 3), r"shape \(1, 2, 2\) and test inputs of shape \(3, 2, 2\)"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(
    train: int, targets: list[int], test: tuple[int, int], message: str
) -> None:
    wanted = torch.tensor(targets, dtype=torch.int64)
    with pytest.raises(DataError, match=message):
        Dataset("toy", images(train), wanted, images(*test), torch.tensor([0, 1]), classes=2)


def test_centers_must_be_one_per_training_sample() -> None:
    labels = torch.tensor([0, 1])
    with pytest.raises(DataError, match="2 train inputs and 1 centers"):
        Dataset("toy", images(2), labels, images(2), labels, 2, train_centers=torch.tensor([0]))
