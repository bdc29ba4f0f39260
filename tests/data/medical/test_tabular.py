from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcompass.data.medical.census import census
from fedcompass.data.medical.loading import load
from fedcompass.data.medical.published import BRCA, HEART
from fedcompass.data.medical.tabular import stratified_split
from fedcompass.errors import DataError

RealData = Callable[[str], Path]


def copied(root: Path, name: str, to: Path) -> Path:
    folder = to / name
    folder.mkdir(parents=True)
    for file in (root / name).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_heart_has_flambys_sizes_in_every_center(real_medical: RealData) -> None:
    dataset = load("fed-heart-disease", real_medical("fed_heart_disease"))
    rows = census(dataset, HEART)
    assert [row.sizes for row in rows] == [row.published for row in rows]
    totals = [tuple(map(sum, zip(*row.labels, strict=True))) for row in rows]
    assert totals == [(164, 139), (163, 98), (1, 45), (29, 101)]  # counted in the files
    assert dataset.input_shape == (13,)


def test_heart_is_standardized_on_each_centers_training_part(real_medical: RealData) -> None:
    dataset = load("fed-heart-disease", real_medical("fed_heart_disease"))
    assert dataset.train_centers is not None
    for center in range(4):
        own = dataset.train_inputs[dataset.train_centers == center].double()
        assert own.mean(0).abs().max() < 1e-5
        spread = own.std(0)
        assert (((spread - 1).abs() < 1e-4) | (spread == 0)).all()
    assert dataset.test_inputs.abs().max() < 20


def test_brca_has_flambys_sizes_and_events(real_medical: RealData) -> None:
    dataset = load("fed-tcga-brca", real_medical("fed_tcga_brca"))
    rows = census(dataset, BRCA)
    assert [row.sizes for row in rows] == [row.published for row in rows]
    assert [row.labels[0][1] for row in rows] == [45, 35, 14, 16, 7, 2]
    assert [row.labels[1][1] for row in rows] == [14, 4, 8, 3, 2, 1]
    assert dataset.input_shape == (39,)
    assert dataset.train_targets.shape == (866, 2)


def test_only_the_centers_that_are_there_are_loaded(real_medical: RealData, tmp_path: Path) -> None:
    folder = copied(real_medical("fed_heart_disease"), "fed_heart_disease", tmp_path)
    (folder / "processed.hungarian.data").unlink()
    dataset = load("fed-heart-disease", tmp_path)
    assert sorted(set(torch.as_tensor(dataset.train_centers).tolist())) == [0, 2, 3]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text.replace("67.0,1.0,4.0", "67.0,1.0", 1), "line 2, is not 14 numbers"),
        (lambda text: text.replace("67.0", "old", 1), "line 2, is not 14 numbers"),
        (lambda text: text[:-9], "line 303, is not 14 numbers"),
        (lambda _: "", "has no patient without missing values"),
        (lambda text: text.replace("63.0,1.0,1.0", "63.0,1.0,9.0", 1), "column 3 has other values"),
    ],
)
def test_a_damaged_heart_file_is_named(
    real_medical: RealData, tmp_path: Path, damage: Callable[[str], str], said: str
) -> None:
    folder = copied(real_medical("fed_heart_disease"), "fed_heart_disease", tmp_path)
    path = folder / "processed.cleveland.data"
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataError, match=f"processed.cleveland.data.*{said}"):
        load("fed-heart-disease", tmp_path)


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("brca.csv", lambda text: text.replace("TCGA-E2-A9RU,90", "TCGA-E2-A9RU,x"), "no number"),
        ("brca.csv", lambda text: text.replace("TCGA-E2-A9RU,90", "TCGA-E2-A9RU"), "cut short"),
        ("brca.csv", lambda text: text.replace("TCGA-LL-A6FP", "TCGA-XX"), "no patient TCGA-LL"),
        ("brca.csv", lambda text: text.replace(",E,T", ",E,time", 1), "no column 'T'"),
        ("train_test_split.csv", lambda text: text.replace("train_0", "train_9"), "fold2"),
        ("train_test_split.csv", lambda _: "pid,fold,fold2\n", "lists no patient"),
    ],
)
def test_a_damaged_brca_file_is_named(
    real_medical: RealData, tmp_path: Path, name: str, damage: Callable[[str], str], said: str
) -> None:
    folder = copied(real_medical("fed_tcga_brca"), "fed_tcga_brca", tmp_path)
    (folder / name).write_text(damage((folder / name).read_text()))
    with pytest.raises(DataError, match=f"{name}.*{said}"):
        load("fed-tcga-brca", tmp_path)


def test_a_missing_split_is_named(real_medical: RealData, tmp_path: Path) -> None:
    folder = copied(real_medical("fed_tcga_brca"), "fed_tcga_brca", tmp_path)
    (folder / "train_test_split.csv").unlink()
    with pytest.raises(DataError, match=r"train_test_split.csv cannot be read"):
        load("fed-tcga-brca", tmp_path)


def test_a_dataset_that_is_nowhere_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'fed-ixi' was not found in .*download it with FLamby"):
        load("fed-ixi", tmp_path)


def test_a_stratified_split_keeps_the_classes_shares_and_every_row() -> None:
    labels = np.array([0] * 60 + [1] * 40)
    train, test = stratified_split(labels, 0.66, 43)
    assert sorted([*train, *test]) == list(range(100))
    assert (len(train), len(test)) == (66, 34)
    assert labels[train].sum() in (26, 27)
    again, _ = stratified_split(labels, 0.66, 43)
    assert np.array_equal(train, again)


def test_a_class_with_two_rows_is_split_without_regard_to_classes() -> None:
    labels = np.array([0, 0] + [1] * 44)
    train, test = stratified_split(labels, 0.66, 43)
    assert (len(train), len(test)) == (30, 16)
    assert set(train.tolist()).isdisjoint(test.tolist())
