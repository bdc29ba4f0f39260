"""Shamir's secret sharing over GF(2^128), from pycryptodome, with randomness that is passed in."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from fedcompass.errors import MissingExtra
from fedcompass.secure_aggregation.primitives import SEED_BYTES

try:
    from Crypto.Protocol.SecretSharing import Shamir
except ImportError:
    raise MissingExtra("pycryptodome", "privacy", "secure aggregation") from None

__all__ = ["Entropy", "combined", "split"]

Entropy: TypeAlias = Callable[[int], bytes]
"""So many fresh random bytes; `os.urandom` in a deployment."""


def split(secret: bytes, count: int, threshold: int, entropy: Entropy) -> list[bytes]:
    """Shares number 1 to `count`; `threshold` of them tell the secret, fewer tell nothing.

    The library's own `split` draws from the operating system. Here the first shares are drawn, and
    the secret and they fix the polynomial; its value at another x is the constant term of the same
    polynomial moved by x. In GF(2^128) that is XOR, so the library's `combine` gives it.
    """
    points = {0: secret} | {x: entropy(SEED_BYTES) for x in range(1, threshold)}
    drawn = [points[x] for x in range(1, threshold)]
    return drawn + [_value_at(x, points) for x in range(threshold, count + 1)]


def combined(shares: Mapping[int, bytes]) -> bytes:
    """The secret that exactly `threshold` shares tell, by their numbers."""
    return _value_at(0, shares)


def _value_at(x: int, points: Mapping[int, bytes]) -> bytes:
    moved = [(at ^ x, value) for at, value in points.items()]
    return Shamir.combine(moved, ssss=False)  # without ssss's extra term x^k
