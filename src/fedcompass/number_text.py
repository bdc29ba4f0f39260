"""Numbers as text: counts of things, and values of metrics."""

from math import isnan

__all__ = ["epsilon_text", "metric_text", "number_of"]

_LARGE = 1e6  # of an epsilon that nobody has who trains privately


def number_of(count: int, what: str) -> str:
    """A number of things: 1 update, 2 updates."""
    return f"{count} {what}" + ("" if count == 1 else "s")


def metric_text(metric: str, value: float | None, digits: int = 1) -> str:
    """The value, a share with so many digits of its percentage; - for what is not a number."""
    from fedcompass.settings.training import is_share  # with pydantic, which readers spare

    if value is None or isnan(value):
        return "-"
    return f"{value:.{digits}%}" if is_share(metric) else f"{value:.4g}"


def epsilon_text(epsilon: float | None) -> str:
    """What was spent of a privacy budget; short whatever a site claims; - where it is not known."""
    if epsilon is None:
        return "-"
    return f"{epsilon:.2f}" if epsilon < _LARGE else f"{epsilon:.3g}"
