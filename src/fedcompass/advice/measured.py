"""What was measured, as far as the advice rests on it: one line for each kind of fleet.

To be replaced when a study has more to say: the advice has no other source of results.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = ["RECOMMENDATIONS", "FleetKind", "Recommendation"]

FleetKind: TypeAlias = Literal["alike", "one group", "far apart"]
"""How far clients are from each other.

alike       in rounds of FedAvg hardly anybody waits
one group   somebody waits, but Compass's range of steps lets all answer together
far apart   it does not: Compass makes several groups
"""


class Recommendation(NamedTuple):
    """What did best for a kind of fleet.

    strategy: its name.
    settings: of that strategy, other than its usual ones.
    because: what was measured, in a sentence.
    source: the page of the docs that has the numbers.
    """

    strategy: str
    settings: Mapping[str, Any]
    because: str
    source: str


RECOMMENDATIONS: dict[FleetKind, Recommendation] = {
    "alike": Recommendation(
        "fedavg",
        {},
        "On MNIST with equal speeds FedAvg reached its target in 15 of 18 runs and FedCompass in "
        "14: there is nothing to gain where nobody waits.",
        "docs/reproduction.md, table 1",
    ),
    "one group": Recommendation(
        "fedcompass",
        {},
        "On MNIST with normally distributed speeds FedCompass was ahead of FedAvg, FedAsync, "
        "FedBuff and FedAT in 6 of 6 cells, and reached its target in 14 of 18 runs.",
        "docs/reproduction.md, table 1",
    ),
    "far apart": Recommendation(
        "fedcompass+m",
        {},
        "On MNIST with exponential speeds FedCompass+M reached its target in 13 of 18 runs, more "
        "than any other strategy as written (FedCompass 9, FedAvg 6, FedBuff 5, FedAsync 4); "
        "Metronome, which is made for such fleets, is not measured yet: compare the two.",
        "docs/reproduction.md, table 1; with its authors' habits FedCompass does better: "
        "docs/as-run.md",
    ),
}
"""The only results that the advice uses."""
