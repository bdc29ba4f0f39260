"""How much an old update still counts: the staleness functions of FedAsync, used by the paper."""

from typing import assert_never

from fedcompass.settings.aggregation import StalenessSettings

__all__ = ["staleness_factor"]


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
