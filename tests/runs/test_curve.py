"""One rule for what is best and when a target was reached, in both drivers."""

from math import nan

import pytest

from fedcompass.runs.curve import Curve, Row, metrics_of


def rows(*values: float | None) -> list[Row]:
    return [{"time": float(n), "version": n, "x": value} for n, value in enumerate(values)]


@pytest.mark.parametrize(
    ("rises", "best", "reached"), [(True, 3, 1.0), (False, 0, 0.0)], ids=["rises", "falls"]
)
def test_the_first_of_the_best_rows_and_the_first_that_is_good_enough(
    rises: bool, best: int, reached: float
) -> None:
    curve = Curve("x", rises=rises, rows=rows(0.1, 0.5, nan, 0.7, None, 0.7, 0.1))
    assert curve.best is curve.rows[best]
    assert curve.time_to(0.5) == reached
    assert curve.time_to(0.9 if rises else 0.01) is None
    assert curve.time_to(None) is None
    assert curve.last_version == 6


def test_a_row_that_is_not_a_number_is_the_best_only_while_it_is_alone() -> None:
    curve = Curve("x", rises=False)
    assert [curve.add(row) for row in rows(nan, None, 3.0, 3.0, 2.0)] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert Curve("y", rises=True, rows=rows(1.0)).time_to(0.0) is None
    assert Curve("y", rises=True).last_version == -1


def test_time_version_and_clients_are_no_metrics() -> None:
    assert metrics_of({**rows(1.0)[0], "clients": [1.0]}) == {"x": 1.0}
