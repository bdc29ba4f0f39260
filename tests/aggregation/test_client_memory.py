"""What is kept of clients, with three numbers: what they sent last, and how stale it was."""

import pytest
import torch

from fedcompass.aggregation import AggregationSettings, ClientMemory, Contribution, FlatState
from fedcompass.aggregation.last_sent import LastSent
from fedcompass.aggregation.mean_staleness import MeanStaleness
from fedcompass.errors import CheckpointError

LIKE = torch.zeros(3)
BY = Contribution(staleness=2, share=0.5, steps=4)


def update(*numbers: float) -> FlatState:
    return FlatState(torch.tensor(numbers), torch.tensor([1.0]), torch.tensor([2]))


def memory(keeps_updates: bool = False, **settings: object) -> ClientMemory:
    made = AggregationSettings(**settings)  # type: ignore[arg-type]
    return ClientMemory(made, update(0.0, 0.0, 0.0), keeps_updates=keeps_updates)


def test_without_pieces_an_update_is_folded_as_it_is_and_nothing_is_kept() -> None:
    made, sent = memory(), update(1.0, 2.0, 3.0)
    made.started("a", sent)
    prepared, contribution = made.prepared("a", 1, 0, sent, BY)
    made.merged([1])
    made.forget("a")
    assert prepared.trainable is sent.trainable
    assert contribution == BY
    assert (made.payload, made.state()) == (None, ({}, {}))


def test_an_update_to_be_repeated_is_a_copy() -> None:
    made, sent = memory(keeps_updates=True), update(1.0, 2.0, 3.0)
    made.prepared("a", 1, 0, sent, BY)
    sent.trainable.zero_()
    kept, _ = made.repeated("a", BY)
    assert kept.trainable.tolist() == [1.0, 2.0, 3.0]


def test_a_repeated_update_weighs_by_its_clients_mean_staleness_too() -> None:
    made = memory(keeps_updates=True, staleness_window=3)
    made.prepared("a", 1, 0, update(1.0, 2.0, 3.0), BY)
    _, contribution = made.repeated("a", BY)
    assert contribution == Contribution(staleness=2, share=1.5, steps=4)


def test_the_window_drops_the_oldest_staleness() -> None:
    made = MeanStaleness(window=2)
    means = []
    for staleness in (9, 1, 3, 0):
        made.take("a", staleness)
        means.append(made.of("a"))
    assert means == [10.0, 6.0, 3.0, 2.5]


def test_each_client_has_its_own_mean_and_begins_anew_when_it_comes_back() -> None:
    made = memory(staleness_window=5)
    stale = Contribution(staleness=9, share=0.5, steps=4)
    assert made.prepared("a", 1, 0, update(0.0, 0.0, 0.0), stale)[1].share == 5.0
    assert made.prepared("b", 2, 0, update(0.0, 0.0, 0.0), BY)[1].share == 1.5
    made.forget("a")
    assert made.prepared("a", 3, 0, update(0.0, 0.0, 0.0), BY)[1].share == 1.5


def test_a_change_is_measured_from_what_the_client_sent_last() -> None:
    made, given, end = LastSent(LIKE), torch.ones(3), torch.tensor([3.0, 1.0, 0.0])
    made.started("a", given)
    assert made.change("a", end).tolist() == [-2.0, 0.0, 1.0]
    made.started("a", given)  # only the first one counts
    end.zero_()
    assert made.change("a", torch.tensor([4.0, 1.0, 0.0])).tolist() == [-1.0, 0.0, 0.0]
    assert given.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("piece", ["keeps_updates", "since_last", "calibrated"])
def test_a_checkpoint_without_a_clients_tensor_is_refused(piece: str) -> None:
    plain_sum = {"weighting": "share"} if piece == "since_last" else {}
    made = memory(**{piece: True}, **plain_sum)  # type: ignore[arg-type]
    made.started("a", update(1.0, 1.0, 1.0))
    made.prepared("a", 1, 0, update(1.0, 2.0, 3.0), BY)
    tensors, facts = made.state()
    with pytest.raises(CheckpointError, match="the checkpoint has no tensor"):
        memory(**{piece: True}, **plain_sum).restore({}, facts)  # type: ignore[arg-type]
    twin = memory(**{piece: True}, **plain_sum)  # type: ignore[arg-type]
    twin.restore(tensors, facts)
    assert str(twin.state()) == str(made.state())


def test_a_checkpoint_of_other_pieces_is_refused() -> None:
    message = r"keeps \['staleness'\] of each client, this run keeps \['last'\]; resume with the"
    with pytest.raises(CheckpointError, match=message):
        memory(keeps_updates=True).restore(*memory(staleness_window=1).state())
