import json
from dataclasses import replace
from math import cos, sin
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcompass.aggregation import (
    AggregationSettings,
    Aggregator,
    AggregatorState,
    Contribution,
    FlatState,
    GuardSettings,
    Layout,
    ServerSettings,
    StalenessSettings,
    TensorSpec,
    WeightedSum,
    check_update,
)
from fedcompass.errors import CheckpointError, LayoutMismatch, SettingsError
from fedcompass.vocabulary import DIRECT

HALF = StalenessSettings(kind="constant", alpha=0.5)
LAYOUT = Layout(
    (
        TensorSpec("weight", (3,), torch.float32, "trainable"),
        TensorSpec("variance", (1,), torch.float32, "averaged"),
        TensorSpec("batches", (1,), torch.int64, "counted"),
    )
)


def state(*trainable: float, averaged: float = 1.0, counted: int = 0) -> FlatState:
    return FlatState(
        torch.tensor(trainable), torch.tensor([float(averaged)]), torch.tensor([counted])
    )


def statistics(averaged: float, counted: int = 0) -> FlatState:
    return state(0.0, 0.0, 0.0, averaged=averaged, counted=counted)


def weighted_sum(model: FlatState | None = None, **settings: Any) -> WeightedSum:
    return WeightedSum(model or state(0.0, 0.0, 0.0), AggregationSettings(**settings))


def by(share: float = 1.0, *, staleness: int = 0, steps: int = 1) -> Contribution:
    return Contribution(staleness=staleness, share=share, steps=steps)


def trainable(aggregator: Aggregator) -> list[float]:
    return aggregator.model.trainable.tolist()


# Weights and scaling of each strategy


def test_fedavg_takes_the_mean_by_shares() -> None:
    fedavg = weighted_sum(state(10.0, 10.0, 10.0), weighting="share", scale="mean-share")
    assert fedavg.fold(0, state(4.0, 0.0, 8.0), by(0.25)) == 0.25
    assert fedavg.fold(0, state(0.0, 4.0, 8.0), by(0.75)) == 0.75
    fedavg.commit([0])
    assert trainable(fedavg) == [9.0, 7.0, 2.0]


def test_fedavg_renormalizes_over_those_who_answered() -> None:
    fedavg = weighted_sum(weighting="share", scale="mean-share")
    fedavg.fold(0, state(4.0, 0.0, 8.0), by(0.125))
    fedavg.fold(0, state(0.0, 4.0, 8.0), by(0.375))
    fedavg.commit([0])
    assert trainable(fedavg) == [-1.0, -3.0, -8.0]


def test_fedcompass_merges_a_group_with_the_general_buffer() -> None:
    compass = weighted_sum(staleness={"alpha": 1.0, "a": 0.5})
    assert compass.fold(3, state(8.0, 0.0, 0.0), by(0.5)) == 0.5
    assert compass.fold(0, state(0.0, 8.0, 0.0), by(0.5, staleness=3)) == 0.25
    assert trainable(compass) == [0.0, 0.0, 0.0]
    compass.commit([3, 0])
    assert trainable(compass) == [-4.0, -2.0, 0.0]


def test_another_groups_buffer_is_left_alone() -> None:
    compass = weighted_sum(staleness=HALF)
    compass.fold(1, state(2.0, 0.0, 0.0), by())
    compass.fold(2, state(0.0, 2.0, 0.0), by())
    compass.commit([1, 0])
    assert trainable(compass) == [-1.0, 0.0, 0.0]
    compass.commit([2, 0])
    assert trainable(compass) == [-1.0, -1.0, 0.0]


def test_fedbuff_divides_by_the_number_of_updates_not_by_the_sum_of_weights() -> None:
    fedbuff = weighted_sum(
        staleness=HALF, weighting="staleness", scale="mean-count", server={"learning_rate": 2.0}
    )
    fedbuff.fold(0, state(2.0, 0.0, 4.0), by(0.9))
    fedbuff.fold(0, state(0.0, 2.0, 4.0), by(0.1))
    fedbuff.commit([0])  # 2 * 1/2 * (0.5 Δ1 + 0.5 Δ2)
    assert trainable(fedbuff) == [-1.0, -1.0, -4.0]


def test_fedasync_mixes_the_clients_model_in() -> None:
    fedasync = weighted_sum(
        state(1.0, 2.0, 3.0), staleness={"alpha": 0.5}, weighting="staleness", payload="model"
    )
    assert fedasync.payload == "model"
    assert fedasync.fold(0, state(5.0, 2.0, 0.0), by(staleness=3)) == 0.25
    fedasync.commit([0])  # 0.75 w + 0.25 w_i
    assert trainable(fedasync) == [2.0, 2.0, 2.25]


def test_end_models_can_be_applied_directly() -> None:
    mixing = weighted_sum(
        state(1.0, 2.0, 3.0), staleness=HALF, payload="model", server={"learning_rate": 0.1}
    )
    mixing.fold(DIRECT, state(3.0, 2.0, 1.0), by())
    mixing.commit([DIRECT])
    assert trainable(mixing) == [2.0, 2.0, 2.0]


# Server optimizer, normalization, direct commits


def test_merges_go_through_momentum_and_first_answers_do_not() -> None:
    compass = weighted_sum(staleness=HALF, server={"optimizer": "momentum", "beta": 0.5})
    compass.fold(DIRECT, state(4.0, 0.0, 0.0), by())
    compass.commit([DIRECT])
    assert trainable(compass) == [-2.0, 0.0, 0.0]
    for _ in range(2):
        compass.fold(1, state(0.0, 4.0, 0.0), by())
        compass.commit([1])
    assert trainable(compass) == [-2.0, -5.0, 0.0]  # 2, then 0.5 * 2 + 2


def test_normalized_merges_weigh_a_step_alike_whoever_took_it() -> None:
    compass = weighted_sum(staleness=HALF, normalized=True)
    compass.fold(1, state(8.0, 0.0, 0.0), by(0.25, steps=4))  # 0.5 * 0.25 * 8 / 4 = 0.25
    compass.fold(0, state(0.0, 8.0, 0.0), by(0.75, steps=2))  # 0.5 * 0.75 * 8 / 2 = 1.5
    compass.commit([1, 0])  # times (0.25 * 4 + 0.75 * 2) / 1 = 2.5
    assert trainable(compass) == [-0.625, -3.75, 0.0]


def test_with_equal_steps_normalization_changes_nothing() -> None:
    plain, normalized = weighted_sum(staleness=HALF), weighted_sum(staleness=HALF, normalized=True)
    for compass in (plain, normalized):
        compass.fold(1, state(8.0, 1.0, 3.0), by(0.25, steps=4))
        compass.fold(1, state(0.0, 8.0, 5.0), by(0.5, steps=4))
        compass.commit([1])
    assert trainable(plain) == trainable(normalized)


def test_first_answers_are_not_normalized() -> None:
    compass = weighted_sum(staleness=HALF, normalized=True)
    compass.fold(DIRECT, state(8.0, 0.0, 0.0), by(0.25, steps=4))
    compass.commit([DIRECT])
    assert trainable(compass) == [-1.0, 0.0, 0.0]


def test_a_first_answer_leaves_the_late_updates_waiting() -> None:
    compass = weighted_sum(staleness=HALF, normalized=True)
    compass.fold(0, state(0.0, 8.0, 0.0), by(steps=4))
    compass.fold(DIRECT, state(8.0, 0.0, 0.0), by(steps=4))
    compass.commit([DIRECT])
    assert trainable(compass) == [-4.0, 0.0, 0.0]
    compass.commit([0])
    assert trainable(compass) == [-4.0, -4.0, 0.0]


def test_normalization_of_end_models_is_refused() -> None:
    with pytest.raises(SettingsError, match="normalized is true with payload 'model'"):
        AggregationSettings(normalized=True, payload="model")


def test_nested_settings_name_the_field() -> None:
    with pytest.raises(SettingsError, match=r"staleness: alpha is 25; allowed: a number above 0"):
        weighted_sum(staleness={"alpha": 25})


# Model buffers


def test_batch_norm_statistics_move_by_the_sum_of_weights() -> None:
    compass = weighted_sum(statistics(8.0), staleness=HALF, normalized=True, model_buffers="moving")
    compass.fold(1, statistics(4.0), by(0.5, steps=7))
    compass.fold(1, statistics(0.0), by(0.5, steps=2))
    compass.commit([1])  # s = 0.5, the mean is 2
    assert compass.model.averaged.tolist() == [5.0]


def test_the_statistics_of_a_fresh_network_are_not_averaged_in() -> None:
    compass = weighted_sum(statistics(8.0), staleness=HALF, model_buffers="corrected")
    compass.fold(1, statistics(4.0), by(0.5))
    compass.fold(0, statistics(0.0), by(0.5))
    compass.commit([1, 0])  # the first merge replaces, with s = c = 1/2
    assert compass.model.averaged.tolist() == [2.0]
    compass.fold(DIRECT, statistics(6.0), by(0.5))
    compass.commit([DIRECT])  # s = 1/4, c = 3/4 * 1/2 + 1/4 = 5/8, so g = 2/5
    assert compass.model.averaged.tolist() == pytest.approx([3 / 5 * 2.0 + 2 / 5 * 6.0])
    compass.fold(0, statistics(9.0), by(2.0))
    compass.commit([0])  # s = 1
    assert compass.model.averaged.tolist() == [9.0]


def test_what_was_merged_counts_as_in_an_exponential_mean_of_the_merges_alone() -> None:
    """As b = Σ_k s_k Π_{j>k} (1-s_j) mean_k over the same sum without the means."""
    merges = [(2.0, 0.3), (5.0, 0.05), (1.0, 0.6), (7.0, 0.2), (3.0, 0.01)]
    compass = weighted_sum(statistics(1e6), weighting="share", model_buffers="corrected")
    mean = total = 0.0
    for value, share in merges:
        compass.fold(1, statistics(value), by(share))
        compass.commit([1])
        mean, total = (1 - share) * mean + share * value, (1 - share) * total + share
        assert compass.model.averaged.tolist() == pytest.approx([mean / total])


@pytest.mark.parametrize(
    "model",
    [
        FlatState(torch.zeros(3), torch.tensor([0.7]), torch.tensor([0, 3])),
        FlatState(torch.zeros(3), torch.tensor([0.7]), torch.tensor([], dtype=torch.int64)),
    ],
    ids=["some batches were counted", "no counters"],
)
def test_statistics_that_may_be_information_are_averaged_in(model: FlatState) -> None:
    rules = [weighted_sum(model.clone(), model_buffers=name) for name in ("corrected", "moving")]
    for rule in rules:
        for value in (0.1, 0.3, 0.9):
            rule.fold(1, replace(model, averaged=torch.tensor([value])), by(0.3, staleness=2))
            rule.commit([1])
    assert torch.equal(rules[0].model.averaged, rules[1].model.averaged)


@pytest.mark.parametrize("scale", ["mean-share", "none"])
def test_full_merges_are_bit_equal_with_and_without_correction(scale: str) -> None:
    rules = [
        weighted_sum(weighting="share", scale=scale, model_buffers=name)
        for name in ("corrected", "moving")
    ]
    for rule in rules:
        for value in (0.1, 0.7, 1.3):
            rule.fold(0, statistics(value), by(0.7))
            rule.fold(0, statistics(value / 3), by(0.3 + 0.1 * value))  # more than 1 in all
            rule.commit([0])
    assert torch.equal(rules[0].model.averaged, rules[1].model.averaged)


def test_statistics_can_be_replaced_by_the_plain_mean_of_the_merged() -> None:
    rule = weighted_sum(statistics(8.0), scale="mean-count", model_buffers="replace")
    rule.fold(1, statistics(4.0, counted=2), by(0.01, staleness=9))
    rule.fold(1, statistics(1.0), by(0.9))
    rule.fold(0, statistics(1.0), by(0.09))
    rule.commit([1, 0])
    assert rule.model.averaged.tolist() == [2.0]
    assert rule.model.counted.tolist() == [2]
    rule.fold(DIRECT, statistics(5.0), by(0.1))
    rule.commit([DIRECT])
    assert rule.model.averaged.tolist() == [5.0]


def test_how_statistics_are_merged_changes_nothing_of_the_weights() -> None:
    rules = [
        weighted_sum(model_buffers=name, staleness={"alpha": 0.6}, payload="model")
        for name in ("corrected", "moving", "replace")
    ]
    for rule in rules:
        assert rule.fold(1, state(0.1, 0.2, 0.3), by(0.7)) == pytest.approx(0.42)
        rule.commit([1])
    assert len({tuple(trainable(rule)) for rule in rules}) == 1


def test_batch_norm_statistics_never_move_past_their_mean() -> None:
    compass = weighted_sum(
        statistics(8.0), weighting="staleness", staleness={"alpha": 1.0}, model_buffers="moving"
    )
    for value in (1.0, 3.0):  # the weights sum to 2
        compass.fold(1, statistics(value), by())
    compass.commit([1])
    assert compass.model.averaged.tolist() == [2.0]


def test_a_full_synchronous_round_replaces_the_statistics() -> None:
    fedavg = weighted_sum(statistics(1e6), weighting="share", scale="mean-share")
    for share in (0.1, 0.2, 0.3):
        fedavg.fold(0, statistics(2.0), by(share))
    fedavg.commit([0])
    assert fedavg.model.averaged.tolist() == pytest.approx([2.0])


def test_integer_buffers_take_the_maximum_of_present_and_contributions() -> None:
    compass = weighted_sum(state(0.0, 0.0, 0.0, counted=5))
    for count in (3, 9, 4):
        compass.fold(count, state(0.0, 0.0, 0.0, counted=count), by())
    compass.commit([3])
    assert compass.model.counted.tolist() == [5]
    compass.commit([9, 4])
    assert compass.model.counted.tolist() == [9]


@settings(deadline=None)
@given(
    variances=st.lists(st.floats(0, 1e4, width=32), min_size=1, max_size=12),
    optimizer=st.sampled_from(["momentum", "adam", "yogi", "adagrad"]),
    share=st.floats(0.01, 1),
    model_buffers=st.sampled_from(["corrected", "moving", "replace"]),
)
def test_variances_never_turn_negative_under_any_server_optimizer(
    variances: list[float], optimizer: str, share: float, model_buffers: str
) -> None:
    server = {"optimizer": optimizer, "learning_rate": 3.0}
    compass = weighted_sum(server=server, model_buffers=model_buffers)
    for variance in variances:
        compass.fold(1, state(1.0, -1.0, 0.0, averaged=variance), by(share))
        compass.commit([1])
        assert 0 <= compass.model.averaged.item() <= max(1.0, *variances) * 1.001


@pytest.mark.parametrize("model_buffers", ["corrected", "moving"])
def test_a_weight_that_vanishes_changes_nothing(model_buffers: str) -> None:
    compass = weighted_sum(
        state(1.0, 2.0, 3.0),
        staleness={"a": 5000.0},
        scale="mean-count",
        model_buffers=model_buffers,
    )
    assert compass.fold(1, state(9.0, 9.0, 9.0, averaged=9.0), by(staleness=9)) == 0
    compass.commit([1])
    assert trainable(compass) == [1.0, 2.0, 3.0]
    assert compass.model.averaged.tolist() == [1.0]


# What must not happen


@pytest.mark.parametrize(
    "bad",
    [
        state(float("nan"), 0.0, 0.0),
        state(float("inf"), 0.0, 0.0),
        state(1.0),
        state(1.0, 2.0, 3.0, 4.0),
        FlatState(torch.ones(3).double(), torch.ones(1), torch.tensor([0])),
    ],
)
def test_a_refused_update_leaves_the_model_bit_identical(bad: FlatState) -> None:
    refused, untroubled = weighted_sum(), weighted_sum()
    for aggregator in (refused, untroubled):
        aggregator.fold(1, state(0.1, 0.2, 0.3), by(0.3))
    assert check_update(bad, LAYOUT, GuardSettings()) is not None
    for aggregator in (refused, untroubled):
        aggregator.commit([1])
    assert torch.equal(refused.model.trainable, untroubled.model.trainable)


@pytest.mark.parametrize("fold_first", [True, False])
@pytest.mark.parametrize(
    "bad",
    [state(1.0), FlatState(torch.ones(3).half(), torch.ones(1), torch.tensor([0]))],
)
def test_an_unchecked_update_neither_broadcasts_nor_changes_anything(
    bad: FlatState, fold_first: bool
) -> None:
    compass = weighted_sum(staleness=HALF)
    if fold_first:
        compass.fold(1, state(2.0, 2.0, 2.0), by())
    with pytest.raises(LayoutMismatch, match="the update's trainable vector is"):
        compass.fold(1, bad, by())
    compass.fold(1, state(2.0, 0.0, 0.0), by())
    compass.commit([1])
    assert trainable(compass) == ([-2.0, -1.0, -1.0] if fold_first else [-1.0, 0.0, 0.0])


@pytest.mark.parametrize(("held", "empty"), [(1, [2, 0]), (1, [DIRECT]), (DIRECT, [1, 0])])
def test_a_commit_of_nothing_is_an_error_that_changes_nothing(held: int, empty: list[int]) -> None:
    compass = weighted_sum(staleness=HALF)
    compass.fold(held, state(2.0, 2.0, 2.0), by())
    with pytest.raises(ValueError, match="nothing to merge"):
        compass.commit(empty)
    compass.commit([held])
    assert trainable(compass) == [-1.0, -1.0, -1.0]


def test_the_direct_buffer_is_never_merged_with_others() -> None:
    compass = weighted_sum(staleness=HALF)
    compass.fold(1, state(2.0, 2.0, 2.0), by())
    with pytest.raises(ValueError, match=r"buffers are \[1, -1\]; allowed: -1 alone, or others"):
        compass.commit([1, DIRECT])
    compass.commit([1])
    assert trainable(compass) == [-1.0, -1.0, -1.0]


@pytest.mark.parametrize(
    "values", [{"staleness": -1}, {"share": 0.0}, {"share": float("nan")}, {"steps": 0}]
)
def test_a_contribution_out_of_range_cannot_be_made(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="staleness >= 0, share > 0 and steps >= 1"):
        Contribution(**({"staleness": 0, "share": 0.5, "steps": 1} | values))


def test_updates_are_only_read() -> None:
    compass = weighted_sum(server={"optimizer": "adam"})
    update = state(1.0, 2.0, 3.0, averaged=4.0, counted=5)
    compass.fold(1, update, by(0.5))
    compass.fold(1, update, by(0.5))
    compass.commit([1])
    assert update.trainable.tolist() == [1.0, 2.0, 3.0]
    assert update.averaged.tolist() == [4.0]
    assert update.counted.tolist() == [5]


# Checkpoints


def journey(aggregator: Aggregator, folds: range) -> None:
    """Fold updates into three buffers and commit some, the same for the same range."""
    for number in folds:
        update = state(sin(number), cos(number), -sin(number), averaged=number, counted=number)
        aggregator.fold(number % 3, update, by(0.1, staleness=number % 4, steps=1 + number % 5))
        if number % 4 == 3:
            aggregator.commit([number % 3, 0])


def through_json(saved: AggregatorState) -> AggregatorState:
    """As a file would keep it."""
    tensors = {name: tensor.clone() for name, tensor in saved.tensors.items()}
    return AggregatorState(tensors, json.loads(json.dumps(saved.facts)))


@settings(deadline=None)
@given(
    stop=st.integers(0, 12),
    optimizer=st.sampled_from(["plain", "momentum", "adam", "yogi", "adagrad"]),
    normalized=st.booleans(),
    model_buffers=st.sampled_from(["corrected", "moving", "replace"]),
)
def test_going_on_from_a_checkpoint_is_bit_equal_to_never_stopping(
    stop: int, optimizer: str, normalized: bool, model_buffers: str
) -> None:
    server = {"optimizer": optimizer}
    unbroken, stopped, resumed = (
        weighted_sum(server=server, normalized=normalized, model_buffers=model_buffers)
        for _ in range(3)
    )
    journey(unbroken, range(13))
    journey(stopped, range(stop))
    resumed.fold(7, state(9.0, 9.0, 9.0), by())  # forgotten by restoring
    resumed.restore(through_json(stopped.state()))
    journey(resumed, range(stop, 13))
    ours, theirs = resumed.state(), unbroken.state()
    assert ours.facts == theirs.facts
    assert list(ours.tensors) == list(theirs.tensors)
    for name, tensor in theirs.tensors.items():
        assert torch.equal(ours.tensors[name], tensor), name


def test_restoring_keeps_the_models_own_memory() -> None:
    model = state(1.0, 2.0, 3.0)
    aggregator = weighted_sum(model)
    aggregator.restore(through_json(weighted_sum(state(4.0, 5.0, 6.0)).state()))
    assert aggregator.model is model
    assert model.trainable.tolist() == [4.0, 5.0, 6.0]


Damage = Literal["tensor", "informed", "shape", "dtype", "totals", "section", "server"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("tensor", "has no tensor 'buffer.1.averaged'"),
        ("informed", "has no tensor 'model_buffers.informed'"),
        ("shape", r"'model.trainable' is torch.float32\[2\], this model needs torch.float32\[3\]"),
        ("dtype", "'model.averaged' is torch.float64"),
        ("totals", r"totals of 'buffer.1' is .*KeyError\('share_sum'\)"),
        ("section", r"keeps \['buffers', 'tiers'\], this one keeps \['buffers'\]"),
        ("server", "restore with the optimizer"),
    ],
)
def test_a_checkpoint_that_does_not_fit_changes_nothing(damage: Damage, message: str) -> None:
    compass = weighted_sum(staleness=HALF)
    compass.fold(1, state(2.0, 2.0, 2.0), by())
    saved = through_json(compass.state())
    match damage:
        case "tensor":
            del saved.tensors["buffer.1.averaged"]
        case "informed":
            del saved.tensors["model_buffers.informed"]
        case "shape":
            saved.tensors["model.trainable"] = torch.ones(2)
        case "dtype":
            saved.tensors["model.averaged"] = torch.ones(1).double()
        case "totals":
            del saved.facts["buffers"]["buffer.1"]["share_sum"]
        case "section":
            saved.facts["tiers"] = {}
        case "server":
            saved.tensors["server.velocity"] = torch.ones(3)
    with pytest.raises(CheckpointError, match=message):
        compass.restore(saved)
    compass.commit([1])
    assert trainable(compass) == [-1.0, -1.0, -1.0]


def test_server_state_of_another_size_is_refused() -> None:
    compass = weighted_sum(server=ServerSettings(optimizer="momentum"))
    saved = through_json(compass.state())
    saved.tensors["server.velocity"] = torch.ones(2)
    with pytest.raises(CheckpointError, match=r"'server\.velocity' is"):
        compass.restore(saved)


# Sums that were made elsewhere


@pytest.mark.parametrize("model_buffers", ["corrected", "moving", "replace"])
def test_a_sum_that_was_made_elsewhere_is_merged_like_the_updates_in_it(
    model_buffers: str,
) -> None:
    settings: dict[str, Any] = {"normalized": True, "weighting": "share"}
    settings["model_buffers"] = model_buffers
    seen, unseen = weighted_sum(**settings), weighted_sum(**settings)
    updates = [(state(4.0, 0.0, 8.0), by(0.25, steps=2)), (state(2.0, 6.0, 1.0), by(0.5, steps=4))]
    total = state(0.0, 0.0, 0.0, averaged=0.0)
    for update, contribution in updates:
        seen.fold(0, update, contribution)
        step_weight, weight = unseen.weights(0, contribution)
        total.trainable.add_(update.trainable, alpha=step_weight)
        total.averaged.add_(update.averaged, alpha=weight)
    unseen.put(0, total, [contribution for _, contribution in updates])
    seen.commit((0,))
    unseen.commit((0,))
    assert trainable(unseen) == pytest.approx(trainable(seen))
    assert unseen.model.averaged.tolist() == pytest.approx(seen.model.averaged.tolist())


def test_a_sum_is_put_into_an_empty_buffer_of_the_right_layout_only() -> None:
    rule = weighted_sum()
    rule.fold(0, state(1.0, 1.0, 1.0), by())
    with pytest.raises(ValueError, match="holds updates; commit it before a sum is put there"):
        rule.put(0, state(1.0, 1.0, 1.0), [by()])
    with pytest.raises(LayoutMismatch):
        rule.put(1, state(1.0, 1.0), [by()])
