"""Floats as integers modulo 2^32 or 2^64: sums of them are exact, and masks hide them perfectly."""

import math
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedcompass.errors import EncodingError, SettingsError
from fedcompass.vocabulary import fact

__all__ = ["Bits", "FixedPoint", "Words"]

Bits: TypeAlias = Literal[32, 64]
"""The size of one integer."""

Words: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""A vector modulo 2^bits; its arithmetic wraps around, as it must."""

_SMALLEST_CLIP, _LARGEST_CLIP = 1e-12, 1e12
_MOST_MEMBERS = 2**20


@fact
class FixedPoint:
    """How one member's weighted values become integers whose sum over all members cannot overflow.

    bits: the integers are taken modulo 2^bits.
    clip: no weighted value is larger than this; one that is, is refused, not cut.
    members: at most so many vectors are summed.
    """

    bits: Bits
    clip: float
    members: int

    def __post_init__(self) -> None:
        if self.bits not in (32, 64):
            raise SettingsError(f"bits is {self.bits}; allowed: 32 or 64")
        if not _SMALLEST_CLIP <= self.clip <= _LARGEST_CLIP:
            raise SettingsError(
                f"clip is {self.clip}; allowed: {_SMALLEST_CLIP:g} to {_LARGEST_CLIP:g}"
            )
        if not 1 <= self.members <= _MOST_MEMBERS:
            raise SettingsError(f"members is {self.members}; allowed: 1 to {_MOST_MEMBERS}")

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """Of the integers, in the byte order in which masks are made."""
        return np.dtype("<u4" if self.bits == 32 else "<u8")

    @property
    def scale(self) -> float:
        """Integers per unit: a power of two, so that scaling itself rounds nothing.

        One member has the integers -room to room, and members · room < 2^(bits - 1). With
        clip < 2^e and room >= 2^r, the scale 2^(r - e) keeps |value| · scale below room.
        """
        room = (2 ** (self.bits - 1) - 1) // self.members
        return math.ldexp(1.0, room.bit_length() - 1 - math.frexp(self.clip)[1])

    @property
    def error_bound(self) -> float:
        """How far a decoded sum may be from the exact sum of weight · value, at most.

        Each member rounds once to an integer, and once in float64 when it weighs; the sum is
        rounded once when it is decoded.
        """
        return self.members * (0.5 / self.scale + self.clip * 2.0**-52)

    def encode(self, values: NDArray[np.floating[Any]], weight: float) -> Words:
        """The integers of weight · values.

        Raises:
            EncodingError: a weighted value is not finite or larger than the clip.
        """
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is refused below
            weighted = np.multiply(values, weight, dtype=np.float64)
        largest = float(np.abs(weighted).max(initial=0.0))
        if not largest <= self.clip:  # also if it is NaN
            raise EncodingError(
                f"the largest weighted value of the update is {largest:g}; allowed: finite and at "
                f"most clip, which is {self.clip:g}. Clip the update first, or agree on a larger "
                "clip"
            )
        weighted *= self.scale
        np.rint(weighted, out=weighted)
        words: Words = weighted.astype(f"<i{self.bits // 8}").view(self.dtype)
        return words

    def decode(self, words: Words) -> NDArray[np.float64]:
        """The sum that integers stand for."""
        signed = words.view(f"<i{self.bits // 8}")
        decoded: NDArray[np.float64] = signed.astype(np.float64) / self.scale
        return decoded
