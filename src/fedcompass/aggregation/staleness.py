"""How much an old update still counts: the staleness functions of FedAsync, used by the paper."""

from typing import Literal, assert_never

from pydantic import Field

from fedcompass.settings import Settings

__all__ = ["StalenessSettings", "staleness_factor"]


class StalenessSettings(Settings):
    """Which staleness function st(u), and its parameters in the paper's letters.

    `growing` is the polynomial with its exponent's sign turned round: a stale update weighs more
    than a fresh one. No paper proposes it; the public code of the FedCompass paper's authors had it
    when the paper was written (docs/as-run.md).
    """

    kind: Literal["polynomial", "hinge", "constant", "growing"] = "polynomial"
    """growing: a stale update weighs more, as in the public code of the paper's authors."""

    alpha: float = Field(default=0.9, gt=0, le=1, description="factor of a fresh update")
    a: float = Field(default=0.5, ge=0, description="how fast the factor falls (growing: rises)")
    b: float = Field(default=4.0, ge=0, description="hinge only: staleness that costs nothing")


def staleness_factor(settings: StalenessSettings, staleness: int) -> float:
    """The factor st(u) for an update that is u global versions old; above alpha if growing."""
    alpha, a, b = settings.alpha, settings.a, settings.b
    match settings.kind:
        case "polynomial":
            return float(alpha * (staleness + 1) ** -a)
        case "growing":
            return float(alpha * (staleness + 1) ** a)
        case "hinge":
            return alpha if staleness <= b else alpha / (a * (staleness - b) + 1)
        case "constant":
            return alpha
        case _:
            assert_never(settings.kind)
