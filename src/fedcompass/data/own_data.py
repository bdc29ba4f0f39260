"""A user's own data: what a function named `FILE.py:name` or `package.module:name` returns."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from fedcompass import models, own_code
from fedcompass.data.dataset import Dataset
from fedcompass.data.own_samples import ONE_DATASET, samples_from, sized
from fedcompass.data.own_values import check_finite
from fedcompass.errors import DataError
from fedcompass.models.networks import MEDICAL_NAMES
from fedcompass.training.losses import LOSSES
from fedcompass.training.problem import Augment, Loss, Problem, Samples, Transform

__all__ = ["OwnData", "own_data"]

_ACCEPTED = (
    "a fedcompass.Problem; or a pair (train, test) or a dict with train and test, each "
    f"{ONE_DATASET}; train may be a list of these, one per client; or four arrays "
    "(x_train, y_train, x_test, y_test)"
)
_EXTRAS = ("client_tests", "collate", "classes", "loss", "transform", "augment", "model")


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnData:
    """What the user's function gave.

    name: the function's, for messages.
    train: all training samples, to be split among the clients; or a list with one per client.
    test: what the global model is measured on.
    client_tests: what it is measured on client by client.
    classes: how many classes the targets have; None: they are no classes.
    loss, transform, augment: as of a `Problem`; None: not given.
    model: makes the model, from those of `input_shape` and `classes` that it names; or the name of
        one of ours; None: not given.
    """

    name: str
    train: Samples | list[Samples]
    test: Samples
    client_tests: list[Samples] | None = None
    classes: int | None = None
    loss: Loss | None = None
    transform: Transform | None = None
    augment: Augment | None = None
    model: Callable[..., nn.Module] | str | None = None
    centers: Tensor | None = None

    @property
    def shown(self) -> str:
        """The function's name, for messages."""
        return own_code.shown(self.name)

    @property
    def loss_name(self) -> str | None:
        """The name of the loss that the data bring; None if it is none of ours."""
        return next((name for name, loss in LOSSES.items() if loss is self.loss), None)

    @property
    def own_clients(self) -> int | None:
        """How many clients the data bring; None if they are to be split."""
        return len(self.train) if isinstance(self.train, list) else None

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of one sample; None if it is not one tensor."""
        inputs = self.test.inputs
        return tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else None


def own_data(name: str, *, clients: int, seed: int) -> OwnData:
    """The data that a function of the user's gives; it is called once for the same arguments.

    It is called with those of `clients` and `seed` that it names. Equal tensors for many runs let
    these train in one stack.

    Raises:
        SettingsError: the function is not there, or fails.
        DataError: it gave something that is not accepted.
    """
    found = own_code.find("data", name)
    if isinstance(found, (Problem, Dataset)):
        return _understood(name, found)
    if not callable(found):
        allowed = f"a function that returns {_ACCEPTED}"
        raise DataError(own_code.wrong("data", name, found, allowed))
    offered = {"clients": clients, "seed": seed}
    wanted = own_code.accepted_arguments("data", name, found, offered)
    return _made(name, found, tuple(wanted.items()))


@lru_cache(maxsize=4)
def _made(name: str, function: Callable[..., Any], wanted: tuple[tuple[str, int], ...]) -> OwnData:
    return _understood(name, own_code.call("data", name, function, dict(wanted)))


def _understood(name: str, given: Any) -> OwnData:
    data = _as_data(name, given)
    own_loss = data.loss is not None and data.loss_name is None  # it may know what NaN means
    check_finite(_named_parts(data), data.transform, targets=not own_loss)
    return data


def _named_parts(data: OwnData) -> Iterator[tuple[str, Samples]]:
    where, tests = f"data {data.shown!r}", data.client_tests or []
    if isinstance(data.train, Samples):
        yield f"{where}, train", data.train
    else:
        yield from ((f"{where}, train[{n}]", part) for n, part in enumerate(data.train))
    yield f"{where}, test", data.test
    yield from ((f"{where}, client_tests[{n}]", part) for n, part in enumerate(tests))


def _as_data(name: str, given: Any) -> OwnData:
    if isinstance(given, Problem):
        return _of_problem(name, given)
    if isinstance(given, Dataset):
        return _of_dataset(name, given)
    parts = _parts(name, given)
    unknown = [key for key in parts if key not in ("train", "test", *_EXTRAS)]
    if unknown or not {"train", "test"} <= set(parts):
        raise DataError(
            f"data {own_code.shown(name)!r} returned a dict with {', '.join(map(str, parts))}; it "
            f"must have train and test, and may have {', '.join(_EXTRAS)}"
        )
    return _of_parts(name, parts)


def _parts(name: str, given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, tuple) and len(given) == 4:
        inputs, targets, *test = given
        return {"train": (inputs, targets), "test": tuple(test)}
    is_pair = isinstance(given, tuple) and len(given) == 2
    if is_pair and not all(hasattr(part, "dtype") for part in given):  # else inputs and targets
        return {"train": given[0], "test": given[1]}
    what = "one pair (inputs, targets)" if is_pair else sized(given)
    raise DataError(f"data {own_code.shown(name)!r} returned {what}; allowed: {_ACCEPTED}")


def _of_parts(name: str, parts: dict[str, Any]) -> OwnData:
    collate, where = parts.get("collate"), f"data {own_code.shown(name)!r}"

    def samples(given: Any, what: str) -> Samples:
        return samples_from(given, f"{where}, {what}", collate)

    def listed(given: list[Any], what: str) -> list[Samples]:
        return [samples(part, f"{what}[{number}]") for number, part in enumerate(given)]

    given, tests = parts["train"], parts.get("client_tests")
    train: Samples | list[Samples]
    by_client = isinstance(given, list) and given and not _is_item(given[0])
    train = listed(given, "train") if by_client else samples(given, "train")
    test = samples(parts["test"], "test")
    return OwnData(
        name=name,
        train=train,
        test=test,
        client_tests=None if tests is None else listed(list(tests), "client_tests"),
        classes=parts.get("classes") or _classes(train, test),
        loss=_loss(where, parts.get("loss")),
        transform=parts.get("transform") or _usual_transform(test),
        augment=parts.get("augment"),
        model=_model(where, parts.get("model")),
    )


def _loss(where: str, given: Any) -> Loss | None:
    """A dict's loss: a function, or one of ours by its name."""
    if isinstance(given, str) and given in LOSSES:
        return LOSSES[given]
    if given is not None and (isinstance(given, type) or not callable(given)):
        raise _no_function(where, "loss", given, "(outputs, targets)", LOSSES)
    loss: Loss | None = given
    return loss


def _model(where: str, given: Any) -> Callable[..., nn.Module] | str | None:
    """A dict's model: what makes it, or the name of one of ours."""
    known = (*models.NAMES, *MEDICAL_NAMES)
    is_ours = isinstance(given, str) and given in known
    is_wrong = isinstance(given, nn.Module) or not callable(given)
    if given is not None and not is_ours and is_wrong:
        raise _no_function(where, "model", given, "that makes a new torch.nn.Module", known)
    model: Callable[..., nn.Module] | str | None = given
    return model


def _no_function(where: str, key: str, given: Any, does: str, ours: Iterable[str]) -> DataError:
    what = repr(given) if isinstance(given, str) else own_code.described(given)
    return DataError(
        f"{where}: {key!r} of its dict is {what}; allowed: a function {does} itself, or one of "
        f"ours by its name: {', '.join(ours)}"
    )


def _is_item(thing: Any) -> bool:
    """Whether a list's element is one sample, such as ("a text", 1), and not a client's dataset."""
    if not isinstance(thing, tuple) or len(thing) != 2:
        return isinstance(thing, (str, Mapping))
    target = thing[1]
    return isinstance(target, (int, float, bool, str)) or getattr(target, "ndim", 1) == 0


def _classes(train: Samples | list[Samples], test: Samples) -> int | None:
    """How many classes the targets are of, counted from 0; None if they are no classes."""
    everybody = [*train, test] if isinstance(train, list) else [train, test]
    targets = [samples.targets for samples in everybody]
    if any(t.dtype.is_floating_point or t.ndim != 1 or len(t) == 0 for t in targets):
        return None
    return 1 + max(int(t.max()) for t in targets)


def _usual_transform(test: Samples) -> Transform | None:
    """Bytes become float32, as they are; models take no bytes."""
    inputs = test.inputs
    return _to_float if isinstance(inputs, Tensor) and inputs.dtype == torch.uint8 else None


def _to_float(inputs: Tensor) -> Tensor:
    """Stored bytes as the numbers they are."""
    return inputs.to(torch.float32)


def _of_problem(name: str, problem: Problem) -> OwnData:
    return OwnData(
        name=name,
        train=list(problem.clients),
        test=problem.test,
        client_tests=None if problem.client_tests is None else list(problem.client_tests),
        classes=_classes(list(problem.clients), problem.test),
        loss=problem.loss,
        transform=problem.transform,
        augment=problem.augment,
        model=partial(_made_by, problem.model),
    )


def _made_by(model: Callable[[], nn.Module]) -> nn.Module:
    """A problem's model, which is called with nothing, whatever arguments it names."""
    return model()


def _of_dataset(name: str, dataset: Dataset) -> OwnData:
    return OwnData(
        name=name,
        train=Samples(dataset.train_inputs, dataset.train_targets),
        test=Samples(dataset.test_inputs, dataset.test_targets),
        classes=dataset.classes,
        loss=dataset.loss,
        transform=dataset.normalize,
        augment=dataset.augment,
        centers=dataset.train_centers,
    )
