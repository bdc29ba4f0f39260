"""The privacy budgets of simulated clients: who may take how many steps, and who has to leave."""

from collections.abc import Sequence
from typing import Any

from fedcompass.errors import BudgetSpent
from fedcompass.privacy.account import PrivacyAccount, PrivacyPlan
from fedcompass.vocabulary import Steps

__all__ = ["Budgets"]


class Budgets:
    """Each client's account; without plans nothing is private, and everybody may take any step."""

    def __init__(self, plans: Sequence[PrivacyPlan] = ()) -> None:
        self._plans = plans
        self._accounts = [PrivacyAccount() for _ in plans]
        self._left: dict[int, None] = {}  # those that could not afford a step

    def plan(self, client: int) -> PrivacyPlan | None:
        """How a client trains; None: not privately."""
        return self._plans[client] if self._plans else None

    def grant(self, client: int, steps: Steps) -> Steps:
        """Charge as many of a task's steps as its client can afford; none: it leaves."""
        if not self._plans:
            return steps
        plan, account = self._plans[client], self._accounts[client]
        granted = account.affords(plan, steps)
        if granted:
            account.charge(plan.spent(granted))
        else:
            self._left[client] = None
        return granted

    def epsilon(self, client: int) -> float | None:
        """What a client has spent, with the task that it is at; None: nothing is private."""
        return self._accounts[client].epsilon(self._plans[client].delta) if self._plans else None

    def farewell(self, client: int) -> dict[str, Any]:
        """What the journal notes of a client that leaves because its budget is spent."""
        if client not in self._left:
            return {}
        plan = self._plans[client]
        spent = BudgetSpent(self._accounts[client].epsilon(plan.delta), plan.epsilon)
        return {"privacy": {"epsilon": spent.spent, "delta": plan.delta, "left": str(spent)}}

    def summary(self) -> dict[str, Any]:
        """What each client has spent, with which noise, and who left; nothing without plans."""
        if not self._plans:
            return {}
        return {
            "epsilon_per_client": [self.epsilon(client) for client in range(len(self._plans))],
            "noise_per_client": [plan.noise for plan in self._plans],
            "budget_spent": sorted(self._left),
        }

    @property
    def all_left(self) -> bool:
        """Whether every client left because its budget is spent."""
        return bool(self._plans) and len(self._left) == len(self._plans)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "accounts": [account.to_json() for account in self._accounts],
            "left": list(self._left),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        self._accounts = [PrivacyAccount.from_json(history) for history in state["accounts"]]
        self._left = dict.fromkeys(state["left"])
