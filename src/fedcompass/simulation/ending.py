"""Why a run ended, and what to say of one that did not go well."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from fedcompass.number_text import number_of

__all__ = ["BUDGETS_SPENT", "NOBODY_LEFT", "TOO_FEW_LEFT", "Ended", "broke_off", "trouble"]

Ended: TypeAlias = Literal[
    "horizon", "target", "max_updates", "nobody left", "too few left", "budgets spent"
]
"""What ended a run. "nobody left": it broke off, since every client is gone or in quarantine; "too
few left": since those that are not wait for a merge that needs more of them; "budgets spent": every
client left because its privacy budget is."""

NOBODY_LEFT: Ended = "nobody left"
TOO_FEW_LEFT: Ended = "too few left"
BUDGETS_SPENT: Ended = "budgets spent"


def broke_off(summary: Mapping[str, Any]) -> bool:
    """Whether a run ended since there was nobody to go on with; records of old do not say."""
    return summary.get("ended") in (NOBODY_LEFT, TOO_FEW_LEFT)


def trouble(summary: Mapping[str, Any]) -> str | None:
    """One line on what went wrong in a run, None if nothing did."""
    refused, excluded = summary.get("refused_not_finite", 0), summary.get("quarantined", [])
    parts = []
    if broke_off(summary):
        at, horizon = summary["virtual_seconds"], summary["horizon"]
        why = "nobody is left to train"
        if summary["ended"] == TOO_FEW_LEFT:
            why = "too few are left for a merge (merge_at_least), and wait"
        parts.append(f"broke off at {at:.1f} s of {horizon:g} s: {why}")
    if refused:
        parts.append(f"{number_of(refused, 'update')} refused for NaN or infinity")
    if excluded:
        names = " ".join(map(str, excluded[:20]))
        parts.append(f"in quarantine at the end: {number_of(len(excluded), 'client')} ({names})")
    if refused:
        parts.append("if training diverged, lower local.learning_rate")
    return "; ".join(parts) or None
