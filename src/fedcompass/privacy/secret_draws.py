"""Randomness that nobody can guess: whose samples are in a step, and its noise.

torch's generator on a CPU keeps 32 bits of its seed, so a server could try all seeds and take the
noise off; numpy's and torch's are made for speed, not against a guess. Here both come from the key
stream of ChaCha20. A site's key is the operating system's randomness, fresh for each task; a
simulated client's is a function of the seed, so that a run can be repeated.
"""

import secrets

import numpy as np
import torch
from torch import Tensor

from fedcompass.secure_aggregation.primitives import KEY_BYTES, derived_key, stream

__all__ = ["SecretDraws"]

_WORD: np.dtype[np.unsignedinteger] = np.dtype("<u8")
_SUMMED = 4  # see `normal`


class SecretDraws:
    """A task's draws, one after the other; with the same secret the same."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._draws = secret, 0

    @classmethod
    def fresh(cls) -> "SecretDraws":
        """Draws that nobody can repeat."""
        return cls(secrets.token_bytes(KEY_BYTES))

    def rows(self, samples: int, rate: float) -> Tensor:
        """Which of so many rows a step takes: each with probability `rate`, on its own."""
        return (self._uniform(samples) < rate).nonzero().flatten()

    def normal(self, like: Tensor) -> Tensor:
        """Independent standard normal values in double precision.

        Each is half a sum of four, as in Opacus's secure mode: which floating-point numbers one
        alone can be would tell something of what it is added to (Holohan & Braghin 2021).
        """
        uniform = self._uniform(_SUMMED * like.numel()).view(_SUMMED, -1)
        normal: Tensor = torch.special.ndtri(uniform).sum(0) / _SUMMED**0.5
        return normal.view(like.shape)

    def _uniform(self, count: int) -> Tensor:
        """Values between 0 and 1 in steps of 2^-52; with one more bit the last would be 1."""
        self._draws += 1
        words = stream(derived_key(self._secret, "private step", self._draws), count, _WORD)
        return (torch.from_numpy((words >> np.uint64(12)).astype(np.float64)) + 0.5) * 2.0**-52
