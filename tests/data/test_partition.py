from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedcompass.data.catalogue import load
from fedcompass.data.paper_partitions import apportion, assign_classes, fill_empty_rows
from fedcompass.data.partition import class_counts, partition
from fedcompass.errors import SettingsError
from fedcompass.settings.data import ClassRange, PartitionKind, PartitionSettings, paper_class_range

CLASS, DIRICHLET = PartitionSettings(), PartitionSettings(kind="dual-dirichlet")


def targets_of(sizes: list[int]) -> Tensor:
    """Labels with that many of each class, mixed."""
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]


def check_each_sample_used_once(parts: list[Tensor], samples: int) -> None:
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(samples))
    assert all(len(part) > 0 for part in parts)
    assert all(part.dtype == torch.int64 for part in parts)
    assert all(bool((part.diff() > 0).all()) for part in parts)


@pytest.mark.parametrize("clients", [5, 10, 20])
@pytest.mark.parametrize("kind", ["class", "dual-dirichlet", "iid"])
def test_every_sample_goes_to_exactly_one_client(kind: PartitionKind, clients: int) -> None:
    targets = load("mnist-mini").train_targets
    for seed in range(5):
        parts = partition(targets, 10, clients, PartitionSettings(kind=kind), seed)
        assert len(parts) == clients
        check_each_sample_used_once(parts, 10_000)


@given(
    kind=st.sampled_from(["class", "dual-dirichlet", "iid"]),
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=7).filter(any),
    data=st.data(),
    seed=st.integers(0, 2**63),
)
@settings(max_examples=150, deadline=None)
def test_tiny_datasets_are_dealt_out_whole_and_leave_no_client_empty(
    kind: PartitionKind, sizes: list[int], data: st.DataObject, seed: int
) -> None:
    clients = data.draw(st.integers(1, sum(sizes)))
    parts = partition(targets_of(sizes), len(sizes), clients, PartitionSettings(kind=kind), seed)
    assert len(parts) == clients
    check_each_sample_used_once(parts, sum(sizes))


@pytest.mark.parametrize("chosen", [CLASS, DIRICHLET, PartitionSettings(kind="iid")])
def test_the_same_seed_gives_the_same_partition_and_another_seed_another(
    chosen: PartitionSettings,
) -> None:
    targets = targets_of([50] * 10)
    first, again, other = (partition(targets, 10, 5, chosen, seed) for seed in (7, 7, 8))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_partition_stays_what_it_was_when_libraries_change() -> None:
    targets = targets_of([40] * 10)
    drawn = {
        chosen.kind: [len(part) for part in partition(targets, 10, 5, chosen, seed=0)]
        for chosen in (CLASS, DIRICHLET)
    }
    assert drawn == GOLDEN_SIZES


def test_partitioning_leaves_the_global_random_states_alone() -> None:
    before = torch.get_rng_state()
    numpy_before = np.random.get_state()[1].tolist()  # type: ignore[index]
    partition(targets_of([50] * 10), 10, 5, DIRICHLET, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.random.get_state()[1].tolist() == numpy_before  # type: ignore[index]


@pytest.mark.parametrize(("clients", "low", "high"), [(5, 5, 6), (10, 3, 5), (20, 3, 5)])
def test_in_the_papers_class_partition_clients_hold_few_classes_and_each_class_is_held(
    clients: int, low: int, high: int
) -> None:
    targets = load("mnist-mini").train_targets
    seen = set()
    for seed in range(20):
        parts = partition(targets, 10, clients, CLASS, seed)
        held = (class_counts(parts, targets, 10) > 0).sum(dim=1)
        seen |= set(held.tolist())
    assert seen == set(range(low, high + 1))  # both ends are drawn


def test_the_holders_of_a_class_get_shares_around_their_mean() -> None:
    """Shares are drawn from N(10, 3): the spread of sizes follows, about 0.3 of the mean."""
    targets = targets_of([9_000])
    settings_ = PartitionSettings(n_min=1, n_max=1)
    sizes = np.concatenate(
        [[len(p) for p in partition(targets, 1, 30, settings_, seed)] for seed in range(40)]
    )
    assert sizes.mean() == pytest.approx(300)
    assert sizes.std() / sizes.mean() == pytest.approx(0.3, abs=0.03)


def test_a_spread_of_zero_gives_equal_shares() -> None:
    parts = partition(targets_of([12, 12]), 2, 4, PartitionSettings(n_min=2, n_max=2, std=0), 0)
    assert [len(part) for part in parts] == [6, 6, 6, 6]


def test_a_wide_spread_draws_negative_shares_again() -> None:
    chosen = PartitionSettings(n_min=2, n_max=2, mean=0.01, std=1000)
    targets = targets_of([60, 60])
    counts = class_counts(partition(targets, 2, 10, chosen, 0), targets, 2)
    assert counts.min() >= 1  # whoever holds a class has a sample of it


def test_dual_dirichlet_follows_the_papers_formula_to_within_one_sample() -> None:
    targets, seed, clients = targets_of([100, 200, 700]), 3, 4
    stream = np.random.SeedSequence([seed, 0x70617274])
    rng = np.random.Generator(np.random.PCG64(stream))
    client_weights = rng.dirichlet([1.0] * clients)  # alpha_1 = m
    class_weights = rng.dirichlet(0.5 * np.array([0.1, 0.2, 0.7]), size=clients)
    inner = client_weights @ class_weights
    expected = client_weights[:, None] * class_weights * np.array([100, 200, 700]) / inner
    counts = class_counts(partition(targets, 3, clients, DIRICHLET, seed), targets, 3)
    assert np.abs(counts.numpy() - expected).max() <= 1


def test_high_concentrations_approach_equal_clients_and_low_ones_single_classes() -> None:
    targets = targets_of([600] * 5)
    even = PartitionSettings(kind="dual-dirichlet", alpha1=1e9, alpha2=1e9)
    counts = class_counts(partition(targets, 5, 6, even, 0), targets, 5)
    assert (counts - 100).abs().max() <= 1
    steep = PartitionSettings(kind="dual-dirichlet", alpha2=1e-3)
    counts = class_counts(partition(targets, 5, 6, steep, 0), targets, 5)
    assert ((counts > 0).sum(dim=1) <= 2).sum() >= 5


@pytest.mark.parametrize("alpha", [1e-12, 1e-4, 1e4, 1e12])
def test_extreme_concentrations_still_deal_every_sample(alpha: float) -> None:
    chosen = PartitionSettings(kind="dual-dirichlet", alpha1=alpha, alpha2=alpha)
    for seed in range(10):
        check_each_sample_used_once(partition(targets_of([40] * 4), 4, 9, chosen, seed), 160)


def test_iid_parts_differ_by_at_most_one_sample() -> None:
    parts = partition(targets_of([10, 13]), 2, 4, PartitionSettings(kind="iid"), 0)
    assert sorted(len(part) for part in parts) == [5, 6, 6, 6]


def test_each_center_becomes_one_client_in_the_order_of_its_number() -> None:
    centers = torch.tensor([5, 2, 5, 0, 2, 5])
    parts = partition(torch.zeros(6), 1, 3, PartitionSettings(kind="center"), 0, centers)
    assert [part.tolist() for part in parts] == [[3], [1, 4], [0, 2, 5]]


def test_a_class_without_samples_needs_no_holder() -> None:
    targets = targets_of([30, 0, 30])
    counts = class_counts(partition(targets, 3, 4, CLASS, 0), targets, 3)
    assert counts.sum(dim=0).tolist() == [30, 0, 30]


def test_masks_are_dealt_out_by_their_number() -> None:
    parts = partition(torch.ones(8, 4, 4), 2, 2, PartitionSettings(kind="iid"), 0)
    assert [len(part) for part in parts] == [4, 4]


def test_an_assignment_that_chance_hardly_finds_is_found_all_the_same() -> None:
    """Forty clients with one of forty classes each: chance succeeds once in 10^16."""
    rng = np.random.default_rng(0)
    holds = assign_classes(40, 40, ClassRange(1, 1), rng)
    assert (holds.sum(axis=0) == 1).all()
    assert (holds.sum(axis=1) == 1).all()
    holds = assign_classes(10, 40, ClassRange(1, 4), rng)
    assert (holds.sum(axis=0) == 1).all()
    assert (holds.sum(axis=1) == 4).all()


@pytest.mark.parametrize(
    ("asked", "clients", "message"),
    [
        (CLASS, 0, "clients is 0; allowed: 1 to 30, the number of training samples"),
        (CLASS, 31, "clients is 31; allowed: 1 to 30"),
        (
            PartitionSettings(n_max=1),
            2,
            "2 clients with at most n_max = 1 classes each cannot hold 3 classes; "
            "set n_max to at least 2",
        ),
        (PartitionSettings(n_max=4), 5, "n_max is 4; allowed: at most the 3 classes there are"),
        (PartitionSettings(n_min=4), 5, "n_min is 4; allowed: at most the 3 classes there are"),
        (PartitionSettings(kind="center"), 5, "this dataset has no natural centers"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    asked: PartitionSettings, clients: int, message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        partition(targets_of([10, 10, 10]), 3, clients, asked, 0)


def test_the_number_of_clients_must_be_the_number_of_centers() -> None:
    by_center = PartitionSettings(kind="center")
    with pytest.raises(SettingsError, match="clients is 3; allowed with kind 'center': 2"):
        partition(torch.zeros(4), 1, 3, by_center, 0, torch.tensor([0, 0, 1, 1]))
    with pytest.raises(SettingsError, match="there are 2 centers for 4 training samples"):
        partition(torch.zeros(4), 1, 2, by_center, 0, torch.tensor([0, 1]))


def test_targets_that_are_no_classes_cannot_be_dealt_by_class() -> None:
    with pytest.raises(SettingsError, match=r"no class per sample .*; choose 'iid', or 'center'"):
        partition(torch.ones(4), 2, 2, CLASS, 0)
    with pytest.raises(SettingsError, match="targets run from 0 to 5; allowed: 0 to 1"):
        partition(torch.tensor([0, 5]), 2, 2, CLASS, 0)
    with pytest.raises(SettingsError, match="seed is -1; allowed: a whole number at least 0"):
        partition(targets_of([5, 5]), 2, 2, CLASS, -1)


def test_a_parameter_of_another_partition_is_refused() -> None:
    with pytest.raises(SettingsError) as caught:
        PartitionSettings(kind="iid", alpha2=0.5)
    assert str(caught.value) == (
        "alpha2 belongs to the 'dual-dirichlet' partition, and kind is 'iid'; "
        "leave alpha2 out or set kind to 'dual-dirichlet'"
    )
    with pytest.raises(SettingsError, match="n_min is 5; allowed: at most n_max, 3"):
        PartitionSettings(n_min=5, n_max=3)
    with pytest.raises(SettingsError, match="kind is 'random'; allowed: one of 'class', 'dual-"):
        PartitionSettings(kind="random")  # type: ignore[arg-type]


def test_the_papers_class_range_is_interpolated_between_its_fleets() -> None:
    ranges = [tuple(paper_class_range(clients, 10)) for clients in (1, 2, 5, 6, 7, 8, 9, 10, 20)]
    assert ranges == [
        (5, 10),
        (5, 6),
        (5, 6),
        (5, 6),
        (4, 6),
        (4, 5),
        (3, 5),
        (3, 5),
        (3, 5),
    ]
    assert paper_class_range(10, 100) == (30, 50)
    assert paper_class_range(10, 2) == (1, 1)


def test_one_end_of_the_class_range_may_move_the_other() -> None:
    targets = targets_of([100] * 10)
    for asked, held in ((PartitionSettings(n_min=8), 8), (PartitionSettings(n_max=2), 2)):
        counts = class_counts(partition(targets, 10, 10, asked, 0), targets, 10)
        assert (counts > 0).sum(dim=1).tolist() == [held] * 10


@given(
    weights=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20), total=st.integers(0, 10_000)
)
def test_apportioning_loses_nothing_and_is_off_by_less_than_one(
    weights: list[float], total: int
) -> None:
    shares = np.array(weights)
    parts = apportion(shares, total)
    assert parts.sum() == total
    assert np.abs(parts - shares / shares.sum() * total).max() < 1 + 1e-6


def test_equal_remainders_go_to_the_earlier_part() -> None:
    assert apportion(np.ones(4), 6).tolist() == [2, 2, 1, 1]
    assert apportion(np.array([1.0, 1e-9, 1e-9]), 10, at_least=1).tolist() == [8, 1, 1]
    assert apportion(np.array([1.0, 1e-9, 1e-9]), 2, at_least=1).tolist() == [2, 0, 0]


def test_an_empty_client_gets_a_sample_of_a_class_it_wants_from_the_largest() -> None:
    counts = np.array([[5, 9], [0, 0], [3, 0], [0, 0]])
    wanted = np.array([[True, True], [True, False], [True, True], [False, False]])
    fill_empty_rows(counts, wanted)
    assert counts.tolist() == [[4, 8], [1, 0], [3, 0], [0, 1]]


def test_more_clients_never_enlarge_the_papers_range() -> None:
    ranges = [paper_class_range(clients, 10) for clients in range(5, 40)]
    assert all(a.n_min >= b.n_min and a.n_max >= b.n_max for a, b in pairwise(ranges))


GOLDEN_SIZES = {"class": [63, 92, 74, 102, 69], "dual-dirichlet": [118, 58, 9, 99, 116]}
