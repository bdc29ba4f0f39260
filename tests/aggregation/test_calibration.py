"""CA2FL's calibration with three numbers: Δ_i - h_i + h, caches that change at merges only."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedcompass.aggregation.calibration import Calibration
from fedcompass.errors import CheckpointError

LIKE = torch.zeros(3)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values)


def merged(made: Calibration, client: str, task: int, change: Tensor, share: float = 0.5) -> None:
    made.take(client, task, change, share, steps=1)
    made.merged([task])


def calibrated(made: Calibration, client: str, change: Tensor, steps: int = 1) -> list[float]:
    return made.calibrated(client, change, steps).tolist()


def test_before_anything_is_merged_a_change_stays_as_it_is() -> None:
    change = numbers(1.0, 2.0, 3.0)
    assert calibrated(Calibration(LIKE), "a", change) == [1.0, 2.0, 3.0]
    assert change.tolist() == [1.0, 2.0, 3.0]


def test_a_change_loses_what_its_client_sent_last_and_gains_the_mean_of_all() -> None:
    made = Calibration(LIKE)
    merged(made, "a", 1, numbers(4.0, 0.0, 0.0), share=0.25)
    merged(made, "b", 2, numbers(0.0, 4.0, 0.0), share=0.75)
    # h = [1, 3, 0]
    assert calibrated(made, "a", numbers(5.0, 1.0, 1.0)) == [2.0, 4.0, 1.0]
    assert calibrated(made, "b", numbers(5.0, 1.0, 1.0)) == [6.0, 0.0, 1.0]
    assert calibrated(made, "new", numbers(5.0, 1.0, 1.0)) == [6.0, 4.0, 1.0]


def test_of_two_updates_in_a_buffer_neither_is_calibrated_against_the_other() -> None:
    made = Calibration(LIKE)
    merged(made, "a", 1, numbers(2.0, 2.0, 2.0))
    for task in (2, 3):
        made.take("a", task, numbers(9.0, 9.0, 9.0), 0.5, steps=1)
        assert calibrated(made, "a", numbers(9.0, 9.0, 9.0)) == [8.0, 8.0, 8.0]  # 9 - 2 + 1
    made.merged([2, 3])
    assert calibrated(made, "a", numbers(9.0, 9.0, 9.0)) == [4.5, 4.5, 4.5]  # 9 - 9 + 4.5


def test_an_older_update_that_is_merged_later_does_not_replace_a_newer_one() -> None:
    made = Calibration(LIKE)
    for task, value in ((1, 1.0), (2, 6.0)):
        made.take("a", task, numbers(value, value, value), 0.5, steps=1)
    made.merged([2])
    made.merged([1])
    assert calibrated(made, "a", LIKE) == [-3.0, -3.0, -3.0]  # 0 - 6 + 3


def test_the_copy_is_its_own_whatever_becomes_of_the_update() -> None:
    made = Calibration(LIKE)
    change = numbers(2.0, 2.0, 2.0)
    merged(made, "a", 1, change)
    change.zero_()
    assert calibrated(made, "a", numbers(2.0, 2.0, 2.0)) == [1.0, 1.0, 1.0]


def test_where_averaging_is_normalized_caches_are_per_step() -> None:
    made = Calibration(LIKE, per_step=True)
    made.take("a", 1, numbers(8.0, 4.0, 0.0), 0.5, steps=4)
    made.merged([1])
    # h_a = [2, 1, 0], h = [1, 0.5, 0]; ten steps of each
    assert calibrated(made, "a", numbers(20.0, 20.0, 20.0), steps=10) == [10.0, 15.0, 20.0]


def test_a_client_that_is_gone_no_longer_counts_in_the_mean() -> None:
    made = Calibration(LIKE)
    merged(made, "a", 1, numbers(2.0, 2.0, 2.0))
    merged(made, "b", 2, numbers(4.0, 4.0, 4.0))
    made.take("a", 3, numbers(8.0, 8.0, 8.0), 0.5, steps=1)
    made.take("b", 4, numbers(4.0, 4.0, 4.0), 0.5, steps=1)
    made.forget("a")
    made.forget("nobody")
    made.merged([3, 4])  # what it had sent is merged, but not cached
    assert calibrated(made, "new", LIKE) == [2.0, 2.0, 2.0]
    assert calibrated(made, "a", LIKE) == [2.0, 2.0, 2.0]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(-8, 8, width=16), st.booleans()), max_size=20
    )
)
def test_the_mean_is_that_of_the_last_merged_updates(
    updates: list[tuple[str, float, bool]],
) -> None:
    made = Calibration(LIKE)
    last: dict[str, float] = {}
    for task, (client, value, leaves) in enumerate(updates):
        merged(made, client, task, numbers(value, 2 * value, 0.0), share=0.25)
        last[client] = value
        if leaves:
            made.forget(client)
            del last[client]
    mean = 0.25 * sum(last.values())
    assert calibrated(made, "new", LIKE) == pytest.approx([mean, 2 * mean, 0.0], abs=1e-4)


def test_a_restored_one_goes_on_bit_equal() -> None:
    made = Calibration(LIKE)
    merged(made, "a.b", 1, numbers(0.1, 0.2, 0.3), share=0.3)
    made.take("c", 2, numbers(0.7, 0.7, 0.7), 0.7, steps=1)
    twin = Calibration(LIKE)
    twin.restore(*made.state())
    for one in (made, twin):
        one.merged([2])
    for client in ("a.b", "c", "new"):
        change = numbers(0.4, 0.5, 0.6)
        assert calibrated(made, client, change) == calibrated(twin, client, change)


def test_a_damaged_checkpoint_changes_nothing() -> None:
    made = Calibration(LIKE)
    merged(made, "a", 1, numbers(1.0, 2.0, 3.0))
    tensors, facts = made.state()
    other = Calibration(LIKE)
    merged(other, "b", 1, numbers(4.0, 4.0, 4.0))
    for lost in tensors:
        with pytest.raises(CheckpointError, match=f"no tensor '{lost}'"):
            other.restore({name: t for name, t in tensors.items() if name != lost}, facts)
    assert calibrated(other, "b", LIKE) == [-2.0, -2.0, -2.0]
