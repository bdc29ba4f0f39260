"""Counter-based random streams: what a task draws depends on the seed, its client and its place.

A word of a stream is a hash of its key and its position, so any part of it can be drawn without
drawing what comes before, in any process, on any device, for many clients at once. The hash is
splitmix64 (Steele, Lea & Flood 2014) in wrapping 64-bit integers, which PyTorch computes alike on
CPU and GPU; its own generators differ between the two.

Which rows a task trains on, of its client's n samples, in batches of B:

- replacement: row k is word k of the stream (seed, client, local round), scaled to n;
- epochs: the client's tasks read one endless sequence, each from where the one before was to end.
  Position p of it is row pi_e(p mod n) with e = p div n, and pi_e sorts n words of the stream
  (seed, client, e). So a batch is always full, and runs over the end of a pass;
- rounds: the same, but every local round has a sequence of its own and reads it from its start.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcompass.settings.training import Sampling
from fedcompass.vocabulary import Steps

__all__ = ["RowStream", "TaskRows", "batch_rows", "row_stream", "seeded", "stream_key"]

_STEPS_DRAWN_AT_ONCE = 256  # bounds the memory of drawn rows, whatever the length of the round

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31


def stream_key(seed: int, purpose: str, client: int = 0, local_round: int = 0) -> int:
    """The key of one stream, a signed 64-bit integer; every argument changes all of its bits."""
    return _key(purpose, seed, client, local_round)


@dataclass(frozen=True, slots=True)
class RowStream:
    """Where a task's rows come from.

    key: of its words; where it is shuffled, what the key of each pass is made of.
    shuffled: rows come in shuffled passes over all samples; else uniform with replacement.
    first_step: how many steps before the task's first have read the sequence of passes.
    """

    key: int
    shuffled: bool = False
    first_step: Steps = 0


def row_stream(
    sampling: Sampling, *, seed: int, client: int, local_round: int, steps_before: Steps
) -> RowStream:
    """Where the rows of a client's local round come from, `steps_before` steps into its tasks."""
    match sampling:
        case "replacement":
            return RowStream(stream_key(seed, "batches", client, local_round))
        case "epochs":
            return RowStream(_key("epoch", seed, client), shuffled=True, first_step=steps_before)
        case "rounds":
            return RowStream(_key("round", seed, client, local_round), shuffled=True)


class TaskRows:
    """The rows that a stack of tasks trains on, drawn in pieces; each reads those it reads alone.

    Args:
        streams: where each task's rows come from; all are shuffled, or none.
        samples: how many samples each task's client has, 1 to 2^31.
        batch_size: rows in a batch.
        device: where rows are drawn.
    """

    def __init__(
        self,
        streams: Sequence[RowStream],
        samples: Sequence[int],
        batch_size: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self._shuffled = streams[0].shuffled
        self._first_steps = [stream.first_step for stream in streams]
        self._samples, self._batch_size = samples, batch_size
        # At once: a GPU is waited for with every tensor that is made of Python's numbers.
        table = [[stream.key for stream in streams], list(samples), self._first_steps]
        self._on_device = torch.tensor(table, dtype=torch.int64, device=device)

    def draw(self, tasks: int, *, first_step: int, steps: int) -> Tensor:
        """Rows of so many steps of the first so many tasks: int64 [tasks, steps, batch size].

        Args:
            tasks: how many; those after them have no steps left.
            first_step: of these steps, counted from each task's beginning; drawing in pieces gives
                the same rows as at once.
            steps: how many batches.
        """
        count = steps * self._batch_size
        if self._shuffled:
            rows = self._in_passes(tasks, first_step, count)
        else:
            keys, samples, _ = self._on_device[:, :tasks, None]
            positions = torch.arange(count, device=keys.device) + first_step * self._batch_size
            words = _mixed(keys + positions * _signed(_GOLDEN))
            # The high 32 bits as a fraction of 2^32, times n: no division, a bias below n / 2^32.
            rows = (_shifted(words, 32) * samples) >> 32
        return rows.view(tasks, steps, self._batch_size)

    def _in_passes(self, tasks: int, first_step: int, count: int) -> Tensor:
        """The next so many rows of each task's sequence of passes."""
        # How many passes are touched, and their words, is counted without the GPU: asked for a
        # length, it would first do all the steps that it has in hand.
        passes = words = 0
        for before, n in zip(self._first_steps[:tasks], self._samples, strict=False):
            offset = (before + first_step) * self._batch_size % n
            passes += (offset + count - 1) // n + 1
            words += ((offset + count - 1) // n + 1) * n
        keys, samples, steps_before = self._on_device[:, :tasks]
        begin = (steps_before + first_step) * self._batch_size
        offset_in_pass = begin % samples
        touched = (offset_in_pass + count - 1) // samples + 1  # passes of each task
        earlier = touched.cumsum(0) - touched  # passes, of the tasks before
        task = _repeated(touched, passes)  # of each pass
        epoch = torch.arange(passes, device=keys.device) + (begin // samples - earlier)[task]
        of_pass = _mixed((keys[task] ^ _mixed(epoch + _signed(_GOLDEN))) + _signed(_GOLDEN))
        lengths = samples[task]
        starts = lengths.cumsum(0) - lengths
        owner = _repeated(lengths, words)  # the pass of each word
        row = torch.arange(words, device=keys.device) - starts[owner]
        order = _mixed(of_pass[owner] + row * _signed(_GOLDEN)).argsort(stable=True)
        if passes > 1:  # by pass, and in each by its words
            order = order[owner[order].argsort(stable=True)]
        # A task's passes lie one after the other, so what it reads is one stretch of them.
        place = (starts[earlier] + offset_in_pass)[:, None]
        rows: Tensor = row[order[place + torch.arange(count, device=keys.device)]]
        return rows


def batch_rows(
    stream: RowStream,
    *,
    steps: int,
    batch_size: int,
    samples: int,
    device: torch.device | str = "cpu",
) -> Iterator[Tensor]:
    """The rows of one task, batch after batch, drawn in pieces as they are needed."""
    source = TaskRows([stream], [samples], batch_size, device)
    for first in range(0, steps, _STEPS_DRAWN_AT_ONCE):
        at_once = min(_STEPS_DRAWN_AT_ONCE, steps - first)
        yield from source.draw(1, first_step=first, steps=at_once)[0]


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


def _key(purpose: str, *parts: int) -> int:
    key = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")
    for part in parts:
        key = _mixed_word((key ^ _mixed_word(part + _GOLDEN)) + _GOLDEN)
    return _signed(key)


def _repeated(counts: Tensor, total: int) -> Tensor:
    """0 as often as the first count says, then 1, and so on: `total` numbers."""
    numbers = torch.arange(len(counts), device=counts.device)
    return numbers.repeat_interleave(counts, output_size=total)


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
