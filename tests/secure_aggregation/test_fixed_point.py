"""Fixed-point sums are off by at most the stated bound, and can never wrap around."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcompass.errors import EncodingError, SettingsError
from fedcompass.secure_aggregation.fixed_point import Bits, FixedPoint

BITS: st.SearchStrategy[Bits] = st.sampled_from([32, 64])
CLIPS = st.floats(1e-12, 1e12)


@given(
    bits=BITS,
    clip=CLIPS,
    members=st.lists(
        st.tuples(st.floats(-1, 1, width=32), st.floats(0, 1)), min_size=1, max_size=50
    ),
)
def test_a_sum_is_off_by_at_most_the_bound(
    bits: Bits, clip: float, members: list[tuple[float, float]]
) -> None:
    encoding = FixedPoint(bits=bits, clip=clip, members=len(members))
    exact, total = Fraction(0), np.zeros(1, dtype=encoding.dtype)
    for fraction, weight in members:
        value = np.array([fraction * clip * 0.99], dtype=np.float32)
        exact += Fraction(float(value[0])) * Fraction(weight)
        total += encoding.encode(value, weight)
    error = abs(Fraction(float(encoding.decode(total)[0])) - exact)
    assert error <= Fraction(encoding.error_bound)


@given(bits=BITS, clip=CLIPS, members=st.integers(1, 2**20), sign=st.sampled_from([-1, 1]))
def test_the_largest_sum_that_members_can_make_does_not_wrap_around(
    bits: Bits, clip: float, members: int, sign: int
) -> None:
    encoding = FixedPoint(bits=bits, clip=clip, members=members)
    word = encoding.encode(np.array([sign * clip]), 1.0)
    one = int(word.view(f"<i{bits // 8}")[0])
    assert one * sign > 0
    assert abs(one) * members < 2 ** (bits - 1)
    total = (word * np.array(members, dtype=encoding.dtype)).astype(encoding.dtype)
    off = abs(float(encoding.decode(total)[0]) - sign * clip * members)
    assert off <= encoding.error_bound


def test_the_bound_for_twenty_members_is_below_what_float32_itself_rounds_at_one() -> None:
    bound = FixedPoint(bits=32, clip=1.0, members=20).error_bound
    assert bound == pytest.approx(20 * 0.5 / 2**25, rel=1e-6)
    assert FixedPoint(bits=64, clip=1.0, members=20).error_bound < 1e-14


@pytest.mark.parametrize(
    ("value", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf"), (-3.0, "1.5")]
)
def test_a_value_without_room_is_refused_with_one_line(value: float, shown: str) -> None:
    encoding = FixedPoint(bits=32, clip=1.0, members=5)
    with pytest.raises(EncodingError) as caught:
        encoding.encode(np.array([0.1, value], dtype=np.float32), 0.5)
    assert str(caught.value) == (
        f"the largest weighted value of the update is {shown}; allowed: finite and at most clip, "
        "which is 1. Clip the update first, or agree on a larger clip"
    )


@pytest.mark.parametrize(
    ("bits", "clip", "members", "line"),
    [
        (16, 1.0, 5, "bits is 16; allowed: 32 or 64"),
        (32, 0.0, 5, "clip is 0.0; allowed: 1e-12 to 1e+12"),
        (32, float("nan"), 5, "clip is nan; allowed: 1e-12 to 1e+12"),
        (32, 1.0, 0, "members is 0; allowed: 1 to 1048576"),
    ],
)
def test_an_impossible_encoding_is_refused(
    bits: Bits, clip: float, members: int, line: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        FixedPoint(bits=bits, clip=clip, members=members)
    assert str(caught.value) == line


def test_an_infinite_value_is_refused_also_with_no_weight() -> None:
    with pytest.raises(EncodingError, match="the largest weighted value of the update is nan;"):
        FixedPoint(bits=32, clip=1.0, members=3).encode(np.array([np.inf]), 0.0)


def test_a_callers_vector_is_left_as_it_was() -> None:
    values = np.array([0.5, -0.25])
    FixedPoint(bits=32, clip=1.0, members=3).encode(values, 0.5)
    assert values.tolist() == [0.5, -0.25]
