import fedcompass.aggregation as aggregation
from fedcompass.aggregation import Aggregator, FlatState, TierAverage, WeightedSum
from fedcompass.settings.aggregation import AggregationSettings


def test_every_public_name_can_be_imported() -> None:
    assert len(aggregation.__all__) == len(set(aggregation.__all__))
    for name in aggregation.__all__:
        assert hasattr(aggregation, name)


def both(model: FlatState) -> list[Aggregator]:
    """The type checker reads this: both classes are aggregators."""
    return [WeightedSum(model, AggregationSettings()), TierAverage(model)]
