"""The demo's app: mnist-mini split by classes, each site as slow as its settings say.

Settings of a site: `number` (from 0) of `sites`, `seconds_per_step`, and optionally `seed`.
"""

from functools import partial

from torch import nn

from fedcompass import Samples, models
from fedcompass.data.catalogue import load
from fedcompass.data.partition import partition
from fedcompass.deployment import Site, Trainer
from fedcompass.settings.data import PartitionSettings
from fedcompass.training import LocalSettings
from fedcompass.training.optimizers import build_optimizer

__all__ = ["model", "test_set", "trainer"]

_data = load("mnist-mini")


def model() -> nn.Module:
    """A small network: five sites share two cores, and their paces are to be the injected ones."""
    return models.build("mlp", input_shape=_data.input_shape, classes=_data.classes)


def trainer(site: Site) -> Trainer:
    """This site's rows of the training set, and its pace."""
    sites, seed = site.settings["sites"], site.settings.get("seed", 0)
    rows = partition(_data.train_targets, _data.classes, sites, PartitionSettings(), seed)
    return Trainer(
        data=Samples(_data.train_inputs, _data.train_targets, rows[site.settings["number"]]),
        optimizer=partial(build_optimizer, LocalSettings(optimizer="adam", learning_rate=0.003)),
        transform=_data.normalize,
        seconds_per_step=site.settings["seconds_per_step"],
        seed=seed,
    )


def test_set() -> Samples:
    """What the server measures merged models on."""
    return Samples(_data.normalize(_data.test_inputs), _data.test_targets)
