from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcompass.aggregation import StalenessSettings, staleness_factor
from fedcompass.errors import SettingsError


@pytest.mark.parametrize(
    ("settings", "staleness", "factor"),
    [
        (StalenessSettings(), 0, 0.9),
        (StalenessSettings(), 3, 0.45),  # 0.9 / sqrt(4)
        (StalenessSettings(a=0), 7, 0.9),
        (StalenessSettings(kind="hinge", a=0.5, b=4), 4, 0.9),
        (StalenessSettings(kind="hinge", a=0.5, b=4), 6, 0.45),  # 0.9 / (0.5 * 2 + 1)
        (StalenessSettings(kind="constant", alpha=0.3), 99, 0.3),
        (StalenessSettings(kind="growing"), 0, 0.9),
        (StalenessSettings(kind="growing"), 3, 1.8),  # 0.9 * sqrt(4): the authors' code, no paper
    ],
)
def test_the_functions_give_the_papers_values_and_one_its_authors_codes(
    settings: StalenessSettings, staleness: int, factor: float
) -> None:
    assert staleness_factor(settings, staleness) == pytest.approx(factor)


@settings(deadline=None)
@given(
    settings=st.builds(
        StalenessSettings,
        kind=st.sampled_from(["polynomial", "hinge", "constant"]),
        alpha=st.floats(0.01, 1),
        a=st.floats(0, 10),
        b=st.floats(0, 10),
    ),
    staleness=st.integers(0, 10_000),
)
def test_a_fresh_update_gets_alpha_and_an_older_one_never_more(
    settings: StalenessSettings, staleness: int
) -> None:
    assert staleness_factor(settings, 0) == settings.alpha
    older, newer = staleness_factor(settings, staleness + 1), staleness_factor(settings, staleness)
    assert 0 <= older <= newer <= settings.alpha


@pytest.mark.parametrize("values", [{"alpha": 0}, {"alpha": 25}, {"a": -1}, {"b": -1}])
def test_values_out_of_range_are_refused_by_name(values: dict[str, Any]) -> None:
    (name,) = values
    with pytest.raises(SettingsError, match=f"{name} is .*; allowed: a number"):
        StalenessSettings(**values)
