"""Metrics against hand-computed values, summed over batches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcompass.errors import SettingsError, TaskFailed
from fedcompass.training import (
    LocalSettings,
    LocalTrainer,
    Problem,
    Samples,
    check_metrics,
    evaluate,
    evaluate_clients,
)
from fedcompass.training.metrics import OverAll, make_metrics, values_of

torch.set_num_threads(1)


def measured(name: str, *batches: tuple[Tensor, Tensor]) -> float:
    metric = make_metrics([name], functional.cross_entropy)[name]
    for outputs, targets in batches:
        metric.add(outputs, targets)
    return metric.value()


OUTPUTS = torch.eye(3)[torch.tensor([0, 0, 1, 0, 2])]
TARGETS = torch.tensor([0, 0, 1, 1, 1])


def test_accuracy_counts_hits() -> None:
    assert measured("accuracy", (OUTPUTS, TARGETS)) == 3 / 5
    assert measured("accuracy", (OUTPUTS[:2], TARGETS[:2]), (OUTPUTS[2:], TARGETS[2:])) == 3 / 5


def test_balanced_accuracy_is_the_mean_recall_of_the_classes_that_occur() -> None:
    halves = ((OUTPUTS[:2], TARGETS[:2]), (OUTPUTS[2:], TARGETS[2:]))
    assert measured("balanced_accuracy", *halves) == pytest.approx((1 + 1 / 3) / 2)


def test_loss_is_the_mean_over_samples_whatever_the_batches() -> None:
    whole = functional.cross_entropy(OUTPUTS, TARGETS).item()
    halves = ((OUTPUTS[:2], TARGETS[:2]), (OUTPUTS[2:], TARGETS[2:]))
    assert measured("loss", *halves) == pytest.approx(whole)


def test_dice_is_soft_and_one_where_both_are_empty() -> None:
    outputs = torch.tensor([[[0.5, 0.5], [0.0, 0.0]]])  # one sample, two classes, two voxels
    targets = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])
    assert measured("dice", (outputs, targets)) == pytest.approx((0.5 / (1.0 + 1e-7) + 1.0) / 2)


def test_dice_takes_class_numbers_too() -> None:
    outputs = torch.softmax(torch.randn(2, 3, 4, 4, generator=torch.manual_seed(0)), 1)
    classes = torch.randint(0, 3, (2, 4, 4), generator=torch.manual_seed(1))
    one_hot = functional.one_hot(classes, 3).permute(0, 3, 1, 2)
    assert measured("dice", (outputs, classes)) == measured("dice", (outputs, one_hot))


def test_an_unknown_metric_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        SettingsError,
        match=r"'acuracy' is no metric \(did you mean 'accuracy'\?\); there are: loss",
    ):
        check_metrics(["acuracy"])


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))


def trainer_on(samples: int, loss: Any = functional.cross_entropy) -> LocalTrainer:
    x = torch.randn(samples, 4, generator=torch.manual_seed(0))
    y = torch.arange(samples) % 3
    parts = [torch.arange(0, 10), torch.arange(10, samples)]
    problem = Problem.from_tensors(dropping, train=(x, y), test=(x, y), parts=parts, loss=loss)
    return LocalTrainer(problem, LocalSettings(), seed=0)


def test_a_model_is_measured_as_it_predicts_over_all_batches() -> None:
    trainer = trainer_on(300)
    state = trainer.initial_state()
    test = trainer.problem.test
    module = dropping().eval()
    trainer.layout.load(module, state)
    expected = (module(test.inputs).argmax(1) == test.targets).double().mean().item()
    found = evaluate(trainer, state, test, ("loss", "accuracy"))
    assert list(found) == ["loss", "accuracy"]
    assert found["accuracy"] == pytest.approx(expected)
    assert evaluate(trainer, state, test, ("loss", "accuracy")) == found


def test_clients_are_measured_on_their_own_samples() -> None:
    trainer = trainer_on(30)
    state = trainer.initial_state()
    by_client = evaluate_clients(trainer, state, ("accuracy",))
    alone = [evaluate(trainer, state, s, ("accuracy",)) for s in trainer.problem.clients]
    assert list(by_client) == alone


def test_outputs_that_do_not_fit_the_metric_are_named() -> None:
    trainer = trainer_on(30)
    test = trainer.problem.test
    odd = Samples(test.inputs, functional.one_hot(test.targets, 3).float())
    with pytest.raises(TaskFailed, match=r"test samples: SettingsError: accuracy needs"):
        evaluate(trainer, trainer.initial_state(), odd, ("accuracy",))


def saying(value: Any) -> OverAll:
    metric = OverAll(lambda *_: value, functional.cross_entropy)
    metric.add(OUTPUTS, TARGETS)
    return metric


@pytest.mark.parametrize(
    ("value", "told_as"),
    [
        ("0.5", "the str '0.5'"),
        ("good", "the str 'good'"),
        (None, "None"),
        (torch.ones(3), "a torch.Tensor of shape [3]"),
        ([0.5], "a list"),
    ],
)
def test_a_metric_that_returns_no_number_is_named(value: Any, told_as: str) -> None:
    with pytest.raises(SettingsError) as caught:
        values_of({"mine.f1": saying(value)})
    assert f"metric mine.f1 returned {told_as}; allowed: one number" in str(caught.value)


@pytest.mark.parametrize(
    "value", [0.5, torch.tensor(0.5), torch.tensor([0.5]), np.float32(0.5), np.array(0.5)]
)
def test_a_metric_may_return_its_number_in_any_of_these_ways(value: Any) -> None:
    assert values_of({"mine": saying(value)}) == {"mine": 0.5}


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda loss: loss.mean().item(), "a float; .*without .item"),
        (lambda loss: loss, r"a tensor of shape \[\d+\]; .*; return its .mean"),
        (lambda loss: loss.mean().detach(), "a tensor without a gradient; .* without detach"),
    ],
)
def test_a_loss_that_is_no_scalar_with_a_gradient_is_named(
    returned: Callable[[Tensor], Any], said: str
) -> None:
    def mine(outputs: Tensor, targets: Tensor) -> Any:
        return returned(functional.cross_entropy(outputs, targets, reduction="none"))

    trainer = trainer_on(30, mine)
    state = trainer.initial_state()
    told = rf"loss mine \(test_evaluation.py:\d+\) returned {said}"
    with pytest.raises(TaskFailed, match=told):
        trainer.train(state, client=0, local_round=0, steps=1, payload="delta")
    if "without a gradient" not in said:  # which measuring does without
        with pytest.raises(TaskFailed, match=told):
            evaluate(trainer, state, trainer.problem.test, ("loss",))
