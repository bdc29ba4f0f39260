"""The paper's formulas against values computed by hand."""

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcompass.errors import SettingsError
from fedcompass.theory import (
    Assumptions,
    corollary_1_holds,
    corollary_1_rate,
    equilibrium_groups,
    equilibrium_steps,
    gammas,
    group_bound,
    learning_rate_limit,
    mu_prime,
    theorem_1_bound,
)

LOSS = Assumptions(
    smoothness=2,
    initial_gap=10,
    local_variance=1,
    global_variance=2,
    squared_gradient=3,
    max_staleness=2,
)


@pytest.mark.parametrize(
    ("mu", "ratio", "groups"),
    [
        (125, 5, 3),  # 5³, where math.log(125, 5) = 3.0000000000000004
        (126, 5, 4),
        (124, 5, 3),
        (2.5**3, 2.5, 3),
        (5.0, 5, 1),
        (4.9, 5, 1),
        (5.1, 5, 2),
        (0.3 / 0.1, 3, 1),  # 2.9999999999999996
        (1.2 / 0.4, 3, 1),  # 2.9999999999999996
        ((100 / 30) ** 4, 100 / 30, 4),
        (Fraction(100, 30) ** 7, Fraction(100, 30), 7),
        (5**60 + 1, 5, 61),  # exact: a float cannot tell it from 5⁶⁰
        (5**60, 5, 60),
        (1, 5, 1),  # ⌈log_5 1⌉ is 0, but equal clients share one group
    ],
)
def test_the_group_bound_is_exact_at_and_around_powers(
    mu: float | Fraction, ratio: float | Fraction, groups: int
) -> None:
    assert group_bound(mu, ratio) == groups


@pytest.mark.parametrize("base", [2, 3, 5, 7, 10, 20])
@pytest.mark.parametrize("exponent", range(1, 30))
def test_whole_powers_and_their_neighbours_are_exact(base: int, exponent: int) -> None:
    power = base**exponent
    assert group_bound(power, base) == exponent
    assert group_bound(power + 1, base) == exponent + 1
    assert mu_prime(power, base) == float(power)
    assert mu_prime(power + 1, base) == float(power)
    assert mu_prime(power - 1, base) == float(power // base)


def test_with_equal_steps_the_number_of_clients_bounds_the_groups() -> None:
    assert group_bound(3.7, 1, clients=5) == 5
    with pytest.raises(SettingsError, match="clients is missing; with steps_ratio 1"):
        group_bound(3.7, 1)


def test_there_are_never_more_groups_than_clients() -> None:
    assert group_bound(1000, 2) == 10  # 2⁹ = 512 < 1000 <= 1024 = 2¹⁰
    assert group_bound(1000, 2, clients=4) == 4


def test_mu_prime_is_the_largest_power_within_mu() -> None:
    assert mu_prime(30, 5) == 25  # 5² <= 30 < 5³
    assert mu_prime(125, 5) == 125
    assert mu_prime(4.9, 5) == 1
    assert mu_prime(20, 2.5) == 2.5**3  # 15.625 <= 20 < 39.0625
    assert mu_prime(3.7, 1) == 3.7  # all do equally many steps: round times differ as the paces do


def test_the_gammas_of_five_clients() -> None:
    assert gammas(5, 25) == (1 + 4 / 25, 1 + 25 * 4)
    assert gammas(5, 1) == (5, 5)
    assert gammas(1, 25) == (1, 1)


def test_the_learning_rate_limit() -> None:
    assert learning_rate_limit(2, 100) == 1 / 400


def test_theorem_1_by_hand() -> None:
    # m = 3, Q = 10..20, so Q = 2; mu = 3, so mu' = 2^floor(1.58) = 2
    # gamma_1 = 1 + 2/2 = 2, gamma_2 = 1 + 2*2 = 5; sigma² = 1 + 2 + 3 = 6
    # eta = 0.01 <= 1/(2*2*20) = 0.0125; T = 100
    # term 1: 2*5*10 / (0.01*10*100)                      = 100 / 10     = 10
    # term 2: 2*5*0.01*9*1*2*400 / (4*10)                 = 720 / 40     = 18
    # term 3: 6*5*3*0.0001*6*4*8000 / (2*10) * (2² + 1)   = 1728/20 * 5  = 432
    bound = theorem_1_bound(
        assumptions=LOSS,
        clients=3,
        min_steps=10,
        max_steps=20,
        mu=3,
        updates=100,
        learning_rate=0.01,
    )
    assert bound == pytest.approx((10, 18, 432))
    assert bound.total == pytest.approx(460)


def test_the_theorem_takes_the_limit_itself_and_nothing_above() -> None:
    def at(learning_rate: float) -> float:
        return theorem_1_bound(
            assumptions=LOSS,
            clients=3,
            min_steps=10,
            max_steps=20,
            mu=3,
            updates=100,
            learning_rate=learning_rate,
        ).total

    assert at(learning_rate_limit(2, 20)) > 0
    with pytest.raises(SettingsError) as refusal:
        at(0.02)
    assert str(refusal.value) == (
        "learning_rate is 0.02; allowed: above 0 and at most 1/(2 L Q_max) = 0.0125"
    )
    for impossible in (0.0, -0.01, math.nan):
        with pytest.raises(SettingsError, match="learning_rate is"):
            at(impossible)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"clients": 0}, "clients is 0; allowed: at least 1"),
        ({"min_steps": 0}, "min_steps is 0; allowed: 1 to max_steps = 20"),
        ({"min_steps": 21}, "min_steps is 21; allowed: 1 to max_steps = 20"),
        ({"mu": 0.9}, "mu is 0.9; allowed: at least 1 and finite"),
        ({"mu": math.inf}, "mu is inf; allowed: at least 1 and finite"),
        ({"mu": math.nan}, "mu is nan; allowed: at least 1 and finite"),
        ({"updates": 0}, "updates is 0; allowed: at least 1"),
    ],
)
def test_impossible_values_get_one_clear_line(changed: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {"clients": 3, "min_steps": 10, "max_steps": 20, "mu": 1.5}
    values |= {"updates": 100} | changed
    with pytest.raises(SettingsError) as refusal:
        theorem_1_bound(assumptions=LOSS, learning_rate=0.01, **values)
    assert str(refusal.value) == message
    with pytest.raises(SettingsError) as refusal:
        corollary_1_rate(assumptions=LOSS, learning_rate_scale=1, **values)
    assert str(refusal.value) == message


def test_impossible_ratios_and_assumptions_are_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"^steps_ratio is 0.5; allowed: at least 1 and finite$"
    ):
        group_bound(3, 0.5)
    with pytest.raises(SettingsError, match=r"^clients is 0; allowed: at least 1$"):
        group_bound(3, 2, clients=0)
    with pytest.raises(SettingsError, match=r"^mu_prime is 0.5; allowed: at least 1$"):
        gammas(3, 0.5)
    with pytest.raises(SettingsError, match=r"^smoothness is 0; allowed: above 0$"):
        learning_rate_limit(0, 20)
    with pytest.raises(SettingsError, match=r"^max_steps is 0; allowed: at least 1$"):
        learning_rate_limit(1, 0)
    with pytest.raises(SettingsError, match="smoothness is -1; allowed: a number above 0"):
        Assumptions(**(LOSS.model_dump() | {"smoothness": -1}))


def test_corollary_1_holds_while_everyone_fits_into_one_group() -> None:
    assert corollary_1_holds(20, 100, 4.9)
    assert corollary_1_holds(20, 100, 5)
    assert corollary_1_holds(10, 30, 0.3 / 0.1)
    assert corollary_1_holds(10, 49, 4.9)  # the float 4.9 is a little above 49/10
    assert not corollary_1_holds(20, 100, 5.1)
    assert not corollary_1_holds(20, 100, Fraction(501, 100))


def test_corollary_1_by_hand() -> None:
    # m = 3, Q = 10..20, mu = 2; gammas are 3 and 3; c = 0.5, T = 100: eta = 0.5/(20*10) = 0.0025
    # term 1: 2*3*10 / (0.0025*10*100)                       = 60 / 2.5       = 24
    # term 2: 2*3*0.0025*9*1*2*400 / (9*10)                  = 108 / 90       = 1.2
    # term 3: 6*3*3*0.0025²*6*4*8000 / (3*10) * (2² + 1)     = 64.8/30 * 5    = 10.8
    def rate(updates: int) -> tuple[float, float, float]:
        return corollary_1_rate(
            assumptions=LOSS,
            clients=3,
            min_steps=10,
            max_steps=20,
            mu=2,
            updates=updates,
            learning_rate_scale=0.5,
        )

    assert rate(100) == pytest.approx((24, 1.2, 10.8))
    # Four times the updates: the first two terms halve, the third is quartered.
    assert rate(400) == pytest.approx((12, 0.6, 2.7))


def test_corollary_1_is_the_theorem_with_mu_prime_one() -> None:
    corollary = corollary_1_rate(
        assumptions=LOSS,
        clients=4,
        min_steps=10,
        max_steps=20,
        mu=1.5,
        updates=25,
        learning_rate_scale=0.2,
    )
    theorem = theorem_1_bound(
        assumptions=LOSS,
        clients=4,
        min_steps=10,
        max_steps=20,
        mu=1.5,
        updates=25,
        learning_rate=0.2 / (20 * 5),
    )
    assert corollary == pytest.approx(theorem)


def test_corollary_1_refuses_what_it_does_not_cover() -> None:
    def rate(mu: float, scale: float) -> None:
        corollary_1_rate(
            assumptions=LOSS,
            clients=3,
            min_steps=10,
            max_steps=20,
            mu=mu,
            updates=100,
            learning_rate_scale=scale,
        )

    with pytest.raises(SettingsError) as refusal:
        rate(mu=4, scale=0.5)
    assert str(refusal.value) == (
        "min_steps is 10; Corollary 1 allows at most max_steps / mu = 5; "
        "lower it or use theorem_1_bound"
    )
    with pytest.raises(SettingsError, match=r"learning_rate is 0.015; allowed: .* = 0.0125"):
        rate(mu=2, scale=3)


def test_the_overview_figures_clients_share_one_group_at_equilibrium() -> None:
    paces = [0.1, 0.2, 0.25, 0.4, 0.5]
    assert equilibrium_groups(paces, 20, 100) == [[0, 1, 2, 3, 4]]
    assert equilibrium_steps(paces, 20, 100) == [100, 50, 40, 25, 20]


def test_groups_open_from_the_fastest_client_on() -> None:
    # Q = 5. Client 3 (0.1) takes paces up to 0.5: client 1. Client 0 (0.6) takes paces up to 3:
    # client 4. Client 2 is left.
    paces = [0.6, 0.5, 3.1, 0.1, 3.0]
    assert equilibrium_groups(paces, 20, 100) == [[3, 1], [0, 4], [2]]
    # 100*0.1/0.5 = 20; 100*0.6/3.0 = 20
    assert equilibrium_steps(paces, 20, 100) == [100, 20, 100, 100, 20]


def test_equal_paces_share_a_group_even_with_equal_steps() -> None:
    assert equilibrium_groups([0.2, 0.1, 0.2], 50, 50) == [[1], [0, 2]]
    assert equilibrium_steps([0.2, 0.1, 0.2], 50, 50) == [50, 50, 50]
    assert equilibrium_groups([], 20, 100) == []


def test_a_pace_must_be_above_zero() -> None:
    for pace in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(SettingsError, match=r"seconds_per_step is .* above 0 and finite"):
            equilibrium_groups([0.1, pace], 20, 100)


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=30),
    st.integers(1, 50),
    st.integers(1, 50),
)
def test_the_construction_never_exceeds_the_bound(paces: list[int], low: int, more: int) -> None:
    mu, ratio = Fraction(max(paces), min(paces)), Fraction(low + more, low)
    groups = equilibrium_groups(paces, low, low + more)
    assert len(groups) <= group_bound(mu, ratio, clients=len(paces))
    assert sorted(client for group in groups for client in group) == list(range(len(paces)))
    assert all(low <= s <= low + more for s in equilibrium_steps(paces, low, low + more))
