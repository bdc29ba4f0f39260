"""The work that every simulator is given, and a bare PyTorch loop of it; torch and numpy only.

It is imported in each peer's own environment, where fedcompass is not installed.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

CLIENTS = 5
STEPS = 20
ROUNDS = 4
"""Rounds of FedAvg; FedAsync gets as many local rounds, so the same number of steps."""

BATCH = 64
RATE = 0.003

Part = tuple[Tensor, Tensor]


class MnistCnn(nn.Sequential):
    """The paper's network for MNIST."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)),
        )


def parts(path: Path) -> list[Part]:
    """Each client's images as floats and their labels."""
    stored = np.load(path)
    x = torch.from_numpy(stored["x"]).float().div(255).unsqueeze(1)
    y = torch.from_numpy(stored["y"]).long()
    return list(zip(x.chunk(CLIENTS), y.chunk(CLIENTS), strict=True))


def train(module: nn.Module, part: Part, steps: int) -> None:
    """Local steps as a user writes them."""
    x, y = part
    optimizer = torch.optim.Adam(module.parameters(), lr=RATE)
    for _ in range(steps):
        rows = torch.randint(len(y), (BATCH,))
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(x[rows]), y[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def bare_seconds(part: Part, steps: int) -> float:
    """Seconds of a loop of so many steps and nothing else."""
    module = MnistCnn()
    began = time.perf_counter()
    train(module, part, steps)
    return time.perf_counter() - began


def measure(simulate: Callable[[list[Part]], tuple[float, int]]) -> None:
    """Print the ratio of a simulator's seconds to a bare loop's, timed before and after it.

    `simulate` returns its seconds and the local steps it trained in them: a simulator that trains
    tasks whose answer the run's end leaves out is not charged for them.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = parts(Path(sys.argv[1]))
    count = ROUNDS * CLIENTS * STEPS
    bare_seconds(data[0], STEPS)  # the first steps are slower
    before = bare_seconds(data[0], count)
    seconds, steps = simulate(data)
    after = bare_seconds(data[0], count)
    bare = (before + after) / (2 * count)
    print(json.dumps({"ratio": seconds / steps / bare, "drift": after / before}))
