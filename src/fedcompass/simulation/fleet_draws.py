"""Random numbers that are pure functions of (seed, purpose, client, round): no generator to store.

A query costs about a microsecond and can be asked in any order, so a fleet is the same under every
strategy and a resumed run needs no saved random state.
"""

from bisect import bisect_right
from hashlib import blake2b
from math import log
from statistics import NormalDist

__all__ = ["RedrawnRounds", "Stream"]

_STANDARD_NORMAL = NormalDist()
_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15  # SplitMix64's increment (Steele, Lea & Flood 2014)


class Stream:
    """The random numbers of one seed and purpose, one for each (client, local round).

    >>> jitter = Stream(seed=0, purpose="jitter")
    >>> jitter.uniform(3, 7) == Stream(seed=0, purpose="jitter").uniform(3, 7)
    True
    """

    __slots__ = ("_key",)

    def __init__(self, seed: int, purpose: str) -> None:
        # Hashing the text gives every purpose its own key and takes a seed of any size.
        digest = blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
        self._key = int.from_bytes(digest, "little")

    def uniform(self, client: int, local_round: int) -> float:
        """A number strictly between 0 and 1."""
        bits = _mix(_mix(self._key + (client + 1) * _GOLDEN) + (local_round + 1) * _GOLDEN)
        # 52 bits and a half: the largest is below 1, which 53 bits would round up to.
        return ((bits >> 12) + 0.5) * 2.0**-52

    def normal(self, client: int, local_round: int) -> float:
        """A standard normal number."""
        return _STANDARD_NORMAL.inv_cdf(self.uniform(client, local_round))

    def exponential(self, client: int, local_round: int) -> float:
        """An exponential number with mean 1."""
        return -log(self.uniform(client, local_round))


class RedrawnRounds:
    """In which rounds each client's pace is drawn anew: each round from 1 on, with one probability.

    Finding the latest such round means walking through the earlier ones; what was walked is kept,
    so that a simulation, whose rounds count up, pays for each round once.
    """

    def __init__(self, stream: Stream, probability: float) -> None:
        self._stream = stream
        self._probability = probability
        self._redrawn: dict[int, list[int]] = {}
        """Per client, the redrawn rounds found so far in rising order, led by round 0."""
        self._walked: dict[int, int] = {}
        """Per client, the last round that has been looked at."""

    def latest(self, client: int, local_round: int) -> int:
        """The latest round up to this one in which the pace was drawn; 0 is the first draw."""
        if self._probability == 0:
            return 0
        redrawn = self._redrawn.setdefault(client, [0])
        walked = self._walked.get(client, 0)
        if local_round > walked:
            for candidate in range(walked + 1, local_round + 1):
                if self._stream.uniform(client, candidate) < self._probability:
                    redrawn.append(candidate)
            self._walked[client] = local_round
        return redrawn[bisect_right(redrawn, local_round) - 1]


def _mix(bits: int) -> int:
    """SplitMix64's finalizer: every bit of the input flips half the bits of the output."""
    bits &= _MASK
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & _MASK
    return bits ^ (bits >> 31)
