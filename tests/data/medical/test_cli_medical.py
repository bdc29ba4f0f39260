"""What the command line says about medical data, as a user sees it."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest
from click.testing import Result

from fedcompass.errors import DataError, SettingsError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from typer.testing import CliRunner

    from fedcompass.cli.app import app

RealData = Callable[[str], Path]

BRCA = """\
866 training and 222 test samples, 39 for the network

center  name       training  test
     0  northeast       248    63  as published
     1  south           156    40  as published
     2  west            164    42  as published
     3  midwest         129    33  as published
     4  europe          129    33  as published
     5  canada           40    11  as published
   all                  866   222

training   censored  event
northeast       203     45
south           121     35
west            150     14
midwest         113     16
europe          122      7
canada           38      2
all             747    119
"""


def fedcompass(*arguments: str) -> Result:
    return CliRunner(mix_stderr=False).invoke(app, arguments, catch_exceptions=False)


def test_a_check_counts_samples_and_labels_of_every_center(real_medical: RealData) -> None:
    root = real_medical("fed_tcga_brca")
    output = fedcompass("data", "check", "fed-tcga-brca", "--data-root", str(root)).stdout
    assert output.startswith(f"fed-tcga-brca: {root / 'fed_tcga_brca'}, checked\n")
    assert BRCA in output


def test_a_check_says_which_center_is_missing(real_medical: RealData, tmp_path: Path) -> None:
    root = real_medical("fed_heart_disease")
    (tmp_path / "fed_heart_disease").mkdir()
    for center in ("cleveland", "hungarian", "va"):
        name = f"fed_heart_disease/processed.{center}.data"
        (tmp_path / name).write_bytes((root / name).read_bytes())
    output = fedcompass("data", "check", "fed-heart-disease", "--data-root", str(tmp_path)).stdout
    assert "     2  switzerland         0     0  missing: published 30 and 16\n" in output
    output = fedcompass("data", "list", "--data-root", str(tmp_path)).stdout
    assert f"fed-heart-disease   3 of 4  {tmp_path / 'fed_heart_disease'}\n" in output
    assert "fed-isic2019             -  not found\n" in output


def test_what_is_nowhere_or_not_ours_to_fetch_is_one_line() -> None:
    with pytest.raises(DataError, match="'fed-isic2019' was not found in "):
        fedcompass("data", "check", "fed-isic2019")
    with pytest.raises(SettingsError, match="'fed-isic2019' is not ours to fetch; download it"):
        fedcompass("data", "fetch", "fed-isic2019")


@pytest.fixture
def hippocampi(tmp_path: Path) -> Path:
    """Sixty tiny volumes: enough for every site to train and test on some."""
    for number in range(60):
        for part in ("images", "labels"):
            voxels = np.zeros((4, 4, 4), np.float32)
            voxels[1:3, 1:3, 1:3] = 1
            path = tmp_path / "msd_hippocampus" / part / f"hippocampus_{number:03d}.nii.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            volume = nibabel.Nifti1Image(voxels, np.eye(4))  # type: ignore[no-untyped-call]
            nibabel.save(volume, path)
    return tmp_path


def test_volumes_are_prepared_once_with_a_line_for_each_part(hippocampi: Path) -> None:
    check = ("data", "check", "msd-hippocampus", "--data-root", str(hippocampi))
    first = fedcompass(*check)
    assert "3 artificial sites, a stand-in for fed-ixi" in first.stdout
    assert "  artificial\n" in first.stdout
    assert first.stderr.startswith("prepared msd-hippocampus, train: ")
    assert len(first.stderr.splitlines()) == 2
    again = fedcompass(*check)
    assert (again.stdout, again.stderr) == (first.stdout, "")


def test_a_terminal_gets_a_bar_while_volumes_are_prepared(
    hippocampi: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    command = ["data", "check", "msd-hippocampus", "--data-root", str(hippocampi)]
    app(command, standalone_mode=False)
    assert "preparing msd-hippocampus, train" in capsys.readouterr().err


def test_a_run_picks_the_centers_that_are_there(
    real_medical: RealData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = real_medical("fed_heart_disease")
    arguments = ["run", "--data", "fed-heart-disease", "--data-root", str(root)]
    output = fedcompass(*arguments, "--horizon", "10", "--executor", "serial").stdout
    assert "fedcompass on fed-heart-disease (linear): 4 clients" in output
    assert "center partition" in output
    assert "top binary_accuracy" in output


def test_a_table_without_classes_cannot_be_drawn_and_says_so(real_medical: RealData) -> None:
    root = real_medical("fed_tcga_brca")
    command = ("partition", "fed-tcga-brca", "--kind", "center", "--data-root", str(root))
    with pytest.raises(SettingsError, match="no class per sample to count"):
        fedcompass(*command)
    root = real_medical("fed_heart_disease")
    command = ("partition", "fed-heart-disease", "--kind", "center", "--data-root", str(root))
    assert "4 clients" in fedcompass(*command).stdout
