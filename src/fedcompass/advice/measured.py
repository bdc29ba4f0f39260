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
        "metronome+n",
        {},
        "On two medical tables with exponential speeds metronome+n reached its target in 38 of 40 "
        "runs, FedCompass in 20; FedCompass with CA2FL did in 40 and keeps a model's memory for "
        "every client. On MNIST these are not measured yet, and FedCompass+M did best of those "
        "that are: compare them on data like yours.",
        "docs/metronome.md; docs/pieces.md for CA2FL; docs/reproduction.md, table 1, for MNIST",
    ),
}
"""The only results that the advice uses."""
