"""Counter-based random streams: what a task draws depends only on (seed, client, local round).

A word of a stream is a hash of its key and its position, so any part of it can be drawn without
drawing what comes before, in any process, on any device, for many clients at once. The hash is
splitmix64 (Steele, Lea & Flood 2014) in wrapping 64-bit integers, which PyTorch computes alike on
CPU and GPU; its own generators differ between the two.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["batch_indices", "batch_indices_of_many", "batch_rows", "seeded", "stream_key"]

_STEPS_DRAWN_AT_ONCE = 256  # bounds the memory of drawn rows, whatever the length of the round

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31


def stream_key(seed: int, purpose: str, client: int = 0, local_round: int = 0) -> int:
    """The key of one stream, a signed 64-bit integer; every argument changes all of its bits."""
    key = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")
    for part in (seed, client, local_round):
        key = _mixed_word((key ^ _mixed_word(part + _GOLDEN)) + _GOLDEN)
    return _signed(key)


def batch_indices(
    key: int,
    *,
    first_step: int,
    steps: int,
    batch_size: int,
    samples: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Rows to train on, uniform with replacement: int64 [steps, batch_size], below `samples`."""
    keys = torch.tensor([key], device=device)
    counts = torch.tensor([samples], device=device)
    return batch_indices_of_many(
        keys, counts, first_step=first_step, steps=steps, batch_size=batch_size
    )[0]


def batch_rows(
    key: int, *, steps: int, batch_size: int, samples: int, device: torch.device | str = "cpu"
) -> Iterator[Tensor]:
    """The same rows, one batch after the other, drawn in pieces as they are needed."""
    for first in range(0, steps, _STEPS_DRAWN_AT_ONCE):
        yield from batch_indices(
            key,
            first_step=first,
            steps=min(_STEPS_DRAWN_AT_ONCE, steps - first),
            batch_size=batch_size,
            samples=samples,
            device=device,
        )


def batch_indices_of_many(
    keys: Tensor, samples: Tensor, *, first_step: int, steps: int, batch_size: int
) -> Tensor:
    """The same for a stack of tasks: int64 [tasks, steps, batch_size].

    Args:
        keys: int64 [tasks], one stream key each.
        samples: int64 [tasks], how many samples each task's client has; 1 to 2^31.
        first_step: position in the streams; drawing in pieces gives the same rows as at once.
        steps: how many batches.
        batch_size: rows in a batch; fixes which position of the stream a step reads.
    """
    first = first_step * batch_size
    positions = torch.arange(first, first + steps * batch_size, device=keys.device)
    words = _mixed(keys[:, None] + positions * _signed(_GOLDEN))
    # The high 32 bits as a fraction of 2^32, times n: no division, and a bias below n / 2^32.
    rows = (_shifted(words, 32) * samples[:, None]) >> 32
    return rows.view(len(keys), steps, batch_size)


@contextmanager
def seeded(key: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Run with torch's global generator at `key` (dropout, initial weights); restore it after.

    `torch.manual_seed` would seed every device known to torch and costs a hundred times as much.
    """
    device = torch.device(device)
    cpu = torch.get_rng_state()
    gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    torch.default_generator.manual_seed(key)
    if gpu is not None:
        with torch.cuda.device(device):
            torch.cuda.manual_seed(key)
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        if gpu is not None:
            torch.cuda.set_rng_state(gpu, device)


def _signed(word: int) -> int:
    word &= _WORD
    return word - (1 << 64) if word >> 63 else word


def _mixed_word(word: int) -> int:
    word &= _WORD
    for shift, factor in _MIX:
        word = ((word ^ (word >> shift)) * factor) & _WORD
    return word ^ (word >> _LAST_SHIFT)


def _mixed(words: Tensor) -> Tensor:
    for shift, factor in _MIX:
        words = (words ^ _shifted(words, shift)) * _signed(factor)
    return words ^ _shifted(words, _LAST_SHIFT)


def _shifted(words: Tensor, places: int) -> Tensor:
    """Shift right without the sign: int64 shifts are arithmetic, so the copied sign is masked."""
    return (words >> places) & ((1 << (64 - places)) - 1)
