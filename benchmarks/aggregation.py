"""What aggregation costs, as ratios measured in one run. Run: python -m benchmarks.aggregation"""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Literal

import torch

from benchmarks.resident import resident
from fedcompass.aggregation import (
    AggregationSettings,
    Contribution,
    FlatState,
    GuardSettings,
    Layout,
    ServerSettings,
    TensorSpec,
    WeightedSum,
    check_update,
)

# The CIFAR-10 ResNet-18: parameters, BatchNorm statistics, BatchNorm counters.
PARAMETERS, STATISTICS, COUNTERS = 11_173_962, 9_600, 20
LAYOUT = Layout(
    (
        TensorSpec("weights", (PARAMETERS,), torch.float32, "trainable"),
        TensorSpec("statistics", (STATISTICS,), torch.float32, "averaged"),
        TensorSpec("counters", (COUNTERS,), torch.int64, "counted"),
    )
)
GROUP = 20  # updates in a group
REPEATS = 15
CONTRIBUTION = Contribution(staleness=1, share=0.05, steps=20)
GUARD = GuardSettings()

OptimizerName = Literal["plain", "momentum", "adam"]


def main() -> None:
    torch.set_num_threads(1)
    print(f"aggregation, {PARAMETERS:,} parameters, 1 thread, median of {REPEATS} interleaved")
    seconds = _interleaved(_cases(), REPEATS)
    bare = seconds["bare add_"]
    print(f"  bare add_(x, alpha=a)              {bare * 1e3:6.2f} ms")
    _print_ratio("fold into an open buffer", seconds["fold"] / bare, 1.15)
    _print_ratio("guard + fold", seconds["guard + fold"] / bare, 1.60)
    group = seconds["group"] / GROUP / bare
    _print_ratio(f"a whole group of {GROUP}, per fold", group, None)
    print(f"peak memory of a group of {GROUP} (guard, fold, commit) above model and updates")
    _print_models("plain server", _peak_models("plain"), 3)
    _print_models("momentum (1 of them its state)", _peak_models("momentum"), 3)
    _print_models("adam (2 of them its state)", _peak_models("adam"), None)


def _print_ratio(what: str, ratio: float, goal: float | None) -> None:
    print(f"  {what:33} {ratio:6.2f} x add_" + (f"   (goal <= {goal:.2f})" if goal else ""))


def _print_models(what: str, models: float, goal: int | None) -> None:
    print(f"  {what:33} {models:6.2f} models" + (f"   (goal <= {goal})" if goal else ""))


def _random_state() -> FlatState:
    return FlatState(
        torch.randn(PARAMETERS), torch.rand(STATISTICS), torch.ones(COUNTERS, dtype=torch.int64)
    )


def _cases() -> dict[str, Callable[[], object]]:
    # Every call takes the next of several updates, so that none is still in the cache.
    updates = itertools.cycle([_random_state() for _ in range(4)])
    target = torch.randn(PARAMETERS)
    aggregator = WeightedSum(_random_state(), AggregationSettings())
    aggregator.fold(1, next(updates), CONTRIBUTION)

    def guard_and_fold() -> None:
        update = next(updates)
        assert check_update(update, LAYOUT, GUARD) is None
        aggregator.fold(1, update, CONTRIBUTION)

    def group() -> None:
        fresh = WeightedSum(aggregator.model, AggregationSettings())  # its buffer is not open yet
        for _ in range(GROUP):
            fresh.fold(1, next(updates), CONTRIBUTION)

    return {
        "bare add_": lambda: target.add_(next(updates).trainable, alpha=0.05),
        "fold": lambda: aggregator.fold(1, next(updates), CONTRIBUTION),
        "guard + fold": guard_and_fold,
        "group": group,
    }


def _interleaved(cases: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each case, measured in turn so that a busy moment hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(repeats + 2):
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            if repeat >= 2:  # the first two warm up
                times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def _peak_models(optimizer: OptimizerName) -> float:
    """Run one group in a fresh process and give its peak memory above the inputs, in models."""
    command = [sys.executable, "-m", "benchmarks.aggregation", "--peak-of", optimizer]
    root = Path(__file__).parents[1]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)
    return float(json.loads(answer.stdout)["models"])


def _measure_peak(optimizer: OptimizerName) -> None:
    torch.set_num_threads(1)
    aggregator = WeightedSum(
        _random_state(), AggregationSettings(server=ServerSettings(optimizer=optimizer))
    )
    updates = [_random_state() for _ in range(GROUP)]
    torch.dot(updates[0].averaged, updates[0].averaged)  # loads the linear algebra library
    before = resident("VmRSS")
    for update in updates:
        assert check_update(update, LAYOUT, GUARD) is None
        aggregator.fold(1, update, CONTRIBUTION)
    aggregator.commit([1])
    print(json.dumps({"models": (resident("VmHWM") - before) / aggregator.model.nbytes}))


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["--peak-of", ("plain" | "momentum" | "adam") as name]:
            _measure_peak(name)
        case other:
            sys.exit(f"unknown arguments {other}; run without any")
