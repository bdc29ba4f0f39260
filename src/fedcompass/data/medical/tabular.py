"""Fed-Heart-Disease and Fed-TCGA-BRCA: small tables, read whole and checked cell by cell."""

from math import ceil, floor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedcompass.data.dataset import Dataset
from fedcompass.data.medical.csv_table import csv_rows
from fedcompass.data.medical.published import BRCA, HEART
from fedcompass.errors import DataError
from fedcompass.training.losses import cox_loss, logistic_loss

__all__ = ["load_brca", "load_heart", "stratified_split"]

_HEART_COLUMNS = 14
_LEFT_OUT = (10, 11, 12)  # mostly missing outside Cleveland
_CATEGORIES = {2: (1.0, 2.0, 3.0, 4.0), 6: (0.0, 1.0, 2.0)}  # chest pain, resting ECG
_TRAIN_SHARE, _SPLIT_SEED = 0.66, 43


def load_heart(folder: Path, centers: list[int]) -> Dataset:
    """The centers' patients without missing values, standardized center by center as in FLamby.

    Raises:
        DataError: naming the file and the line that cannot be read.
    """
    parts: dict[str, list[NDArray[np.float32]]] = {"train": [], "test": []}
    labels: dict[str, list[NDArray[np.int64]]] = {"train": [], "test": []}
    numbers: dict[str, list[int]] = {"train": [], "test": []}
    for center in centers:
        features, disease = _heart_center(folder / f"processed.{HEART.centers[center]}.data")
        split = stratified_split(disease, _TRAIN_SHARE, _SPLIT_SEED)
        mean, std = features[split[0]].mean(axis=0), features[split[0]].std(axis=0, ddof=1)
        scaled = (features - mean) / (std + np.float32(1e-9))
        for part, rows in zip(("train", "test"), split, strict=True):
            parts[part].append(scaled[rows])
            labels[part].append(disease[rows])
            numbers[part] += [center] * len(rows)
    return Dataset(
        name=HEART.name,
        train_inputs=torch.from_numpy(np.concatenate(parts["train"])),
        train_targets=torch.from_numpy(np.concatenate(labels["train"])),
        test_inputs=torch.from_numpy(np.concatenate(parts["test"])),
        test_targets=torch.from_numpy(np.concatenate(labels["test"])),
        classes=2,
        train_centers=torch.tensor(numbers["train"]),
        test_centers=torch.tensor(numbers["test"]),
        loss=logistic_loss,
    )


def _heart_center(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features [patients, 13], categories as indicators without their first, and 0 or 1."""
    kept = [column for column in range(_HEART_COLUMNS) if column not in _LEFT_OUT]
    rows = [[row[column] for column in kept] for row in _heart_rows(path)]
    complete = [row for row in rows if None not in row]
    if not complete:
        raise DataError(f"{path} has no patient without missing values; get the file again")
    table = np.array(complete, dtype=np.float32)
    plain = [place for place, column in enumerate(kept[:-1]) if column not in _CATEGORIES]
    columns = [table[:, place] for place in plain]
    for column, values in _CATEGORIES.items():
        cell = table[:, kept.index(column)]
        if not np.isin(cell, values).all():
            raise DataError(f"{path}: column {column + 1} has other values than {values}")
        columns += [(cell == value).astype(np.float32) for value in values[1:]]
    return np.stack(columns, axis=1), (table[:, -1] > 0).astype(np.int64)


def _heart_rows(path: Path) -> list[list[float | None]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        cells = line.split(",")
        try:
            row = [None if cell.strip() == "?" else float(cell) for cell in cells]
        except ValueError:
            row = []
        if len(row) != _HEART_COLUMNS:
            raise DataError(
                f"{path}, line {number}, is not {_HEART_COLUMNS} numbers or '?'; get the file again"
            )
        rows.append(row)
    return rows


def stratified_split(
    labels: NDArray[np.int64], train_share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and test rows, ascending; classes keep their shares if each has 3 or more rows.

    FLamby calls scikit-learn's `train_test_split` with a fixed seed. This draws the same numbers in
    the same order from the same (frozen) generator of numpy, so that no further package is needed.
    """
    train, test = floor(train_share * len(labels)), ceil((1 - train_share) * len(labels))
    rng = np.random.RandomState(seed)
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2 or counts.min() <= 2:
        order = rng.permutation(len(labels))
        return np.sort(order[test : test + train]), np.sort(order[:test])
    in_train = _mode(counts, train, rng)
    in_test = _mode(counts - in_train, test, rng)
    parts: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
    for label, first, second in zip(classes, in_train, in_test, strict=True):
        rows = np.flatnonzero(labels == label)
        rows = rows[rng.permutation(len(rows))]
        parts[0].append(rows[:first])
        parts[1].append(rows[first : first + second])
    return np.sort(np.concatenate(parts[0])), np.sort(np.concatenate(parts[1]))


def _mode(counts: NDArray[np.int64], draws: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """The likeliest numbers of each class among so many draws; ties are broken by chance."""
    expected = counts / counts.sum() * draws
    whole = np.floor(expected)
    short = int(draws - whole.sum())
    rest = expected - whole
    for value in np.unique(rest)[::-1]:
        if short == 0:
            break
        tied = np.flatnonzero(rest == value)
        lucky = rng.choice(tied, size=min(len(tied), short), replace=False)
        whole[lucky] += 1
        short -= len(lucky)
    found: NDArray[np.int64] = whole.astype(np.int64)
    return found


def load_brca(folder: Path, centers: list[int]) -> Dataset:
    """All patients of FLamby's split; targets are (event, time), the features as they are.

    Raises:
        DataError: naming the file and the line or patient that is wrong.
    """
    path = folder / "brca.csv"
    patients = _brca_patients(path)
    rows: dict[str, list[NDArray[np.float32]]] = {"train": [], "test": []}
    numbers: dict[str, list[int]] = {"train": [], "test": []}
    for pid, fold, center in _brca_split(folder):
        if pid not in patients:
            raise DataError(f"{path} has no patient {pid}, but the split lists them; get it again")
        if center in centers:
            rows[fold].append(patients[pid])
            numbers[fold].append(center)
    train, test = (torch.from_numpy(np.stack(rows[fold])) for fold in ("train", "test"))
    return Dataset(
        name=BRCA.name,
        train_inputs=train[:, :-2].contiguous(),
        train_targets=train[:, -2:].contiguous(),
        test_inputs=test[:, :-2].contiguous(),
        test_targets=test[:, -2:].contiguous(),
        classes=1,
        train_centers=torch.tensor(numbers["train"]),
        test_centers=torch.tensor(numbers["test"]),
        loss=cox_loss,
    )


def _brca_patients(path: Path) -> dict[str, NDArray[np.float32]]:
    """By patient: 39 features, then event and time."""
    patients = {}
    for line, row in csv_rows(path, ("pid", "E", "T")):
        pid, *values = row.values()
        try:
            cells = np.array([float(value) for value in values], dtype=np.float32)
        except (TypeError, ValueError):
            raise DataError(f"{path}, line {line}, has a cell that is no number") from None
        if len(cells) != 41 or cells[-2] not in (0, 1) or not np.isfinite(cells).all():
            raise DataError(f"{path}, line {line}, is not 39 features, an event and a time")
        patients[pid] = cells
    return patients


def _brca_split(folder: Path) -> list[tuple[str, str, int]]:
    """Patient, fold and center, in the order of the file."""
    name = "train_test_split.csv"
    places = (folder / name, folder / "dataset_creation_scripts" / name)
    path = next((place for place in places if place.is_file()), places[0])
    found = []
    for line, row in csv_rows(path, ("pid", "fold", "fold2")):
        fold, _, center = row["fold2"].partition("_")
        if fold not in ("train", "test") or center not in tuple("012345"):
            raise DataError(f"{path}, line {line}: fold2 is {row['fold2']!r}; train_0 to test_5")
        found.append((row["pid"], fold, int(center)))
    if not found:
        raise DataError(f"{path} lists no patient; get the file again")
    return found
