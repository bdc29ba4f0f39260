"""A client's account: equal to Opacus's own, and never above the budget."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcompass.errors import SettingsError
from fedcompass.privacy.account import PrivacyAccount, PrivacyPlan, plans_of
from fedcompass.privacy.spending import Spent, epsilon_of, noise_for
from fedcompass.settings.privacy import PrivacySettings

DELTA = 1e-5
HISTORIES = [
    [(1.0, 0.1, 1)],
    [(1.0, 0.05, 300)],
    [(2.0, 0.3, 100)],
    [(1.0, 1.0, 5)],  # every step takes all samples
    [(1.0, 0.05, 200), (1.4, 0.1, 77)],
    [(1.3, 0.05, 20), (1.4, 0.1, 7), (1.3, 0.05, 40)],
]


def of_opacus(kind: str, history: list[tuple[float, float, int]]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import create_accountant

        accountant: Any = create_accountant(kind)
        accountant.history = history
        return float(accountant.get_epsilon(DELTA))


def account_of(history: list[tuple[float, float, int]]) -> PrivacyAccount:
    account = PrivacyAccount()
    for entry in history:
        account.charge(Spent(*entry))
    return account


def plan(**changes: Any) -> PrivacyPlan:
    usual = {"epsilon": 3.0, "delta": DELTA, "clip": 1.0, "noise": 1.1, "sample_rate": 0.1}
    return PrivacyPlan(**{**usual, "batch_size": 8.0, **changes})


@pytest.mark.parametrize("history", HISTORIES, ids=str)
def test_an_account_says_what_opacus_says_of_the_same_history(
    history: list[tuple[float, float, int]],
) -> None:
    assert account_of(history).epsilon(DELTA) == pytest.approx(of_opacus("prv", history), abs=1e-5)


@pytest.mark.parametrize("history", HISTORIES, ids=str)
def test_renyi_accounting_which_is_looser_confirms_it(
    history: list[tuple[float, float, int]],
) -> None:
    epsilon, looser = account_of(history).epsilon(DELTA), of_opacus("rdp", history)
    assert 0.6 * looser < epsilon < looser + 0.02


def test_nothing_spent_costs_nothing_and_the_order_does_not_matter() -> None:
    assert PrivacyAccount().epsilon(DELTA) == 0.0
    one = account_of([(1.0, 0.1, 4), (2.0, 0.1, 3)])
    assert one.epsilon(DELTA) == account_of([(2.0, 0.1, 3), (1.0, 0.1, 4)]).epsilon(DELTA)


def test_steps_of_one_kind_in_a_row_are_one_entry_and_can_be_taken_back() -> None:
    account = account_of([(1.0, 0.1, 4), (1.0, 0.1, 6), (2.0, 0.1, 1)])
    assert account.history == [Spent(1.0, 0.1, 10), Spent(2.0, 0.1, 1)]
    account.charge(Spent(2.0, 0.1, -1))
    account.charge(Spent(1.0, 0.1, -3))
    assert account.history == [Spent(1.0, 0.1, 7)]
    with pytest.raises(ValueError, match="1 more steps are taken back than were counted"):
        account.charge(Spent(1.0, 0.1, -8))
    with pytest.raises(ValueError, match="taken back"):
        account.charge(Spent(2.0, 0.1, -1))
    assert PrivacyAccount.from_json(account.to_json()) == account


@given(
    st.floats(0.3, 4.0),
    st.sampled_from([0.7, 2.5]),
    st.sampled_from([0.05, 1.0]),
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
)
@settings(max_examples=10)
def test_the_budget_is_never_exceeded_whatever_is_asked_for(
    epsilon: float, noise: float, rate: float, tasks: list[int]
) -> None:
    chosen, account = plan(epsilon=epsilon, noise=noise, sample_rate=rate), PrivacyAccount()
    for steps in tasks:
        allowed = account.affords(chosen, steps)
        assert 0 <= allowed <= steps
        account.charge(chosen.spent(allowed))
        assert account.epsilon(DELTA) <= epsilon
        if allowed < steps:  # not one more would have been possible
            assert epsilon_of([*account.history, chosen.spent(1)], DELTA) > epsilon


def test_a_budget_that_was_lowered_below_what_is_spent_allows_nothing() -> None:
    account = account_of([(1.1, 0.1, 100)])
    assert account.affords(plan(epsilon=0.5), 10) == 0


def test_noise_is_found_for_so_many_steps() -> None:
    noise = noise_for(4.0, DELTA, 0.1, 120)
    assert 3.9 < epsilon_of([Spent(noise, 0.1, 120)], DELTA) <= 4.0
    settings = PrivacySettings(epsilon=4.0, noise="auto", planned_steps=120)
    [chosen] = plans_of(settings, batch_size=8, samples=[80])
    assert chosen == plan(epsilon=4.0, noise=noise, sample_rate=0.1)


def test_each_client_has_its_own_budget_and_its_own_sample_rate() -> None:
    settings = PrivacySettings(epsilon=(1.0, 2.0), noise=(1.0, 1.5), clip=0.5)
    first, second = plans_of(settings, batch_size=10, samples=[100, 5])
    assert first == plan(epsilon=1.0, noise=1.0, clip=0.5, sample_rate=0.1, batch_size=10.0)
    assert second == plan(epsilon=2.0, noise=1.5, clip=0.5, sample_rate=1.0, batch_size=5.0)


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: PrivacySettings(epsilon=0), "epsilon has 0; allowed: a number above 0"),
    (lambda: PrivacySettings(clip=2.0), "clip is given, but there is no budget; set epsilon"),
    (lambda: PrivacySettings(epsilon=1, delta=2), "delta is 2.0; allowed: above 0 and below 1"),
    (
        lambda: PrivacySettings(epsilon=1, noise="some"),  # type: ignore[arg-type]
        "noise has 'some'; allowed: \"auto\"",
    ),
    (lambda: PrivacySettings(epsilon=1, noise=0.1), "noise is 0.1; allowed: at least 0.2"),
    (lambda: PrivacySettings(epsilon=1, noise="auto"), "Set planned_steps"),
    (lambda: PrivacySettings(epsilon=1, planned_steps=5), 'planned_steps is for noise "auto"'),
    (
        lambda: plans_of(PrivacySettings(epsilon=1, delta=0.01), 8, [50, 100]),
        "privacy.delta is 0.01 and client 1 has 100 samples; allowed: below 1/100",
    ),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_is_said_in_one_line(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        wrong()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
