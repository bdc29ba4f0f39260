from math import inf, nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedcompass.aggregation import (
    FlatState,
    GuardSettings,
    Layout,
    RefusedUpdate,
    TensorSpec,
    UsualNorms,
    change_norm,
    check_update,
)
from fedcompass.errors import SettingsError
from fedcompass.vocabulary import Refusal

LAYOUT = Layout(
    (
        TensorSpec("weight", (3,), torch.float32, "trainable"),
        TensorSpec("variance", (2,), torch.float32, "averaged"),
        TensorSpec("batches", (1,), torch.int64, "counted"),
    )
)


def update(
    trainable: object = (1.0, 2.0, 2.0), averaged: object = (1.0, 1.0), counted: object = (5,)
) -> FlatState:
    return FlatState(torch.tensor(trainable), torch.tensor(averaged), torch.tensor(counted))


def refusal(
    candidate: FlatState, max_norm: float | None = None, reference: Tensor | None = None
) -> RefusedUpdate | None:
    """What the guard says; the candidate must come out of it untouched."""
    before = candidate.clone()
    answer = check_update(candidate, LAYOUT, GuardSettings(max_norm=max_norm), reference)
    for name, vector in candidate.tensors().items():
        assert torch.equal(vector.nan_to_num(), before.tensors()[name].nan_to_num())
    return answer


def test_a_good_update_passes() -> None:
    assert refusal(update()) is None


BATCH_NORM = Layout(
    (
        TensorSpec("weight", (1,), torch.float32, "trainable"),
        TensorSpec("1.running_mean", (2,), torch.float32, "averaged"),
        TensorSpec("1.running_var", (2,), torch.float32, "averaged"),
        TensorSpec("1.num_batches_tracked", (), torch.int64, "counted"),
        TensorSpec("2.running_mean", (1,), torch.float32, "averaged"),
        TensorSpec("2.running_var", (1,), torch.float32, "averaged"),
        TensorSpec("2.num_batches_tracked", (), torch.int64, "counted"),
    )
)


def of_buffers(
    averaged: object = (-5.0, 5.0, 0.0, 1.0, 0.0, 1.0), counted: object = (4, 4), **bounds: float
) -> str | None:
    """What the guard says of an update after 4 steps on a model that has counted to 3."""
    candidate = update((1.0,), averaged, counted)
    answer = check_update(
        candidate,
        BATCH_NORM,
        GuardSettings.model_validate(bounds),
        counted=torch.tensor([3, 0]),
        steps=4,
    )
    assert answer is None or answer.reason == Refusal.WRONG_BUFFERS
    return None if answer is None else answer.message


def test_a_negative_variance_is_refused_and_named_and_a_negative_mean_is_not() -> None:
    assert of_buffers() is None
    assert of_buffers((0.0, 0.0, 0.0, 1.0, 0.0, -0.25)) == (
        "the update's 2.running_var has a variance of -0.25; allowed: 0 or more"
    )


@pytest.mark.parametrize("value", [-2e3, 3e37])
def test_a_model_buffer_beyond_the_bound_is_refused_and_named(value: float) -> None:
    averaged = (0.0, value, 0.0, 1.0, 0.0, 1.0)
    assert of_buffers(averaged) is None
    assert of_buffers(averaged, max_buffer=1e4 if value < 0 else 4e37) is None
    assert of_buffers(averaged, max_buffer=1e3) == (
        f"the update's 1.running_mean has a value of {value:g}; max_buffer allows 1000: check its "
        "data, or raise max_buffer"
    )


def test_a_counter_grows_by_no_more_than_the_steps_done() -> None:
    assert of_buffers(counted=(7, 4), max_passes=1) is None
    assert of_buffers(counted=(0, -(2**63)), max_passes=1) is None  # a merge takes the maximum
    assert of_buffers(counted=(7, 5)) is None
    assert of_buffers(counted=(7, 5), max_passes=2) is None
    assert of_buffers(counted=(7, 5), max_passes=1) == (
        "the update's 2.num_batches_tracked is 5 after 4 steps; allowed: at most 4. Where a step "
        "passes through a layer several times, raise max_passes"
    )
    assert of_buffers(counted=(2**63 - 1, 4), max_passes=1) is not None


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_one_value_that_is_not_finite_is_enough_to_refuse(bad: float) -> None:
    for candidate, segment in (
        (update(trainable=(1.0, bad, 0.0)), "trainable"),
        (update(averaged=(1.0, bad)), "averaged"),
    ):
        assert refusal(candidate) == RefusedUpdate(
            reason=Refusal.NOT_FINITE,
            message=f"the update's {segment} vector has NaN or infinite values; check its training",
        )


def test_huge_finite_values_are_finite() -> None:
    assert refusal(update(trainable=(1e30, -3e38, 0.0), averaged=(1e30, 1e38))) is None


@pytest.mark.parametrize(
    "candidate",
    [
        update(trainable=(1.0,)),  # would broadcast
        update(trainable=1.0),
        update(trainable=((1.0, 2.0, 2.0),)),
        update(trainable=(1.0, 2.0, 2.0, 3.0)),
        update(averaged=(1.0,)),
        update(counted=(5, 5)),
        FlatState(torch.ones(3).double(), torch.ones(2), torch.tensor([5])),
        FlatState(torch.ones(3), torch.ones(2).half(), torch.tensor([5])),
        FlatState(torch.ones(3), torch.ones(2), torch.tensor([5.0])),
    ],
)
def test_another_shape_or_dtype_is_refused(candidate: FlatState) -> None:
    answer = refusal(candidate)
    assert answer is not None
    assert answer.reason == Refusal.WRONG_LAYOUT


def test_a_layout_refusal_says_what_came_and_what_was_expected() -> None:
    answer = refusal(update(trainable=(1.0,)))
    assert answer is not None
    assert answer.message == (
        "the update's trainable vector is float32[1], the model has float32[3]; "
        "send the model's own layout"
    )


def test_the_norm_bound_refuses_only_what_lies_above_it() -> None:
    assert refusal(update(trainable=(1.0, 2.0, 2.0)), max_norm=3.0) is None
    answer = refusal(update(trainable=(2.0, 4.0, 4.0)), max_norm=3.0)
    assert answer == RefusedUpdate(
        reason=Refusal.NORM_TOO_LARGE,
        message="the update's norm is 6, max_norm allows 3; "
        "lower the client's learning rate or raise max_norm",
    )


def test_the_norm_is_right_where_its_square_overflows() -> None:
    huge = update(trainable=(3e30, 4e30, 0.0))
    assert refusal(huge, max_norm=5.1e30) is None
    answer = refusal(huge, max_norm=4.9e30)
    assert answer is not None
    assert answer.reason == Refusal.NORM_TOO_LARGE


def test_for_end_models_the_bound_is_about_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    start, end = update(trainable=(100.0, 0.0, 0.0)), update(trainable=(101.0, 2.0, 2.0))
    for chunk in (2, 1 << 18):
        monkeypatch.setattr("fedcompass.aggregation.guard._CHUNK", chunk)
        assert refusal(end, max_norm=3.0, reference=start.trainable) is None
        answer = refusal(end, max_norm=2.9, reference=start.trainable)
        assert answer is not None
        assert answer.reason == Refusal.NORM_TOO_LARGE


@settings(deadline=None)
@given(st.lists(st.floats(width=32), min_size=3, max_size=3))
def test_the_light_pass_agrees_with_looking_at_every_value(values: list[float]) -> None:
    candidate = update(trainable=values)
    assert (refusal(candidate) is None) == bool(candidate.trainable.isfinite().all())


def test_a_model_without_buffers_can_be_checked() -> None:
    layout = Layout(LAYOUT.specs[:1])
    assert check_update(layout.zeros(), layout, GuardSettings(max_norm=1)) is None


def test_a_norm_bound_must_be_positive() -> None:
    with pytest.raises(SettingsError, match=r"max_norm is 0; allowed: above 0"):
        GuardSettings(max_norm=0)


def noted(**norms: list[float]) -> UsualNorms:
    """What is usual after these, with a bound of 100 times that."""
    usual = UsualNorms(100.0)
    for client, of_client in norms.items():
        for norm in of_client:
            usual.note(client, norm)
    return usual


def test_the_norm_of_a_change_is_exact_where_its_square_overflows() -> None:
    assert change_norm(torch.tensor([3.0, 4.0])) == 5.0
    assert change_norm(torch.tensor([3e30, 4e30])) == pytest.approx(5e30)
    assert change_norm(torch.tensor([13.0, 4.0]), torch.tensor([10.0, 0.0])) == 5.0
    assert not change_norm(torch.tensor([nan])) < inf


def test_what_is_usual_is_the_median_over_clients_of_each_ones_own_median() -> None:
    usual = noted(a=[1.0, 2.0, 90.0], b=[4.0] * 50, c=[7.0, 5.0, 6.0])
    assert usual.usual == 4.0
    assert usual.refusal(400.0) is None
    assert usual.refusal(401.0) == RefusedUpdate(
        reason=Refusal.UNUSUAL_NORM,
        message="the update's norm per step is 401; usual in this run is 4, and 100 times that is "
        "allowed (times_median); check its training",
    )


def test_three_clients_and_ten_updates_tell_what_is_usual_and_before_that_1e12_is_the_bound() -> (
    None
):
    for few in (noted(a=[1.0] * 20, b=[1.0] * 20), noted(a=[1.0] * 7, b=[1.0], c=[1.0])):
        assert few.usual is None
        assert few.refusal(1e11) is None
        refused = few.refusal(3e38)
        assert refused is not None
        assert refused.message == (
            "the update's norm per step is 3e+38, which no training gives; check it"
        )


@pytest.mark.parametrize("lie", [1e-30, 3e38, 0.0, inf, nan])
def test_one_client_cannot_move_the_bound_out_of_what_the_others_send(lie: float) -> None:
    usual = noted(a=[1.0] * 5, b=[2.0] * 5, c=[3.0] * 5, liar=[lie] * 10_000)
    assert usual.usual is not None
    assert 1.0 <= usual.usual <= 3.0


def test_updates_that_change_nothing_are_not_counted() -> None:
    assert noted(a=[1.0] * 5, b=[2.0] * 5, c=[3.0] * 5 + [0.0] * 100).usual == 2.0


def test_few_norms_of_a_client_are_kept_evenly_over_the_run() -> None:
    usual = noted(a=list(map(float, range(1, 5001))), b=[1.0], c=[1e9])
    assert usual.usual == pytest.approx(2500, rel=0.05)
    kept = usual.to_json()
    assert len(kept["a"]["kept"]) < 128
    again = UsualNorms(100.0)
    again.restore(kept)
    for each in (usual, again):
        each.note("a", 7.0)
    assert again.to_json() == usual.to_json()
