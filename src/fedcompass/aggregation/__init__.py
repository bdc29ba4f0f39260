"""How updates become a model: pure tensor arithmetic."""

from fedcompass.aggregation.aggregator import Aggregator, AggregatorState, Payload
from fedcompass.aggregation.buffers import Contribution
from fedcompass.aggregation.guard import GuardSettings, RefusedUpdate, check_update
from fedcompass.aggregation.layout import FlatState, Layout, Segment, TensorSpec
from fedcompass.aggregation.server_optimizers import ServerOptimizer, ServerSettings
from fedcompass.aggregation.staleness import StalenessSettings, staleness_factor
from fedcompass.aggregation.tier_average import TierAverage
from fedcompass.aggregation.weighted_sum import AggregationSettings, WeightedSum

__all__ = [
    "FlatState",
    "Layout",
    "Segment",
    "TensorSpec",
    "GuardSettings",
    "RefusedUpdate",
    "check_update",
    "StalenessSettings",
    "staleness_factor",
    "ServerOptimizer",
    "ServerSettings",
    "Aggregator",
    "AggregatorState",
    "Contribution",
    "Payload",
    "AggregationSettings",
    "WeightedSum",
    "TierAverage",
]
