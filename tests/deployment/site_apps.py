"""Apps of sites small enough to train in microseconds, in this process or in a worker."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from fedcompass import Samples
from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.deployment.app.app_file import AppFile
from fedcompass.deployment.app.trainer import Site, Trainer
from fedcompass.deployment.wire.payloads import payload_pieces

torch.set_num_threads(1)  # threads that wait for each other slow such small steps down

SITE = Site("here")
SGD = partial(torch.optim.SGD, lr=0.1)

SLOW_APP = '''
"""Counts its steps in a file; each takes 20 ms."""
import time
from torch import nn
import torch
from fedcompass import Samples
from fedcompass.deployment import Site, Trainer

def model():
    return nn.Linear(2, 2)

class Counting(Trainer):
    def train_step(self, *arguments):
        time.sleep(0.02)
        with open(self.counted, "a") as file:
            file.write(".")
        return super().train_step(*arguments)

def trainer(site: Site) -> Trainer:
    data = Samples(torch.ones(8, 2), torch.zeros(8, dtype=torch.int64))
    made = Counting(data=data, optimizer=lambda p: torch.optim.SGD(p, lr=0.1), batch_size=4)
    made.counted = site.data / "steps"
    return made
'''


def linear() -> nn.Module:
    return nn.Linear(2, 2)


def samples(count: int = 20) -> Samples:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 2, generator=generator)
    return Samples(inputs, (inputs.sum(dim=1) > 0).long())


class CountingTrainer(Trainer):
    """Keeps what it was given, and calls a hook before each step."""

    def __init__(self, hook: Callable[[int], None] = lambda _: None, **fields: Any) -> None:
        defaults: dict[str, Any] = {"data": samples(), "optimizer": SGD, "batch_size": 4}
        super().__init__(**(defaults | fields))
        self.hook = hook
        self.batches: list[Any] = []
        self.optimizers: list[torch.optim.Optimizer] = []

    def train_step(self, model: nn.Module, optimizer: Any, batch: Any, generator: Any) -> Any:
        self.hook(len(self.batches) + 1)
        self.batches.append(batch)
        self.optimizers.append(optimizer)
        return super().train_step(model, optimizer, batch, generator)


def app_with(trainer: Trainer, model: Callable[[], nn.Module] = linear) -> AppFile:
    module = ModuleType("app")
    module.__dict__.update(model=model, trainer=lambda _: trainer)
    return AppFile(Path("app.py"), module)


def start_state(model: Callable[[], nn.Module] = linear) -> tuple[Layout, FlatState]:
    torch.manual_seed(3)
    module = model()
    layout = Layout.of(module)
    return layout, layout.state_of(module)


def start_file(folder: Path) -> Path:
    """The start model as a site has it on disk."""
    layout, state = start_state()
    path = folder / "start"
    path.write_bytes(b"".join(payload_pieces(layout, "model", state)))
    return path
