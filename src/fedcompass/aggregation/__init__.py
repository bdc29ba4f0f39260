"""How updates become a model: pure tensor arithmetic."""

from fedcompass.aggregation.aggregator import Aggregator, AggregatorState
from fedcompass.aggregation.buffers import Contribution
from fedcompass.aggregation.client_memory import ClientMemory
from fedcompass.aggregation.guard import RefusedUpdate, UsualNorms, change_norm, check_update
from fedcompass.aggregation.layout import FlatState, Layout, Segment, TensorSpec
from fedcompass.aggregation.server_optimizers import ServerOptimizer
from fedcompass.aggregation.staleness import staleness_factor
from fedcompass.aggregation.tier_average import TierAverage
from fedcompass.aggregation.weighted_sum import WeightedSum
from fedcompass.settings.aggregation import (
    AggregationSettings,
    GuardSettings,
    Payload,
    ServerSettings,
    StalenessSettings,
)

__all__ = [
    "FlatState",
    "Layout",
    "Segment",
    "TensorSpec",
    "GuardSettings",
    "RefusedUpdate",
    "UsualNorms",
    "change_norm",
    "check_update",
    "StalenessSettings",
    "staleness_factor",
    "ServerOptimizer",
    "ServerSettings",
    "Aggregator",
    "AggregatorState",
    "ClientMemory",
    "Contribution",
    "Payload",
    "AggregationSettings",
    "WeightedSum",
    "TierAverage",
]
