"""What an experiment trains: its data, split among its clients, and its model."""

from functools import lru_cache, partial
from pathlib import Path

import torch
from torch import nn

from fedcompass import models
from fedcompass.data.catalogue import load
from fedcompass.data.dataset import Dataset, Normalize
from fedcompass.data.partition import partition
from fedcompass.errors import SettingsError
from fedcompass.experiment import Experiment
from fedcompass.models.weights import build_from
from fedcompass.training.losses import LOSSES
from fedcompass.training.problem import Problem, Samples

__all__ = ["build_problem", "nothing_to_train", "remarks_on"]

_USUALLY_PRETRAINED = ("efficientnet_b0",)


@lru_cache(maxsize=2)
def _loaded(name: str, root: Path | None) -> tuple[Dataset, Normalize]:
    """A dataset, loaded once for all runs of a process: runs on the same tensors can be stacked."""
    dataset = load(name, root)
    return dataset, dataset.normalize


def _data_of(experiment: Experiment) -> tuple[Dataset, Normalize]:
    if experiment.problem is not None:
        raise SettingsError(
            f"this experiment was run on a problem given in Python ({experiment.problem}); give it "
            "again: fedcompass.simulate(experiment, problem=...)"
        )
    return _loaded(experiment.data.name, experiment.data.root)


def build_problem(experiment: Experiment) -> Problem:
    """Load the data, split it among the clients, and name the model.

    Raises:
        DataError: the dataset is missing or damaged.
        SettingsError: the partition or the model cannot be had, or the experiment is the record of
            a run on a problem given in Python.
    """
    dataset, normalize = _data_of(experiment)
    parts = partition(
        dataset.train_targets,
        dataset.classes,
        experiment.fleet.clients,
        experiment.partition,
        experiment.seed,
        dataset.train_centers,
    )
    build = partial(build_from, experiment.weights) if experiment.weights else models.build
    return Problem(
        model=partial(
            build, experiment.model, input_shape=dataset.input_shape, classes=dataset.classes
        ),
        clients=tuple(Samples(dataset.train_inputs, dataset.train_targets, p) for p in parts),
        test=Samples(dataset.test_inputs, dataset.test_targets),
        client_tests=_tests_by_center(dataset, experiment),
        loss=LOSSES[experiment.loss] if experiment.loss else dataset.loss,
        transform=normalize,
        augment=dataset.augment,
    )


def remarks_on(experiment: Experiment) -> list[str]:
    """What a reader of the experiment's results must know about its data and model."""
    remarks = list(_data_of(experiment)[0].remarks)
    if experiment.model in _USUALLY_PRETRAINED and experiment.weights is None:
        remarks.append(
            f"{experiment.model}: no pretrained weights were given, training starts from random "
            "ones (--set weights=FILE)"
        )
    return remarks


def _tests_by_center(dataset: Dataset, experiment: Experiment) -> tuple[Samples, ...] | None:
    """Each center's own test samples, where the clients are the centers."""
    if experiment.partition.kind != "center" or dataset.test_centers is None:
        return None
    assert dataset.train_centers is not None  # the partition by center needs them
    present = sorted(set(dataset.train_centers.tolist()))  # as the clients are
    return tuple(
        Samples(
            dataset.test_inputs, dataset.test_targets, (dataset.test_centers == c).nonzero()[:, 0]
        )
        for c in present
    )


def nothing_to_train(clients: int) -> Problem:
    """One weight and one sample each: for looking at schedules without any training."""
    row = torch.zeros(1, 1)
    samples = Samples(row, torch.zeros(1, dtype=torch.int64))
    return Problem(model=partial(nn.Linear, 1, 1, False), clients=[samples] * clients, test=samples)
