"""An aggregation rule of your own: every update's length is clipped before it is averaged.

It wraps the usual weighted sum, so weights, server optimizers and checkpoints keep working, and it
combines with any scheduler. An update is the start model less the end model: the global model moves
against it. A rule that needs single updates at the commit, such as a median, keeps copies of them
(`update.clone()`): the memory of `update` is used again for the next one.
"""

from collections.abc import Sequence

import fedcompass
from fedcompass.aggregation import (
    AggregationSettings,
    AggregatorState,
    Contribution,
    FlatState,
    Payload,
    WeightedSum,
)
from fedcompass.strategies import Recipe, register

LONGEST = 1.0


class ClippedSum:
    payload: Payload = "delta"

    def __init__(self, model: FlatState, settings: AggregationSettings) -> None:
        self._sum = WeightedSum(model, settings)
        self.model = model
        self.clipped = 0

    def fold(self, buffer: int, update: FlatState, contribution: Contribution) -> float:
        length = float(update.trainable.norm())
        if length > LONGEST:
            self.clipped += 1
            scaled = update.trainable * (LONGEST / length)
            update = FlatState(scaled, update.averaged, update.counted)
        return self._sum.fold(buffer, update, contribution)

    def commit(self, buffers: Sequence[int]) -> None:
        self._sum.commit(buffers)

    def state(self) -> AggregatorState:
        return self._sum.state()

    def restore(self, state: AggregatorState) -> None:
        self._sum.restore(state)


register(
    "fedcompass-clipped",
    Recipe(
        "fedcompass, updates clipped",
        "compass",
        aggregator=ClippedSum,
        # Which settings it heeds; `payload` is not among them: an end model is not to be clipped.
        aggregation_keys=("staleness", "server", "weighting", "scale"),
    ),
)

settings = {"name": "fedcompass-clipped", "min_steps": 8, "max_steps": 40}
plain = fedcompass.simulate(fedcompass.Experiment(horizon=4.0))
clipped = fedcompass.simulate(fedcompass.Experiment(strategy=settings, horizon=4.0))
same = plain.summary["updates_per_client"] == clipped.summary["updates_per_client"]
print(f"the schedule is the same: {same}")
print(f"the models differ: {plain.curve[-1]['loss'] != clipped.curve[-1]['loss']}")
