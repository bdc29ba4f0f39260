"""Training that takes milliseconds and no torch: what a soak's sites do, and what they did."""

from typing import Any

import numpy as np

APP = """\
from torch import nn

from fedcompass.deployment import Site, Trainer


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 4096), nn.Linear(4096, 2))


def trainer(site: Site) -> Trainer:
    raise NotImplementedError("sites of a soak have a worker of their own")
"""


def toy_trained(model: bytes, number: int, task: int, steps: int) -> bytes:
    """A site's answer: the same bits whoever computes it. All of the model's tensors are float32.

    Args:
        model: the task's start, as it travels.
        number: the site's.
        task: its number in the run.
        steps: how many were done.
    """
    start = np.frombuffer(model, np.float32)
    goal = np.random.default_rng([number, task]).standard_normal(len(start), np.float32)
    return (start + np.float32(0.01 * steps) * (goal - start)).astype(np.float32).tobytes()


def toy_samples(settings: dict[str, Any]) -> int:
    return 40 + int(settings["number"])
