"""A client's account: which steps it has taken, what they cost, how many more it can afford."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fedcompass.errors import SettingsError
from fedcompass.privacy.spending import Spent, epsilon_of, noise_for
from fedcompass.settings.per_client import spread_out
from fedcompass.settings.privacy import PrivacySettings
from fedcompass.vocabulary import Steps

__all__ = ["PrivacyAccount", "PrivacyPlan", "plans_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyPlan:
    """How one client trains, and what it may spend on that.

    epsilon, delta: its budget.
    clip: the norm that each sample's gradient is clipped to.
    noise: of a step, as a multiple of the clip.
    sample_rate: the probability with which a step takes each of the client's samples.
    batch_size: of a step on average, which its sum of gradients is divided by.
    """

    epsilon: float
    delta: float
    clip: float
    noise: float
    sample_rate: float
    batch_size: float

    def spent(self, steps: Steps) -> Spent:
        """So many steps, for an account."""
        return Spent(self.noise, self.sample_rate, steps)


def plans_of(
    settings: PrivacySettings, batch_size: int, samples: Sequence[int]
) -> list[PrivacyPlan]:
    """The plan of each client, by its number of samples.

    Raises:
        SettingsError: a delta is too large for a client's samples, or no noise is enough.
    """
    assert settings.epsilon is not None  # the caller looked whether training is private
    budgets = zip(
        samples,
        spread_out(settings.epsilon, len(samples)),
        spread_out(settings.delta, len(samples)),
        spread_out(settings.clip, len(samples)),
        strict=True,
    )
    return [_plan(settings, client, batch_size, *own) for client, own in enumerate(budgets)]


def _plan(
    settings: PrivacySettings,
    client: int,
    batch_size: int,
    samples: int,
    epsilon: float,
    delta: float,
    clip: float,
) -> PrivacyPlan:
    if delta * samples >= 1:
        raise SettingsError(
            f"privacy.delta is {delta:g} and client {client} has {samples} samples; allowed: below "
            f"1/{samples}"
        )
    rate = min(1.0, batch_size / samples)
    if isinstance(settings.noise, str):
        assert settings.planned_steps is not None  # its settings see to that
        noise = noise_for(epsilon, delta, rate, settings.planned_steps)
    else:
        noise = settings.noise if isinstance(settings.noise, float) else settings.noise[client]
    return PrivacyPlan(
        epsilon=epsilon,
        delta=delta,
        clip=clip,
        noise=noise,
        sample_rate=rate,
        batch_size=rate * samples,
    )


@dataclass(slots=True)
class PrivacyAccount:
    """All steps that a client has taken on its samples, in whatever run.

    history: in the order of time; steps of one kind in a row are one entry.
    """

    history: list[Spent] = field(default_factory=list)

    def charge(self, spent: Spent) -> None:
        """Count steps; a negative number takes back some of the last ones, not taken after all.

        Raises:
            ValueError: the last ones were of another kind, or fewer.
        """
        last = self.history[-1] if self.history else None
        joined = last is not None and last[:2] == spent[:2]
        if last is not None and joined:
            spent = spent._replace(steps=last.steps + spent.steps)
        if spent.steps < 0:
            raise ValueError(f"{-spent.steps} more steps are taken back than were counted")
        self.history[len(self.history) - joined :] = [spent] if spent.steps else []

    def epsilon(self, delta: float) -> float:
        """What all of it has cost."""
        return epsilon_of(self.history, delta)

    def affords(self, plan: PrivacyPlan, steps: Steps) -> Steps:
        """How many of so many more steps the plan's budget allows."""
        if self._costs(plan, steps) <= plan.epsilon:
            return steps
        costs = partial(self._costs, plan)  # they rise with the steps
        return bisect_right(range(1, steps), plan.epsilon, key=costs)

    def _costs(self, plan: PrivacyPlan, steps: Steps) -> float:
        return epsilon_of([*self.history, plan.spent(steps)], plan.delta)

    def to_json(self) -> list[list[float]]:
        """The history as JSON values."""
        return [list(spent) for spent in self.history]

    @classmethod
    def from_json(cls, history: Any) -> "PrivacyAccount":
        """The account that `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is not one.
        """
        account = cls()
        for noise, rate, steps in history:
            if not (noise > 0 and 0 < rate <= 1 and isinstance(steps, int) and steps > 0):
                raise ValueError(f"an entry is {[noise, rate, steps]}")
            account.charge(Spent(float(noise), float(rate), steps))
        return account
