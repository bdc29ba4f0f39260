"""How waits, merges, deadlines and unplanned ends look, in the lanes and in the legend."""

from typing import Any

from fedcompass.runs.tally import Outcome

__all__ = ["DOTTED", "MERGED", "OUTCOMES", "SHORT_WAIT", "WAITING", "outcome_mark"]

OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "late": ("D", "late"),
    "refused": ("X", "refused"),
    "lost": ("x", "lost"),
}
WAITING: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": "0.75",
    "hatch": "//////",
    "linewidth": 0.4,
}
SHORT_WAIT: dict[str, Any] = {"facecolor": "0.9", "linewidth": 0.0}  # no room for a hatch
DOTTED = (0, (1.0, 1.3))
MERGED: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 2.6,
    "markerfacecolor": "0.15",
    "markeredgecolor": "white",
    "markeredgewidth": 0.4,
}


def outcome_mark(marker: str) -> dict[str, Any]:
    """How the end of a round that did not go as planned is drawn."""
    return {
        "linestyle": "none",
        "marker": marker,
        "markersize": 5,
        "markerfacecolor": "white",
        "markeredgecolor": "black",
        "markeredgewidth": 0.9,
        "zorder": 6,
    }
