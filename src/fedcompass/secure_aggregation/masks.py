"""The masks of a vector, and the words that show whether all masks of a sum have been taken off."""

import numpy as np

from fedcompass.secure_aggregation.fixed_point import Words
from fedcompass.secure_aggregation.primitives import agreed_key, derived_key, stream
from fedcompass.secure_aggregation.terms import Terms
from fedcompass.vocabulary import ClientId

__all__ = ["CHECK_WORDS", "add_pair_mask", "checked", "opens", "self_mask", "word_count"]

CHECK_WORDS = 4
"""Appended to each vector: random combinations of its words, the same for all members.

They are linear, so the sum's own must come out of the sum. A mask that is left over is random in
every word and passes with probability 2^-128 (32 bits) at most. They tell nothing that the sum does
not tell.
"""


def word_count(terms: Terms) -> int:
    """Length of a masked vector."""
    return terms.length + CHECK_WORDS


def checked(words: Words, terms: Terms) -> Words:
    """A vector with its check words behind it."""
    return np.concatenate([words, _check(words, terms)])


def opens(total: Words, terms: Terms) -> bool:
    """Whether a sum's check words are its own: no mask is left in it."""
    return bool(np.array_equal(total[terms.length :], _check(total[: terms.length], terms)))


def _check(words: Words, terms: Terms) -> Words:
    dtype, context = terms.encoding.dtype, terms.context
    found = np.empty(CHECK_WORDS, dtype=dtype)
    for number in range(CHECK_WORDS):
        key = derived_key(context, "check word", number)
        found[number] = np.dot(stream(key, len(words), dtype), words)
    return found


def self_mask(seed: bytes, roster: bytes, member: ClientId, like: Words) -> Words:
    """A member's own mask of a vector."""
    return stream(derived_key(seed, "self mask", roster, member), len(like), like.dtype)


def add_pair_mask(
    total: Words, private: bytes, public: bytes, roster: bytes, one: ClientId, other: ClientId
) -> None:
    """Add one member's part of a mask that it shares with another, whose part cancels it.

    The first by name adds the mask, the other subtracts it.
    """
    first, second = sorted((one, other))
    key = agreed_key(private, public, "pair mask", roster, first, second)
    apply = np.add if one == first else np.subtract
    apply(total, stream(key, len(total), total.dtype), out=total)
