"""What was measured, as far as the advice rests on it: one line for each kind of fleet.

To be replaced when a study has more to say. The thresholds in choice.py go by the same studies.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = ["RECOMMENDATIONS", "FleetKind", "Recommendation"]

FleetKind: TypeAlias = Literal["alike", "one straggler", "far apart"]
"""How far clients are from each other.

alike           in rounds of FedAvg clients wait for less than 45% of their time
one straggler   they wait longer, nearly all of it for a single client
far apart       they wait longer
"""


class Recommendation(NamedTuple):
    """What did best for a kind of fleet.

    strategy: its name.
    because: what was measured, one result after the other.
    source: the page of the docs that has the numbers.
    short_rounds: with a fifth of the usual steps, where a task's fixed cost allows it.
    step_range: Q_max over Q_min; None: as usual.
    settings: others of the strategy.
    """

    strategy: str
    because: tuple[str, ...]
    source: str
    short_rounds: bool = False
    step_range: int | None = None
    settings: Mapping[str, Any] = {}


RECOMMENDATIONS: dict[FleetKind, Recommendation] = {
    "alike": Recommendation(
        "fedavg",
        (
            "On MNIST short rounds counted for more than the strategy: with equal speeds FedAvg "
            "with rounds of 40 steps reached its target in 27 of 30 runs, FedCompass with up to "
            "200 in 15, Metronome in 13; with normal speeds it was 24, 17 and 20. A task's fixed "
            "cost was a quarter of the time of its 40 steps.",
        ),
        "docs/metronome-study.md, fleets `equal` and `normal`",
        short_rounds=True,
    ),
    "one straggler": Recommendation(
        "fedcompass",
        (
            "On MNIST with one client 30 times as slow as the others, which were equal, FedCompass "
            "with a Q_min of a twentieth of Q_max and weights that grow with staleness reached its "
            "target in 18 of 30 runs, as written in 10, Metronome in 11.",
        ),
        "docs/metronome-study.md, fleet `one straggler`; docs/as-run.md for such weights",
        step_range=20,
        settings={"staleness": {"kind": "growing"}},
    ),
    "far apart": Recommendation(
        "metronome",
        (
            "On MNIST with exponential speeds Metronome with catch-up took 0.37 of FedCompass's "
            "time to the target (0.59 with 5 clients, 0.23 with 20), and reached it in 166 of 180 "
            "runs, FedCompass in 51.",
            "The strongest other setting is FedCompass with min_steps a twentieth of max_steps, "
            "staleness.kind growing and pace.overhead_aware true: on the bundled data, with seeds "
            "that nothing was chosen with, Metronome with catch-up took 0.87 of its time and "
            "reached the target in 98 of 120 runs instead of 85. With 5 clients the two are not "
            "told apart, nor is FedAvg with short rounds on MNIST.",
            "All that is where the clients' data differ. Where they are alike (IID) use that "
            "FedCompass: Metronome took 1.09 of its time to a high target, 2.18 to a low one.",
            "On CIFAR-10 with five clients Metronome without catch-up reached the target in 4 of 6 "
            "runs, FedCompass in 0, and in 3 with min_steps 10 and staleness.kind growing.",
            "On two small medical tables, whose target is near the best that can be had, "
            "metronome+n was better (38 of 40 runs, Metronome 28, FedCompass 20), as was "
            "FedCompass with CA2FL (40), which keeps a model's memory for every client: compare "
            "them where your target is such a one.",
        ),
        "docs/metronome-study.md; docs/pieces.md for CA2FL",
        settings={"absent": "catch-up"},
    ),
}
"""The only results that the advice tells; how kinds of fleet are told apart stands in choice.py."""
