"""A user's own data however they come: arrays, tensors, datasets, tables, items with a collate."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from fedcompass.data.own_data import own_data
from fedcompass.data.own_samples import samples_from
from fedcompass.data.own_values import check_finite
from fedcompass.errors import DataError, FedcompassError
from fedcompass.training.problem import Items, Problem, Samples

X, Y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2], dtype=np.int32)
TEXTS = ["a b", "c", "d e f", "g", "h i", "j"]


class Pairs(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return torch.tensor(X[row], dtype=torch.float32), int(Y[row])


class Records(Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"a": torch.ones(2) * row, "b": torch.tensor(row), "label": int(Y[row])}


class Table:
    """Stands for a Hugging Face dataset: rows as dicts, columns by name."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns
        self.column_names, self.features = list(columns), dict.fromkeys(columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._columns[key]
        return {name: column[key] for name, column in self._columns.items()}


def padded(items: list[Any]) -> tuple[dict[str, Tensor], Tensor]:
    words = [torch.tensor([len(word) for word in text.split()]) for text, _ in items]
    tokens = nn.utils.rnn.pad_sequence(words, batch_first=True)
    return {"tokens": tokens, "mask": tokens > 0}, torch.tensor([label for _, label in items])


@pytest.mark.parametrize(
    "given",
    [
        (X, Y),
        (torch.tensor(X), torch.tensor(Y)),
        (X.tolist(), Y.tolist()),
        TensorDataset(torch.tensor(X), torch.tensor(Y)),
        Pairs(),
        Table({"pixels": X.tolist(), "label": Y.tolist()}),
    ],
)
def test_inputs_and_targets_become_float32_and_int64_however_they_come(given: Any) -> None:
    samples = samples_from(given, "train")
    inputs, targets = samples.batch(torch.tensor([4, 0]))
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.int64)
    assert inputs.tolist() == [[8.0, 9.0], [0.0, 1.0]]
    assert targets.tolist() == [1, 0]


@pytest.mark.parametrize(
    "given",
    [
        ({"a": np.ones((6, 2)), "b": np.arange(6)}, Y),
        Records(),
        Table({"a": [[1.0, 1.0]] * 6, "b": list(range(6)), "labels": Y.tolist()}),
    ],
)
def test_several_inputs_are_a_dict_of_tensors(given: Any) -> None:
    inputs, targets = samples_from(given, "train").batch(torch.tensor([2, 5]))
    assert inputs["a"].shape == (2, 2)
    assert inputs["b"].tolist() == [2, 5]
    assert targets.tolist() == [2, 2]


@pytest.mark.parametrize("given", [(TEXTS, Y), list(zip(TEXTS, Y.tolist(), strict=True))])
def test_texts_of_different_lengths_are_collated_batch_by_batch(given: Any) -> None:
    samples = samples_from(given, "train", padded)
    assert isinstance(samples.inputs, Items)
    assert samples.targets.tolist() == Y.tolist()  # a split by class looks at these
    inputs, targets = samples.batch(torch.tensor([1, 3]))
    assert inputs["tokens"].shape == (2, 1)
    assert samples.batch(torch.tensor([2]))[0]["tokens"].shape == (1, 3)
    assert targets.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "train is None; allowed: (inputs, targets) as tensors or numpy arrays, a torch Da"),
        (DataLoader(Pairs()), "train is a DataLoader; give its dataset"),
        ((X, Y, Y), "train is a tuple of 3; allowed: a pair (inputs, targets)"),
        ((TEXTS, Y), "a list is no array of numbers"),
        (([[1.0], [1.0, 2.0]], [0, 1]), "its rows differ in size; give a collate function"),
        (([torch.ones(1), torch.ones(2)], [0, 1]), "of shapes [1] and [2]; give a collate functi"),
        ((X, Y[:3]), "train has 6 inputs and 3 targets; give one target for each input, in the sa"),
        (({"a": X, "b": X[:5]}, Y), "train has 5 inputs 'b' and 6 targets"),
        (TensorDataset(*map(torch.tensor, (X, X, Y))), "train is a tuple of 3; allowed: a pair"),
        ([(X[0], X[1], 1)] * 4, "an item of it is a tuple of 3; allowed: a pair (input, target)"),
        (Table({"text": TEXTS}), "has the columns text; one of them must be called label, labels"),
        ([1, 2, 3], "an item of it is a int; allowed: a pair (input, target)"),
        ({"a": 1}, "train is a dict; allowed"),
        ("digits.csv", "train is a str; allowed"),
    ],
)
def test_what_is_no_dataset_says_what_it_is_and_what_is_accepted(given: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        samples_from(given, "train")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_arrays_in_samples_and_modules_in_problems_are_refused_in_words() -> None:
    with pytest.raises(DataError, match=r"inputs are a numpy.ndarray; allowed: .*from_numpy makes"):
        Samples(X, torch.tensor(Y))  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"targets are a numpy.ndarray; allowed: a torch.Tensor"):
        Samples(torch.tensor(X), Y)  # type: ignore[arg-type]
    good = Samples(torch.tensor(X), torch.tensor(Y))
    with pytest.raises(DataError, match=r"model is a torch.Linear; allowed: a function that makes"):
        Problem(model=nn.Linear(1, 1), clients=[good], test=good)
    with pytest.raises(DataError, match=r"clients\[0\] is a tuple; allowed: fedcompass.Samples"):
        Problem(model=Pairs, clients=[(X, Y)], test=good)  # type: ignore[arg-type, list-item]


MODULE = """
import numpy as np

CALLS = []
x, y = np.ones((6, 2)), np.arange(6) % 2

def plain():
    CALLS.append("plain")
    return (x, y), (x, y)

def four():
    return x, y, x, y

def by_client(clients, seed):
    CALLS.append((clients, seed))
    return {"train": [(x, y)] * clients, "test": (x, y)}

def one():
    return x, y

def with_value(array, *values):
    changed = array.astype(float)
    changed.flat[2 : 2 + len(values)] = values
    return changed

nan, inf = float("nan"), float("inf")

def nan_inputs():
    return with_value(x, nan, nan, inf), y, x, y

def inf_test():
    return x, y, with_value(x, 1e300), y

def nan_labels():
    return x, with_value(y, nan), x, y

def nan_of_a_client():
    return {"train": [(x, y), ({"a": with_value(x, nan), "b": x}, y)], "test": (x, y)}

def filled_in():
    filled = lambda inputs: inputs.nan_to_num(0.0)
    return {"train": (with_value(x, nan), y), "test": (x, y), "transform": filled}

def masked():
    loss = lambda outputs, targets: ((outputs - targets)[~targets.isnan()] ** 2).mean()
    return {"train": (x, with_value(y, nan)), "test": (x, y), "loss": loss}

def three():
    return x, y, x

def uneven():
    return {"train": (x, y), "test": (x, y[:4])}

def typo():
    return {"train": (x, y), "tset": (x, y)}

def nothing():
    pass

def fails():
    return 1 / 0
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own_module.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield f"{tmp_path}/own_module.py"
    sys.modules.pop("own_module", None)


def test_a_function_is_called_once_for_the_same_arguments(module: str) -> None:
    first = own_data(f"{module}:plain", clients=5, seed=0)
    assert own_data(f"{module}:plain", clients=9, seed=1) is first
    assert (first.classes, first.input_shape, first.own_clients) == (2, (2,), None)
    three = own_data(f"{module}:by_client", clients=3, seed=7)
    assert three.own_clients == 3
    assert sys.modules["own_module"].CALLS == ["plain", (3, 7)]
    assert own_data(f"{module}:four", clients=1, seed=0).classes == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "one",
            "returned one pair (inputs, targets); allowed: a fedcompass.Problem; or a pair (tr",
        ),
        (
            "three",
            "three' returned a tuple of 3; allowed: a fedcompass.Problem; or a pair (train, te",
        ),
        ("three", "or four arrays (x_train, y_train, x_test, y_test)"),
        ("uneven", "uneven', test has 6 inputs and 4 targets; give one target for each input"),
        ("typo", "returned a dict with train, tset; it must have train and test, and may have cli"),
        ("nothing", "returned None; allowed: a fedcompass.Problem"),
        ("fails", "raised ZeroDivisionError: division by zero ("),
        ("x", "is a numpy.ndarray; allowed: a function that returns a fedcompass.Problem"),
    ],
)
def test_a_function_that_gives_no_data_says_what_it_gave(
    module: str, name: str, message: str
) -> None:
    with pytest.raises(FedcompassError) as caught:
        own_data(f"{module}:{name}", clients=1, seed=0)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nan_inputs", "train, inputs have 2 NaN and 1 infinite of 12 values, in 2 of 6 rows (the"),
        ("inf_test", "test, inputs have 0 NaN and 1 infinite of 12 values, in 1 of 6 rows"),
        ("nan_labels", "train, targets have 1 NaN and 0 infinite of 6 values, in 1 of 6 rows (the"),
        ("nan_of_a_client", "train[1], inputs 'a' have 1 NaN and 0 infinite of 12 values"),
        ("nan_inputs", "(the first is row 1); allowed: finite float32; fill them in, leave t"),
    ],
)
def test_values_that_are_not_finite_are_counted_at_loading(
    module: str, name: str, message: str
) -> None:
    with pytest.raises(DataError) as caught:
        own_data(f"{module}:{name}", clients=1, seed=0)
    assert f"own_module.py:{name}', t" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_transform_may_fill_in_and_an_own_loss_may_mask_what_is_not_finite(module: str) -> None:
    for name in ("filled_in", "masked"):
        assert own_data(f"{module}:{name}", clients=1, seed=0).own_clients is None


def test_rows_that_nobody_has_may_be_anything() -> None:
    inputs, targets = torch.tensor([[1.0], [torch.nan]]), torch.zeros(2)
    held = Samples(inputs, targets, torch.tensor([0]))
    check_finite(iter([("train", held)]), None, targets=True)
    with pytest.raises(DataError, match="test, inputs have 1 NaN"):
        check_finite(
            iter([("train", held), ("test", Samples(inputs, targets))]), None, targets=True
        )
