"""Random streams: known answers, even draws, no trace of how they are drawn."""

import pytest
import torch

from fedcompass.training.streams import (
    RowStream,
    TaskRows,
    batch_rows,
    row_stream,
    seeded,
    stream_key,
)


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
    return TaskRows([RowStream(key)], [samples], batch_size).draw(1, first_step=first, steps=steps)[
        0
    ]


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
    stack = TaskRows([RowStream(key) for key in keys], samples, 8).draw(5, first_step=2, steps=3)
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


def epochs(client: int, steps_before: int, seed: int = 3) -> RowStream:
    return row_stream("epochs", seed=seed, client=client, local_round=0, steps_before=steps_before)


def read(stream: RowStream, steps: int, batch_size: int, samples: int) -> list[int]:
    rows = batch_rows(stream, steps=steps, batch_size=batch_size, samples=samples)
    batches = [batch.tolist() for batch in rows]
    assert [len(batch) for batch in batches] == [batch_size] * steps
    return [row for batch in batches for row in batch]


def one_pass(seed: int, client: int, epoch: int, samples: int) -> list[int]:
    """Rows in the order of as many words of the epoch's stream, as signed numbers."""
    words = splitmix64(stream_key(seed, "epoch", client, epoch) % 2**64, samples)
    signed = [word - 2**64 if word >> 63 else word for word in words]
    return sorted(range(samples), key=signed.__getitem__)


@pytest.mark.parametrize(("samples", "batch_size"), [(17, 8), (64, 8), (8, 8), (3, 8), (1, 4)])
def test_epochs_are_permutations_that_tasks_of_any_length_read_one_after_the_other(
    samples: int, batch_size: int
) -> None:
    passes = [row for epoch in range(80) for row in one_pass(3, 2, epoch, samples)]
    for epoch in range(80):
        chosen = passes[epoch * samples : (epoch + 1) * samples]
        assert sorted(chosen) == list(range(samples))
    for lengths in ([10], [1] * 10, [4, 1, 5], [7, 3]):
        before, rows = 0, []
        for steps in lengths:
            rows += read(epochs(2, before), steps, batch_size, samples)
            before += steps
        assert rows == passes[: 10 * batch_size]


def test_a_task_that_was_lost_skips_its_rows() -> None:
    whole = read(epochs(0, 0), 12, 5, 13)
    assert read(epochs(0, 7), 5, 5, 13) == whole[7 * 5 :]


def test_a_long_task_reads_the_rows_of_short_ones() -> None:
    long = read(epochs(1, 5), 600, 4, 1000)  # drawn in three pieces
    assert long == read(epochs(1, 5), 256, 4, 1000) + read(epochs(1, 261), 344, 4, 1000)


def test_a_stack_reads_in_passes_what_each_task_reads_alone() -> None:
    samples, before = [1, 7, 64, 1000, 5], [3, 0, 11, 40, 999]
    streams = [epochs(client, steps) for client, steps in enumerate(before)]
    alone = [read(stream, 5, 8, n) for stream, n in zip(streams, samples, strict=True)]
    stack = TaskRows(streams, samples, 8)
    assert stack.draw(5, first_step=0, steps=5).flatten(1).tolist() == alone
    pieces = [stack.draw(5, first_step=0, steps=2), stack.draw(5, first_step=2, steps=3)]
    assert torch.cat(pieces, dim=1).flatten(1).tolist() == alone
    fewer = stack.draw(3, first_step=4, steps=1)  # the others are over
    assert fewer.flatten(1).tolist() == [rows[4 * 8 :] for rows in alone[:3]]


def test_rounds_begin_a_pass_of_their_own_whatever_was_before() -> None:
    def rounds(local_round: int, steps_before: int) -> list[int]:
        given = {"seed": 3, "client": 1, "local_round": local_round}
        return read(row_stream("rounds", **given, steps_before=steps_before), 4, 8, 16)

    first, second = rounds(0, 0), rounds(1, 4)
    for rows in (first, second):
        assert sorted(rows[:16]) == sorted(rows[16:]) == list(range(16))
        assert rows[:16] != rows[16:]
    assert first != second
    assert rounds(0, 4) == first
    assert first != read(epochs(1, 0), 4, 8, 16)


def test_clients_seeds_and_epochs_have_each_their_own_order() -> None:
    orders = {
        tuple(read(epochs(client, 2 * epoch, seed), 2, 10, 20))
        for client in range(3)
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 27
