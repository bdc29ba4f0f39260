"""What was measured, as far as the advice rests on it: one line for each kind of fleet.

To be replaced when a study has more to say: the advice has no other source of results.
"""

from typing import Literal, NamedTuple, TypeAlias

__all__ = ["RECOMMENDATIONS", "FleetKind", "Recommendation"]

FleetKind: TypeAlias = Literal["alike", "one group", "far apart"]
"""How far clients are from each other.

alike       in rounds of FedAvg clients wait for less than a third of their time
one group   they wait longer, but Compass's range of steps lets all answer together
far apart   it does not: Compass makes several groups
"""


class Recommendation(NamedTuple):
    """What did best for a kind of fleet.

    strategy: its name.
    because: what was measured, in a sentence or two.
    source: the page of the docs that has the numbers.
    short_rounds: with a fifth of the usual steps, where a task's fixed cost allows it.
    """

    strategy: str
    because: str
    source: str
    short_rounds: bool = False


RECOMMENDATIONS: dict[FleetKind, Recommendation] = {
    "alike": Recommendation(
        "fedavg",
        "On MNIST short rounds counted for more than the strategy: with equal speeds FedAvg with "
        "rounds of 40 steps reached its target in 27 of 30 runs, FedCompass with up to 200 in 15, "
        "Metronome in 13; with normal speeds it was 24, 17 and 20. A task's fixed cost was a "
        "quarter of the time of its 40 steps.",
        "docs/metronome.md, fleets `equal` and `normal`",
        short_rounds=True,
    ),
    "one group": Recommendation(
        "metronome",
        "On MNIST Metronome reached its target in 20 of 30 runs with normal speeds, FedCompass in "
        "17, and with speeds that change in 29 against 15, both sooner and with fewer uploads.",
        "docs/metronome.md, fleets `normal` and `changing`",
    ),
    "far apart": Recommendation(
        "metronome",
        "On MNIST with exponential speeds Metronome took 0.48 of FedCompass's time to the target, "
        "and reached it in 51 of 60 runs, FedCompass in 23. On two small medical tables, whose "
        "target is near the best that can be had, metronome+n was better (38 of 40 runs, Metronome "
        "28, FedCompass 20), as was FedCompass with CA2FL (40), which keeps a model's memory for "
        "every client: compare them where your target is such a one.",
        "docs/metronome.md; docs/pieces.md for CA2FL",
    ),
}
"""The only results that the advice uses."""
