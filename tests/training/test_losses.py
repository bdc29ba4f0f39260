"""Losses and metrics against values worked out by hand."""

from math import isnan, log

import pytest
import torch
from torch import Tensor

from fedcompass.errors import SettingsError
from fedcompass.settings.training import LOSS_NAMES, check_loss
from fedcompass.training.losses import (
    ISIC_CLASS_WEIGHTS,
    LOSSES,
    FocalLoss,
    cox_loss,
    dice_loss,
    logistic_loss,
)
from fedcompass.training.metrics import OURS


def test_logistic_loss_is_minus_the_mean_log_probability_of_the_labels() -> None:
    scores = torch.tensor([[0.0], [log(3)]])  # probabilities 1/2 and 3/4
    assert logistic_loss(scores, torch.tensor([1, 0])).item() == pytest.approx(
        (log(2) + log(4)) / 2
    )


def test_focal_loss_weighs_classes_and_hard_samples() -> None:
    outputs = torch.zeros(2, 8)
    outputs[1, 2] = log(7)  # class 2 has probability 7/14, the others 1/14
    expected = (
        ISIC_CLASS_WEIGHTS[0] * (7 / 8) ** 2 * log(8) + ISIC_CLASS_WEIGHTS[2] * 0.25 * log(2)
    ) / 2
    assert FocalLoss()(outputs, torch.tensor([0, 2])).item() == pytest.approx(expected)


def test_focal_loss_without_focus_is_weighted_cross_entropy() -> None:
    outputs, targets = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    plain = FocalLoss(class_weights=(1.0, 1.0, 1.0), focus=0.0)(outputs, targets)
    torch.testing.assert_close(plain, torch.nn.functional.cross_entropy(outputs, targets))


VOXELS = torch.tensor([[[[1.0, 0.5, 0.0, 0.0]]]])  # probability of class 1 in a line of voxels


def two_classes(of_one: Tensor) -> Tensor:
    return torch.cat((1 - of_one, of_one), dim=1)


def test_dice_loss_of_a_line_of_voxels() -> None:
    # class 1: TP 1.5, FP 0, FN 0.5 -> 3 / 3.5; class 0: TP 2, FP 0.5, FN 0 -> 4 / 4.5
    targets = torch.tensor([[[1, 1, 0, 0]]], dtype=torch.uint8)
    outputs = two_classes(VOXELS)
    expected = 1 - (3 / 3.5 + 4 / 4.5) / 2
    # FN of class 1: (1-1)*1 + (1-0.5)*1 = 0.5; FP of class 0: 0.5 * 1 at the second voxel
    assert dice_loss(outputs, targets).item() == pytest.approx(expected)


def test_soft_dice_reads_masks_of_bytes() -> None:
    metric = OURS["dice"](dice_loss)
    metric.add(two_classes(VOXELS), torch.tensor([[[1, 1, 0, 0]]], dtype=torch.uint8))
    # class 1: 1.5 / (0.5 * (1.5 + 2)); class 0: 2 / (0.5 * (2.5 + 2))
    assert metric.value() == pytest.approx((1.5 / 1.75 + 2 / 2.25) / 2, abs=1e-6)


def survival(*rows: tuple[float, float]) -> Tensor:
    return torch.tensor(rows)


def test_cox_loss_compares_an_event_with_those_still_at_risk() -> None:
    scores = torch.tensor([[log(2)], [0.0], [log(3)]])
    truth = survival((1, 5.0), (1, 2.0), (0, 9.0))
    # event at 5: at risk 2 and 3 -> log(5/2); event at 2: at risk 2, 1, 3 -> log(6/1)
    assert cox_loss(scores, truth).item() == pytest.approx((log(5 / 2) + log(6)) / 3)


def test_cox_loss_of_equal_times_counts_the_earlier_row_as_later() -> None:
    scores = torch.tensor([[log(2)], [log(3)]])
    truth = survival((1, 4.0), (1, 4.0))
    assert cox_loss(scores, truth).item() == pytest.approx((0 + log(5 / 3)) / 2)


def test_cox_loss_of_huge_scores_is_finite_and_has_a_gradient() -> None:
    scores = torch.tensor([[900.0], [-900.0], [0.0]], requires_grad=True)
    loss = cox_loss(scores, survival((0, 3.0), (1, 2.0), (1, 1.0)))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx((1800 + 900) / 3)
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()


def test_cox_loss_without_events_teaches_nothing() -> None:
    assert cox_loss(torch.randn(4, 1), survival(*[(0, t) for t in range(4)])).item() == 0


def test_binary_accuracy_reads_the_sign_of_the_score() -> None:
    metric = OURS["binary_accuracy"](logistic_loss)
    metric.add(torch.tensor([[2.0], [-1.0]]), torch.tensor([1, 1]))
    metric.add(torch.tensor([[-3.0], [0.0]]), torch.tensor([0, 0]))
    assert metric.value() == 0.75
    with pytest.raises(SettingsError, match=r"needs outputs \[samples, 1\]; got \[2, 2\]"):
        metric.add(torch.zeros(2, 2), torch.tensor([0, 1]))


def concordance(scores: list[float], truth: Tensor, batch: int = 10) -> float:
    metric = OURS["concordance"](cox_loss)
    outputs = torch.tensor(scores)[:, None]
    parts = zip(torch.split(outputs, batch), torch.split(truth, batch), strict=True)
    for part, of_part in parts:
        metric.add(part, of_part)
    return metric.value()


def test_concordance_counts_the_pairs_an_event_can_be_compared_in() -> None:
    truth = survival((1, 1.0), (0, 2.0), (1, 3.0), (1, 4.0))
    # pairs: (0,1) (0,2) (0,3) (2,3); the censored one at 2 starts none
    assert concordance([4, 3, 2, 1], truth) == 1
    assert concordance([1, 3, 2, 4], truth) == 0
    assert concordance([3, 4, 2, 2], truth) == pytest.approx((0 + 1 + 1 + 0.5) / 4)


def test_concordance_compares_samples_of_different_batches() -> None:
    truth = survival((1, 1.0), (0, 2.0), (1, 3.0), (1, 4.0))
    assert concordance([3, 4, 2, 2], truth, batch=1) == pytest.approx(2.5 / 4)


def test_concordance_at_equal_times_compares_an_event_with_the_censored_only() -> None:
    truth = survival((1, 1.0), (0, 1.0), (1, 1.0))
    assert concordance([2, 1, 0], truth) == pytest.approx(1 / 2)  # (0,1) right, (2,1) wrong


def test_concordance_without_a_pair_is_not_a_number() -> None:
    assert isnan(concordance([1, 2], survival((0, 1.0), (0, 2.0))))


def test_an_unknown_loss_is_told_of_the_others() -> None:
    with pytest.raises(SettingsError, match=r"'foca' is no loss \(did you mean 'focal'"):
        check_loss("foca")


def test_losses_work_for_a_stack_of_models() -> None:
    scores = torch.randn(3, 5, 1)
    truth = torch.stack((torch.ones(5), torch.rand(5)), dim=1).expand(3, 5, 2)
    stacked = torch.func.vmap(cox_loss)(scores, truth)
    torch.testing.assert_close(stacked, torch.stack([cox_loss(s, truth[0]) for s in scores]))


def test_each_loss_that_an_experiment_may_name_is_computed_here() -> None:
    assert tuple(LOSSES) == LOSS_NAMES
