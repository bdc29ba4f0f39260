"""What an experiment trains: its data, split among its clients, and its model."""

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

import torch
from torch import nn

from fedcompass import models, own_code
from fedcompass.data.catalogue import load
from fedcompass.data.dataset import Dataset, Normalize
from fedcompass.data.own_data import OwnData, own_data
from fedcompass.data.partition import partition
from fedcompass.errors import SettingsError
from fedcompass.experiment import Experiment
from fedcompass.models.factory import call_factory
from fedcompass.models.weights import build_from
from fedcompass.own_code import is_own
from fedcompass.training.losses import LOSSES, loss_named
from fedcompass.training.problem import Loss, Problem, Samples

__all__ = ["build_problem", "nothing_to_train", "remarks_on"]

_USUALLY_PRETRAINED = ("efficientnet_b0",)


@lru_cache(maxsize=2)
def _loaded(name: str, root: Path | None) -> tuple[Dataset, Normalize]:
    """A dataset, loaded once for all runs of a process: runs on the same tensors can be stacked."""
    dataset = load(name, root)
    return dataset, dataset.normalize


def _check_rebuildable(experiment: Experiment) -> None:
    if experiment.problem is not None:
        raise SettingsError(
            f"this experiment was run on a problem given in Python ({experiment.problem}); give it "
            "again: fedcompass.simulate(experiment, problem=...)"
        )


def build_problem(experiment: Experiment) -> Problem:
    """Load the data, split it among the clients, and name the model.

    Raises:
        DataError: the dataset is missing or damaged.
        SettingsError: the partition or the model cannot be had, or the experiment is the record of
            a run on a problem given in Python.
    """
    _check_rebuildable(experiment)
    if is_own(experiment.data.name):
        return _own_problem(experiment)
    dataset, normalize = _loaded(experiment.data.name, experiment.data.root)
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
        loss=loss_named(experiment.loss) if experiment.loss else dataset.loss,
        transform=normalize,
        augment=dataset.augment,
    )


def _own_problem(experiment: Experiment) -> Problem:
    """The user's own data, split among the clients unless they are split already.

    Raises:
        SettingsError, DataError: saying what does not fit, and what to give instead.
    """
    data = own_data(experiment.data.name, clients=experiment.fleet.clients, seed=experiment.seed)
    return Problem(
        model=_own_model(experiment, data),
        clients=_own_clients(experiment, data),
        test=data.test,
        client_tests=data.client_tests,
        loss=loss_named(experiment.loss) if experiment.loss else data.loss or _usual_loss(data),
        transform=data.transform,
        augment=data.augment,
    )


def _own_clients(experiment: Experiment, data: OwnData) -> tuple[Samples, ...]:
    kind, clients = experiment.partition.kind, experiment.fleet.clients
    if isinstance(data.train, Samples):
        train = data.train
        parts = partition(
            *(train.targets, data.classes or 0, clients, experiment.partition, experiment.seed),
            centers=data.centers,
        )
        return tuple(Samples(train.inputs, train.targets, part) for part in parts)
    if kind != "own":
        raise SettingsError(
            f"partition.kind is {kind!r}, and data {data.shown!r} come as one dataset for each of "
            f"{len(data.train)} clients; leave the partition out"
        )
    if clients != len(data.train):
        raise SettingsError(
            f"fleet.clients is {clients}, and data {data.shown!r} are those of {len(data.train)} "
            "clients; leave fleet.clients out, or make them equal"
        )
    return tuple(data.train)


def _own_model(experiment: Experiment, data: OwnData) -> Callable[[], nn.Module]:
    """What makes the model: the one that is named, else the one that the data bring."""
    name = experiment.model or data.model
    if name is None:
        raise SettingsError(
            f"data {data.shown!r} bring no model, and none is named; name one (--model "
            "FILE.py:name, or one of ours, such as mlp)"
        )
    if not isinstance(name, str):
        return _model_of_data(data, name)
    build = partial(build_from, experiment.weights) if experiment.weights else models.build
    if not is_own(name) and None in (data.input_shape, data.classes):
        lacking = "classes" if data.classes is None else "one tensor as input"
        raise SettingsError(
            f"model is {name!r}, which needs data with {lacking}, and data "
            f"{data.shown!r} have none; name a model of your own: FILE.py:name"
        )
    return partial(build, name, input_shape=data.input_shape, classes=data.classes)


def _model_of_data(data: OwnData, make: Callable[..., nn.Module]) -> Callable[[], nn.Module]:
    """What makes the model that the data bring, called as a named one is."""
    what, arguments = (
        "the model of data",
        {"input_shape": data.input_shape, "classes": data.classes},
    )
    known = {key: value for key, value in arguments.items() if value is not None}
    own_code.accepted_arguments(what, data.name, make, known)  # else said now, not in the run
    return partial(call_factory, data.name, make, known, what=what)


def _usual_loss(data: OwnData) -> Loss:
    if data.classes is None:
        raise SettingsError(
            f"data {data.shown!r} have no classes as targets, and no loss is named; name one: "
            "--loss mse for numbers, or FILE.py:name"
        )
    return LOSSES["cross_entropy"]


def remarks_on(experiment: Experiment) -> list[str]:
    """What a reader of the experiment's results must know about its data and model."""
    _check_rebuildable(experiment)
    if is_own(experiment.data.name):
        return []
    remarks = list(_loaded(experiment.data.name, experiment.data.root)[0].remarks)
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
