import json
from math import cos, sin

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcompass.aggregation import (
    AggregatorState,
    Contribution,
    FlatState,
    ServerSettings,
    TierAverage,
)
from fedcompass.errors import CheckpointError, MergeNotFinite
from fedcompass.settings.aggregation import TierSettings
from fedcompass.vocabulary import DIRECT


def state(*trainable: float, averaged: float = 0.0, counted: int = 0) -> FlatState:
    return FlatState(
        torch.tensor(trainable), torch.tensor([float(averaged)]), torch.tensor([counted])
    )


def fedat(server: ServerSettings | None = None) -> TierAverage:
    return TierAverage(state(0.0, 0.0, 0.0), TierSettings(server=server or ServerSettings()))


def finish(
    aggregator: TierAverage, tier: int, *models: FlatState, shares: tuple[float, ...] = (1.0,)
) -> list[float]:
    """Fold end models into a tier, commit it, and give back the global weights."""
    for model, share in zip(models, shares, strict=True):
        contribution = Contribution(staleness=0, share=share, steps=1)
        assert aggregator.fold(tier, model, contribution) == share
    aggregator.commit([tier])
    return [round(value, 6) for value in aggregator.model.trainable.tolist()]


def test_clients_send_their_end_models() -> None:
    assert fedat().payload == "model"


def test_the_common_first_round_gives_the_mean_by_shares() -> None:
    aggregator = fedat()
    models = state(4.0, 0.0, 2.0, averaged=1.0, counted=3), state(0.0, 8.0, 2.0, averaged=5.0)
    assert finish(aggregator, 0, *models, shares=(0.125, 0.375)) == [1.0, 6.0, 2.0]
    assert aggregator.model.averaged.tolist() == [4.0]
    assert aggregator.model.counted.tolist() == [3]


def test_a_tiers_model_is_the_mean_of_those_who_answered() -> None:
    models = state(4.0, 0.0, 2.0), state(0.0, 8.0, 2.0)
    assert finish(fedat(), 2, *models, shares=(0.125, 0.375)) == [1.0, 6.0, 2.0]


def test_by_samples_a_tier_weighs_what_those_who_answered_last_have() -> None:
    aggregator = TierAverage(state(0.0, 0.0, 0.0), TierSettings(tier_weights="samples"))
    finish(aggregator, 1, state(0.0, 4.0, 0.0), state(0.0, 4.0, 8.0), shares=(0.25, 0.25))
    for _ in range(3):  # however often a tier has finished
        assert finish(aggregator, 2, state(8.0, 0.0, 0.0), shares=(0.5,)) == [4.0, 2.0, 2.0]
    assert finish(aggregator, 2, state(8.0, 0.0, 0.0), shares=(1.5,)) == [6.0, 1.0, 1.0]
    resumed = TierAverage(state(0.0, 0.0, 0.0), TierSettings(tier_weights="samples"))
    resumed.restore(aggregator.state())
    for each in (aggregator, resumed):
        assert finish(each, 1, state(0.0, 0.0, 4.0), shares=(0.5,)) == [6.0, 0.0, 1.0]


def test_a_tier_weighs_as_often_as_its_mirror_tier_has_finished() -> None:
    aggregator = fedat()
    finish(aggregator, 2, state(0.0, 1.0, 0.0))
    finish(aggregator, 3, state(0.0, 0.0, 1.0))
    for _ in range(3):
        finish(aggregator, 1, state(1.0, 0.0, 0.0))
    # T = (3, 1, 2): tier 1 weighs T_3 / T = 2/6, tier 2 T_2 / T = 1/6, tier 3 T_1 / T = 3/6
    assert finish(aggregator, 3, state(0.0, 0.0, 1.0)) == [0.333333, 0.166667, 0.5]


def test_tiers_that_have_not_finished_are_left_out_before_the_mirroring() -> None:
    aggregator = fedat()
    assert finish(aggregator, 3, state(0.0, 0.0, 1.0)) == [0.0, 0.0, 1.0]
    finish(aggregator, 1, state(1.0, 0.0, 0.0))
    # T = (2, 0, 1) over tiers 1 and 3: tier 1 weighs 1/3, tier 3 weighs 2/3
    assert finish(aggregator, 1, state(1.0, 0.0, 0.0)) == [0.333333, 0.0, 0.666667]


def test_model_buffers_are_averaged_alike_and_integers_take_the_maximum() -> None:
    aggregator = fedat()
    for _ in range(3):
        finish(aggregator, 1, state(0.0, 0.0, 0.0, averaged=4.0, counted=9))
    finish(aggregator, 2, state(0.0, 0.0, 0.0, averaged=8.0, counted=5))
    assert aggregator.model.averaged.tolist() == [7.0]  # 1/4 * 4 + 3/4 * 8
    assert aggregator.model.counted.tolist() == [9]


def test_the_plain_optimizer_lands_exactly_on_the_target() -> None:
    aggregator = TierAverage(state(1e8, 1e8, 1e8))
    finish(aggregator, 1, state(0.1, 0.2, 0.3))
    assert torch.equal(aggregator.model.trainable, torch.tensor([0.1, 0.2, 0.3]))


def test_a_server_optimizer_sees_the_way_to_the_target_as_its_step() -> None:
    halfway = fedat(ServerSettings(learning_rate=0.5))
    assert finish(halfway, 1, state(4.0, 2.0, 0.0)) == [2.0, 1.0, 0.0]
    momentum = fedat(ServerSettings(optimizer="momentum", beta=0.5))
    assert finish(momentum, 1, state(4.0, 2.0, 0.0)) == [4.0, 2.0, 0.0]
    assert finish(momentum, 1, state(4.0, 2.0, 0.0)) == [6.0, 3.0, 0.0]


def test_the_first_round_bypasses_the_server_optimizer() -> None:
    assert finish(fedat(ServerSettings(learning_rate=0.5)), 0, state(4.0, 2.0, 0.0)) == [4, 2, 0]


@settings(deadline=None)
@given(order=st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_tiers_that_agree_make_the_global_model_agree(order: list[int]) -> None:
    aggregator = fedat()
    for tier in order:
        assert finish(aggregator, tier, state(1.0, -2.0, 3.0)) == [1.0, -2.0, 3.0]


def test_one_tier_is_committed_at_a_time_and_never_directly() -> None:
    aggregator = fedat()
    aggregator.fold(1, state(1.0, 1.0, 1.0), Contribution(staleness=0, share=1.0, steps=1))
    with pytest.raises(ValueError, match="one tier at a time"):
        aggregator.commit([1, 0])
    with pytest.raises(ValueError, match="one tier at a time"):
        aggregator.commit([DIRECT])
    with pytest.raises(ValueError, match="nothing to merge"):
        aggregator.commit([2])
    aggregator.commit([1])
    assert aggregator.model.trainable.tolist() == [1.0, 1.0, 1.0]


def journey(aggregator: TierAverage, folds: range) -> None:
    for number in folds:
        update = state(sin(number), cos(number), -sin(number), averaged=number, counted=number)
        tier = 1 + number % 3
        contribution = Contribution(staleness=0, share=0.1 + 0.1 * (number % 4), steps=1)
        aggregator.fold(tier, update, contribution)
        if number % 4 != 0:
            aggregator.commit([tier])


@settings(deadline=None)
@given(stop=st.integers(0, 12), optimizer=st.sampled_from(["plain", "momentum", "adam"]))
def test_going_on_from_a_checkpoint_is_bit_equal_to_never_stopping(
    stop: int, optimizer: str
) -> None:
    server = ServerSettings.model_validate({"optimizer": optimizer})
    unbroken, stopped, resumed = (fedat(server) for _ in range(3))
    journey(unbroken, range(13))
    journey(stopped, range(stop))
    saved = stopped.state()
    resumed.restore(AggregatorState(saved.tensors, json.loads(json.dumps(saved.facts))))
    journey(resumed, range(stop, 13))
    ours, theirs = resumed.state(), unbroken.state()
    assert ours.facts == theirs.facts
    assert ours.tensors.keys() == theirs.tensors.keys()
    for name, tensor in theirs.tensors.items():
        assert torch.equal(ours.tensors[name], tensor), name


def test_a_checkpoint_that_does_not_fit_is_refused() -> None:
    aggregator = fedat()
    finish(aggregator, 1, state(1.0, 1.0, 1.0))
    saved = aggregator.state()
    without_tiers = AggregatorState(saved.tensors, {"buffers": {}})
    with pytest.raises(CheckpointError, match="restore with the strategy"):
        aggregator.restore(without_tiers)
    without_rounds = AggregatorState(saved.tensors, {"buffers": {}, "tiers": {"1": {}}})
    with pytest.raises(CheckpointError, match="tier 1 is incomplete"):
        aggregator.restore(without_rounds)
    assert aggregator.model.trainable.tolist() == [1.0, 1.0, 1.0]


def test_a_round_whose_mean_is_not_finite_is_not_merged() -> None:
    model = FlatState(torch.ones(2), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    tiers = TierAverage(model)
    half = Contribution(staleness=0, share=1.5, steps=1)  # a joiner may have more than all
    for _ in range(2):
        huge = FlatState(torch.full((2,), 3e38), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
        tiers.fold(1, huge, half)
    with pytest.raises(MergeNotFinite):
        tiers.commit((1,))
    assert torch.equal(model.trainable, torch.ones(2))
    tiers.fold(1, model.clone(), half)  # the buffer was emptied
    tiers.commit((1,))
    assert torch.equal(model.trainable, torch.ones(2))
