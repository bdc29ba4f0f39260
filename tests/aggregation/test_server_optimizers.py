from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcompass.aggregation import ServerSettings
from fedcompass.aggregation.server_optimizers import build
from fedcompass.errors import CheckpointError, SettingsError

Name = Literal["plain", "momentum", "adam", "yogi", "adagrad"]
NAMES: tuple[Name, ...] = ("plain", "momentum", "adam", "yogi", "adagrad")


def weights_after(settings: ServerSettings, steps: list[list[float]]) -> list[float]:
    """Where three weights that start at 1 end up."""
    optimizer, weights = build(settings), torch.ones(3)
    for step in steps:
        optimizer.apply(weights, torch.tensor(step, dtype=torch.float32))
    return weights.tolist()


def reference(name: Name, beta1: float, steps: list[float]) -> float:
    """Algorithm 2 of Reddi et al. for one weight, in plain Python, with the paper's Δ = -step."""
    x, m, tau, beta2, eta = 1.0, 0.0, 1e-3, 0.99, 0.1
    v = tau**2
    for step in steps:
        delta = -step
        m = beta1 * m + (1 - beta1) * delta
        match name:
            case "adagrad":
                v = v + delta**2
            case "yogi":
                sign = (v > delta**2) - (v < delta**2)
                v = v - (1 - beta2) * delta**2 * sign
            case _:
                v = beta2 * v + (1 - beta2) * delta**2
        x += eta * m / (v**0.5 + tau)
    return x


def test_plain_subtracts_the_step_times_the_learning_rate() -> None:
    assert weights_after(ServerSettings(), [[1, 2, 3]]) == [0, -1, -2]
    assert weights_after(ServerSettings(learning_rate=0.5), [[1, 2, 3]]) == [0.5, 0, -0.5]


def test_momentum_carries_half_of_the_last_velocity_on() -> None:
    # v = (2, 0, 4), then 0.5 v + (1, 2, 0) = (2, 2, 2)
    settings = ServerSettings(optimizer="momentum", beta=0.5)
    assert weights_after(settings, [[2, 0, 4], [1, 2, 0]]) == [-3, -1, -5]


@pytest.mark.parametrize(
    ("name", "beta1", "used"),
    [
        ("adam", None, 0.9),
        ("yogi", None, 0.9),
        ("adagrad", None, 0.0),
        ("adam", 0.5, 0.5),
        ("yogi", 0.0, 0.0),
        ("adagrad", 0.9, 0.9),
    ],
)
def test_the_adaptive_optimizers_follow_reddi_et_al(
    name: Name, beta1: float | None, used: float
) -> None:
    settings = ServerSettings(optimizer=name, beta1=beta1, learning_rate=0.1)
    steps = [[0.5, -0.25, 0.0], [0.1, 0.3, -2.0], [0.0, -0.2, 0.01]]
    expected = [reference(name, used, list(column)) for column in zip(*steps, strict=True)]
    assert weights_after(settings, steps) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_yogi_gives_the_same_in_pieces_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServerSettings(optimizer="yogi")
    steps = [[0.5, -0.25, 0.0], [0.1, 0.3, -2.0]]
    whole = weights_after(settings, steps)
    monkeypatch.setattr("fedcompass.aggregation.server_optimizers._CHUNK", 2)
    assert weights_after(settings, steps) == whole


@pytest.mark.parametrize("name", NAMES)
def test_state_is_empty_before_the_first_step(name: Name) -> None:
    assert build(ServerSettings(optimizer=name)).state() == {}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps_before", [0, 1, 3])
def test_a_restored_optimizer_goes_on_bit_equal(name: Name, steps_before: int) -> None:
    torch.manual_seed(1)
    steps, weights = torch.randn(5, 3), torch.ones(3)
    first, second = (build(ServerSettings(optimizer=name)) for _ in range(2))
    second.apply(torch.ones(3), torch.ones(3))  # what it did before is forgotten
    for step in steps[:steps_before]:
        first.apply(weights, step.clone())
    second.restore(first.state())
    again = weights.clone()
    for step in steps[steps_before:]:
        first.apply(weights, step.clone())
        second.apply(again, step.clone())
    assert torch.equal(weights, again)


@pytest.mark.parametrize(("saved", "restored"), [("momentum", "plain"), ("adam", "momentum")])
def test_another_optimizers_state_is_refused(saved: Name, restored: Name) -> None:
    source = build(ServerSettings(optimizer=saved))
    source.apply(torch.ones(3), torch.ones(3))
    with pytest.raises(CheckpointError, match="restore with the optimizer"):
        build(ServerSettings(optimizer=restored)).restore(source.state())


@settings(deadline=None)
@given(values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8))
def test_weights_stay_finite_under_every_optimizer(values: list[float]) -> None:
    for name in NAMES:
        weights = weights_after(ServerSettings(optimizer=name), [[v, -v, 0.0] for v in values])
        assert torch.tensor(weights).isfinite().all()


@pytest.mark.parametrize(
    "values", [{"learning_rate": 0}, {"beta": 1}, {"beta1": 1}, {"beta2": -0.1}, {"tau": 0}]
)
def test_values_out_of_range_are_refused_by_name(values: dict[str, Any]) -> None:
    (name,) = values
    with pytest.raises(SettingsError, match=f"{name} is "):
        ServerSettings(**values)
