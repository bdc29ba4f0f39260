"""The app of the fault tests' federations, and the same training done again without faults."""

from pathlib import Path
from typing import Any

import torch

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.deployment.app.app_file import load_app
from fedcompass.deployment.app.trainer import Site
from fedcompass.deployment.site.local_round import SiteRounds
from fedcompass.scheduling.events import UpdateArrived

WIDTH = 16

APP = f"""\
from functools import partial

import torch
from torch import nn

from fedcompass import Samples
from fedcompass.deployment import Site, Trainer


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, {WIDTH}), nn.BatchNorm1d({WIDTH}), nn.Linear({WIDTH}, 2))


def trainer(site: Site) -> Trainer:
    generator = torch.Generator().manual_seed(site.settings["number"])
    inputs = torch.randn(40, 8, generator=generator)
    return Trainer(
        data=Samples(inputs, (inputs.sum(dim=1) > 0).long()),
        optimizer=partial(torch.optim.SGD, lr=0.05),
        batch_size=8,
        seconds_per_step=site.settings["seconds_per_step"],
    )
"""


def app_of_width(width: int) -> str:
    """The same app with a larger model."""
    return APP.replace(str(WIDTH), str(width))


class Twin:
    """The sites once more, in this process and in no hurry: the same tasks give the same bits."""

    def __init__(self, app: Path, seed: int, sites: dict[str, dict[str, Any]]) -> None:
        torch.set_num_threads(1)  # as the sites' workers
        loaded = load_app(app)
        module = loaded.model(seed)
        self.layout = Layout.of(module)
        self.initial = self.layout.state_of(module)
        self._rounds = {}
        for name, settings in sites.items():
            site = Site(name, settings={**settings, "seconds_per_step": 0.0})
            self._rounds[name] = SiteRounds(loaded.model(), loaded.trainer(site), site)

    def trained(self, start: FlatState, event: UpdateArrived, steps_before: int) -> FlatState:
        """What a site's task gave."""
        rounds, steps = self._rounds[event.client], event.steps_done
        done = rounds.run(start, steps=steps, task=event.task, steps_before=steps_before)
        return done.end.clone()
