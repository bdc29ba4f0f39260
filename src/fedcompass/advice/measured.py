"""What was measured, as far as the advice rests on it: one line for each kind of fleet.

To be replaced when a study has more to say: the advice has no other source of results.
"""

from typing import Literal, NamedTuple, TypeAlias

__all__ = ["RECOMMENDATIONS", "FleetKind", "Recommendation"]

FleetKind: TypeAlias = Literal["alike", "far apart"]
"""How far clients are from each other.

alike       in rounds of FedAvg clients wait for less than 45% of their time
far apart   they wait longer
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
    "far apart": Recommendation(
        "metronome",
        "On MNIST with exponential speeds Metronome took 0.41 of FedCompass's time to the target, "
        "and reached it in 158 of 180 runs, FedCompass in 51; with absent = catch-up it was 166. "
        "On CIFAR-10 with five clients it was 4 of 6 runs, FedCompass 0, and 3 with min_steps 10 "
        "and staleness.kind growing. On two small medical tables, whose target is near the best "
        "that can be had, metronome+n was better (38 of 40 runs, Metronome 28, FedCompass 20), as "
        "was FedCompass with CA2FL (40), which keeps a model's memory for every client: compare "
        "them where your target is such a one. With one straggler among equal clients Metronome gained "
        "little (11 of 30 runs, FedCompass 10, and 18 with min_steps 10 and staleness.kind "
        "growing).",
        "docs/metronome.md; docs/pieces.md for CA2FL",
    ),
}
"""The only results that the advice uses."""
