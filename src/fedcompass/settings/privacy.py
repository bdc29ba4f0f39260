"""A privacy budget for each client: record-level differential privacy; `privacy/` keeps it.

Abadi et al. 2016, *Deep learning with differential privacy*.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedcompass.errors import SettingsError
from fedcompass.settings import Settings
from fedcompass.settings.per_client import PerClient, numbers, spread_out

__all__ = ["PrivacySettings"]

_LEAST_NOISE = 0.2  # one step with less costs more than any epsilon that protects
_LISTS = ("epsilon", "delta", "clip", "noise")

_POSITIVE = numbers("a number above 0, or a list with one per client")
_SHARE = numbers("a number above 0 and below 1, or a list with one per client")
_NOISE = numbers('"auto", a number above 0, or a list with one per client', word="auto")


class PrivacySettings(Settings):
    """What a client may spend, and how its steps are made private.

    epsilon: ε, what each client may spend at most; it then leaves, and the run goes on. Unset:
        training is not private.
    delta: δ, the probability with which ε may fail to hold; below 1 / samples of each client.
    clip: C, the norm that one sample's gradient is clipped to.
    noise: σ, the noise of a step as a multiple of the clip; "auto": as little as lets a client take
        `planned_steps` steps within its ε.
    planned_steps: of each client in all its tasks, for noise "auto".
    """

    epsilon: Annotated[PerClient, _POSITIVE] | None = None
    delta: Annotated[PerClient, _SHARE] = 1e-5
    clip: Annotated[PerClient, _POSITIVE] = 1.0
    noise: Annotated[Literal["auto"] | PerClient, _NOISE] = 1.0
    planned_steps: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _fits_together(self) -> "PrivacySettings":
        others = sorted(self.model_fields_set - {"epsilon"})
        if self.epsilon is None and others:
            raise ValueError(f"{others[0]} is given, but there is no budget; set epsilon, too")
        if any(delta >= 1 for delta in spread_out(self.delta, 1)):
            raise ValueError(f"delta is {self.delta}; allowed: above 0 and below 1")
        if self.noise != "auto" and min(spread_out(self.noise, 1)) < _LEAST_NOISE:
            raise ValueError(f"noise is {self.noise}; allowed: at least {_LEAST_NOISE:g}")
        if self.noise == "auto" and self.planned_steps is None:
            raise ValueError('noise is "auto", but for how many steps? Set planned_steps')
        if self.noise != "auto" and self.planned_steps is not None:
            raise ValueError(f'planned_steps is for noise "auto", and noise is {self.noise}')
        return self

    @property
    def is_on(self) -> bool:
        """Whether training is private."""
        return self.epsilon is not None

    def check_clients(self, clients: int) -> None:
        """Refuse a list that has not one value per client.

        Raises:
            SettingsError: naming the list.
        """
        for name in _LISTS:
            values = getattr(self, name)
            if isinstance(values, tuple) and len(values) != clients:
                raise SettingsError(
                    f"privacy.{name} has {len(values)} values for {clients} clients; give one each"
                )
