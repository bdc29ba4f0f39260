"""Settings that are one number for all clients, or a list with one per client."""

from math import isfinite
from typing import Any, TypeAlias

from pydantic import BeforeValidator, ValidationInfo

__all__ = ["PerClient", "numbers", "spread_out"]

PerClient: TypeAlias = float | tuple[float, ...]
"""One number for all clients, or a list with one per client."""


def numbers(
    allowed: str, *, zero: bool = False, alone: bool = True, word: str | None = None
) -> BeforeValidator:
    """Take a list of numbers, or one `alone`; name the bad one, which a tuple's own check does not.

    Args:
        allowed: what the message says is allowed.
        zero: whether 0 is.
        alone: whether one number may stand for all clients.
        word: what may stand in the place of numbers.
    """

    def checked(value: Any, info: ValidationInfo) -> Any:
        if word is not None and value == word:
            return value
        listed = isinstance(value, (list, tuple))
        if not (listed or alone):
            raise ValueError(f"{info.field_name} is {value!r}; allowed: {allowed}")
        for number in value if listed else (value,):
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                raise ValueError(f"{info.field_name} has {number!r}; allowed: {allowed}")
            if not (isfinite(number) and (number > 0 or (zero and number == 0))):
                raise ValueError(f"{info.field_name} has {number!r}; allowed: {allowed}")
        return value

    return BeforeValidator(checked)


def spread_out(value: PerClient, clients: int) -> tuple[float, ...]:
    """The number of each client."""
    return value if isinstance(value, tuple) else (value,) * clients
