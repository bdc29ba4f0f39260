"""Random streams: known answers, even draws, no trace of how they are drawn."""

import pytest
import torch

from fedcompass.training.streams import batch_indices, batch_indices_of_many, seeded, stream_key


def splitmix64(state: int, n: int) -> list[int]:
    """The reference generator, in plain integers."""
    word, words = (1 << 64) - 1, []
    for position in range(n):
        z = (state + position * 0x9E3779B97F4A7C15) & word
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & word
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & word
        words.append(z ^ (z >> 31))
    return words


def drawn(key: int, steps: int, batch_size: int, samples: int, first: int = 0) -> torch.Tensor:
    return batch_indices(key, first_step=first, steps=steps, batch_size=batch_size, samples=samples)


def test_the_published_first_words_of_splitmix64_come_out() -> None:
    # The generator steps before it mixes, so seed 1234567's first word lies one golden gap on.
    golden = 0x9E3779B97F4A7C15
    assert splitmix64((1234567 + golden) % 2**64, 2) == [6457827717110365317, 3203168211198807973]


@pytest.mark.parametrize("key", [0, 1, -1, 2**63 - 1, -(2**63), stream_key(7, "batches", 3, 2)])
@pytest.mark.parametrize("samples", [1, 10, 60_000, 2**31])
def test_rows_are_the_high_bits_of_the_words_scaled(key: int, samples: int) -> None:
    expected = [((word >> 32) * samples) >> 32 for word in splitmix64(key % 2**64, 12)]
    assert drawn(key, 3, 4, samples).flatten().tolist() == expected


def test_known_keys_never_change() -> None:
    # A change here would change every recorded run.
    assert stream_key(0, "batches") == -3207917782547129421
    assert stream_key(1, "batches", 2, 3) == 8094225208291946980


def test_every_part_of_a_key_matters() -> None:
    keys = {
        stream_key(seed, purpose, client, local_round)
        for seed in range(8)
        for purpose in ("batches", "torch", "augment")
        for client in range(8)
        for local_round in range(8)
    }
    assert len(keys) == 8 * 3 * 8 * 8
    assert all(-(2**63) <= key < 2**63 for key in keys)


def test_draws_in_pieces_are_the_draws_at_once() -> None:
    key = stream_key(0, "batches", 1, 2)
    pieces = [drawn(key, steps, 16, 999, first) for first, steps in ((0, 3), (3, 1), (4, 6))]
    assert torch.equal(torch.cat(pieces), drawn(key, 10, 16, 999))


def test_a_stack_of_tasks_draws_what_each_task_draws_alone() -> None:
    keys = [stream_key(0, "batches", client) for client in range(5)]
    samples = [1, 7, 64, 1000, 2**31]
    stack = batch_indices_of_many(
        torch.tensor(keys), torch.tensor(samples), first_step=2, steps=3, batch_size=8
    )
    alone = [drawn(key, 3, 8, n, 2) for key, n in zip(keys, samples, strict=True)]
    assert torch.equal(stack, torch.stack(alone))


def chi_square(rows: torch.Tensor, cells: int) -> float:
    counts = torch.bincount(rows.flatten(), minlength=cells).double()
    expected = rows.numel() / cells
    return float(((counts - expected) ** 2).sum() / expected)


@pytest.mark.parametrize("samples", [10, 100, 997])
def test_rows_are_uniform(samples: int) -> None:
    degrees = samples - 1
    statistic = chi_square(drawn(stream_key(0, "batches"), 2000, 64, samples), samples)
    assert abs(statistic - degrees) < 5 * (2 * degrees) ** 0.5  # mean k, variance 2k


def test_neighbouring_clients_rounds_and_seeds_are_independent() -> None:
    base = drawn(stream_key(0, "batches", 0, 0), 1000, 64, 10)
    for other_key in (
        stream_key(0, "batches", 1, 0),
        stream_key(0, "batches", 0, 1),
        stream_key(1, "batches", 0, 0),
        stream_key(0, "batches", 0, 0) + 1,
    ):
        pairs = base * 10 + drawn(other_key, 1000, 64, 10)
        assert abs(chi_square(pairs, 100) - 99) < 5 * (2 * 99) ** 0.5


def test_seeding_a_task_leaves_the_global_generator_as_it_was() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with seeded(123):
        first = torch.rand(3)
    with pytest.raises(KeyError), seeded(123):
        raise KeyError(torch.rand(3))
    with seeded(123):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.rand(3), expected)
