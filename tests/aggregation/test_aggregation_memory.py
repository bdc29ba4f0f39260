"""Server memory is a matter of open buffers, not of clients: counted in allocated model vectors."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedcompass.aggregation import (
    AggregationSettings,
    Contribution,
    FlatState,
    ServerSettings,
    TierAverage,
    WeightedSum,
)
from fedcompass.settings.aggregation import TierSettings

PARAMETERS = 1000
BY = Contribution(staleness=0, share=0.1, steps=3)


class NewVectors(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own gap
    """Counts the model-size vectors that operations allocate."""

    def __init__(self, *known: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self._alive = list(known)  # kept, so that no address is used twice
        self._known = {tensor.data_ptr() for tensor in known}
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.numel() == PARAMETERS:
            for given in (*args, *(kwargs or {}).values()):
                if isinstance(given, torch.Tensor):
                    self._known.add(given.data_ptr())
            if result.data_ptr() not in self._known:
                self.count += 1
            self._known.add(result.data_ptr())
            self._alive.append(result)
        return result


def state() -> FlatState:
    return FlatState(torch.randn(PARAMETERS), torch.rand(2), torch.tensor([1]))


def folded(settings: AggregationSettings, buffers: range) -> WeightedSum:
    aggregator = WeightedSum(state(), settings)
    for buffer in buffers:
        for _ in range(3):
            aggregator.fold(buffer, state(), BY)
    return aggregator


def test_a_buffer_costs_one_vector_however_many_updates_it_takes() -> None:
    aggregator = WeightedSum(state(), AggregationSettings())
    updates = [state() for _ in range(20)]
    with NewVectors() as new:
        for update in updates:
            aggregator.fold(1, update, BY)
    assert new.count == 1


@pytest.mark.parametrize(
    "settings",
    [
        AggregationSettings(),
        AggregationSettings(normalized=True),
        AggregationSettings(scale="mean-count", payload="model"),
    ],
)
def test_a_plain_merge_of_several_buffers_allocates_nothing(settings: AggregationSettings) -> None:
    aggregator = folded(settings, range(3))
    with NewVectors() as new:
        aggregator.commit([1, 2, 0])
    assert new.count == 0


@pytest.mark.parametrize(("optimizer", "states"), [("momentum", 1), ("adam", 2), ("yogi", 2)])
def test_an_optimizer_allocates_its_state_once(
    optimizer: str, states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedcompass.aggregation.server_optimizers._CHUNK", 100)
    server = ServerSettings.model_validate({"optimizer": optimizer})
    aggregator = folded(AggregationSettings(server=server), range(2))
    with NewVectors() as new:
        aggregator.commit([0])
    assert new.count == states
    with NewVectors() as new:
        aggregator.commit([1])
    assert new.count == 0


@pytest.mark.parametrize(("learning_rate", "temporaries"), [(1.0, 0), (0.5, 1)])
def test_a_tiers_mean_stays_in_its_buffers_memory(learning_rate: float, temporaries: int) -> None:
    aggregator = TierAverage(
        state(), TierSettings(server=ServerSettings(learning_rate=learning_rate))
    )
    for tier in (1, 2, 3):
        aggregator.fold(tier, state(), BY)
    aggregator.commit([1])
    with NewVectors() as new:
        aggregator.commit([2])
    assert new.count == temporaries
