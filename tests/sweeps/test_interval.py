"""The interval of a mean ratio: a bootstrap over seeds, as wide as few seeds ask for."""

from math import exp, log
from statistics import mean, stdev

import pytest

from fedcompass.sweeps.interval import over_seeds

STUDENT_T = {5: 2.776, 10: 2.262, 20: 2.093}  # 97.5%, of one degree of freedom fewer
VALUES = [0.3, -0.7, 1.1, 0.2, -0.4, 0.9, -1.2, 0.5, -0.1, -0.6]


@pytest.mark.parametrize("seeds", [5, 10, 20])
def test_it_is_about_as_wide_as_students_t_where_values_are_even(seeds: int) -> None:
    values = (VALUES + [-value for value in VALUES])[:seeds]
    found = over_seeds([dict(enumerate(values))])
    half = STUDENT_T[seeds] * stdev(values) / seeds**0.5
    assert found.mean == pytest.approx(exp(mean(values)))
    assert log(found.low) == pytest.approx(mean(values) - half, abs=0.15 * half)
    assert log(found.high) == pytest.approx(mean(values) + half, abs=0.15 * half)


def test_of_three_seeds_it_is_their_range() -> None:
    found = over_seeds([{0: log(0.5), 1: log(2.0), 2: 0.0}])
    assert (found.low, found.mean, found.high) == pytest.approx((0.5, 1.0, 2.0))


def test_of_very_many_seeds_it_is_the_usual_percentiles() -> None:
    values = [value + shift / 100 for value in VALUES for shift in range(-20, 20)]
    found = over_seeds([dict(enumerate(values))])
    half = 1.966 * stdev(values) / len(values) ** 0.5
    assert log(found.high) == pytest.approx(mean(values) + half, abs=0.1 * half)


def test_one_seed_in_a_cell_tells_nothing_of_its_spread() -> None:
    assert not over_seeds([{0: 0.7}, {0: 0.2}]).is_known
    assert not over_seeds([{0: 0.7}, {0: 0.2, 1: 0.1}]).is_known
    assert over_seeds([{0: 0.7, 1: 0.3}, {0: 0.2, 1: 0.1}]).is_known
