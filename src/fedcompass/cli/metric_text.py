"""A metric's value for people: shares in percent, everything else as a number."""

from math import isnan

__all__ = ["metric_text"]


def metric_text(metric: str, value: float, digits: int = 1) -> str:
    """The value, a share with so many digits of its percentage; - for what is not a number."""
    from fedcompass.settings.metrics import is_share

    if isnan(value):
        return "-"
    return f"{value:.{digits}%}" if is_share(metric) else f"{value:.4g}"
