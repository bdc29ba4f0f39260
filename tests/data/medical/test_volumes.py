from collections import Counter
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch

from fedcompass.data.medical import volume_files
from fedcompass.data.medical.loading import find, load
from fedcompass.data.medical.published import HIPPOCAMPUS, IXI
from fedcompass.data.medical.segmentation import normalized, read_volume, resized
from fedcompass.data.medical.volume_files import listed_hippocampi, site_and_fold, split_by_subject
from fedcompass.errors import DataError

RealData = Callable[[str], Path]
SUBJECTS = {
    2: (0, "test"), 16: (0, "train"), 12: (1, "test"),
    13: (1, "train"), 231: (2, "test"), 35: (2, "train"),
}  # fmt: skip


def write_volume(path: Path, voxels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), path)  # type: ignore[no-untyped-call]
    return path


@pytest.fixture
def ixi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six subjects of three centers with a box for a brain, unpacked as FLamby's archive is."""
    monkeypatch.setattr(volume_files, "split_by_subject", lambda: SUBJECTS)
    sample = tmp_path / "fed_ixi" / "7kd5wj7v7p-3" / "IXI_sample"
    rng = np.random.default_rng(0)
    for number, (center, _) in SUBJECTS.items():
        subject = f"IXI{number:03d}-{IXI.centers[center]}-0828"
        mask = np.zeros((12, 15, 12), np.float32)
        mask[3:9, 4:11, 3:9] = 1
        image = (100 * mask + rng.random(mask.shape)).astype(np.float32)
        write_volume(sample / subject / "T1" / f"{subject}_image.nii.gz", image)
        write_volume(sample / subject / "label" / f"{subject}_label.nii.gz", mask)
    return tmp_path


def test_flambys_split_of_fed_ixi_has_its_published_sizes() -> None:
    sizes = Counter(split_by_subject().values())
    assert [sizes[center, "train"] for center in range(3)] == list(IXI.train)
    assert [sizes[center, "test"] for center in range(3)] == list(IXI.test)


def test_fed_ixi_is_resized_and_normalized_by_subject(ixi: Path) -> None:
    dataset = load("fed-ixi", ixi)
    assert dataset.train_inputs.shape == (3, 1, 48, 60, 48)
    assert dataset.train_targets.shape == (3, 48, 60, 48)
    assert torch.as_tensor(dataset.train_centers).tolist() == [1, 0, 2]  # by subject
    assert sorted(torch.as_tensor(dataset.test_centers).tolist()) == [0, 1, 2]
    for volume in dataset.train_inputs:
        assert volume.mean().abs() < 1e-5
        assert volume.std(correction=0) == pytest.approx(1, abs=1e-4)
    # A box of 6x7x6 of 12x15x12 voxels, each four times as long in the common shape.
    assert int(dataset.train_targets[0].sum()) == 6 * 7 * 6 * 4**3
    assert dataset.remarks == ()


def test_a_center_that_is_not_there_is_left_out_and_said(ixi: Path) -> None:
    for subject in (ixi / "fed_ixi" / "7kd5wj7v7p-3" / "IXI_sample").glob("*-HH-*"):
        subject.rename(ixi / subject.name)
    assert load("fed-ixi", ixi).remarks == ("fed-ixi: 2 centers (without HH)",)


def test_a_subject_that_is_not_there_is_named(ixi: Path) -> None:
    sample = ixi / "fed_ixi" / "7kd5wj7v7p-3" / "IXI_sample"
    next(sample.glob("IXI016*")).rename(ixi / "elsewhere")
    with pytest.raises(DataError, match="lacks subject IXI016 of center Guys"):
        load("fed-ixi", ixi)


def test_missing_truncated_and_mismatched_volumes_are_named(ixi: Path) -> None:
    mask = next(ixi.rglob("IXI013*_label.nii.gz"))
    content = mask.read_bytes()
    mask.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"IXI013.*_label\.nii\.gz is missing or damaged"):
        load("fed-ixi", ixi)
    write_volume(mask, np.zeros((12, 15, 11), np.float32))
    with pytest.raises(DataError, match=r"IXI013.*has shape \(12, 15, 11\), its image"):
        load("fed-ixi", ixi)
    write_volume(mask, np.full((12, 15, 12), 3, np.float32))
    with pytest.raises(DataError, match=r"IXI013.*_label\.nii\.gz is no mask of 0 and 1"):
        load("fed-ixi", ixi)
    mask.unlink()
    with pytest.raises(DataError, match=r"label has 0 \.nii\.gz files; it should have one"):
        load("fed-ixi", ixi)


def test_volumes_of_no_numbers_or_other_shapes_are_refused(tmp_path: Path) -> None:
    path = write_volume(tmp_path / "x.nii.gz", np.full((4, 4, 4), np.nan, np.float32))
    with pytest.raises(DataError, match="not a volume of finite numbers"):
        read_volume(path)
    path.write_bytes(b"no volume")
    with pytest.raises(DataError, match=r"x\.nii\.gz is missing or damaged"):
        read_volume(path)


def test_normalizing_by_hand_and_a_constant_volume() -> None:
    assert normalized(torch.tensor([1.0, 3.0])).tolist() == [-1, 1]
    assert normalized(torch.full((2, 2), 5.0)).tolist() == [[0, 0], [0, 0]]
    assert resized(torch.ones(10, 10, 10), "area").shape == (48, 60, 48)


def test_a_volumes_site_depends_on_its_name_alone() -> None:
    drawn = Counter(site_and_fold(f"hippocampus_{n:03d}.nii.gz") for n in range(4000))
    sites = [sum(drawn[site, fold] for fold in ("train", "test")) / 4000 for site in range(3)]
    assert sites == pytest.approx([311 / 566, 181 / 566, 74 / 566], abs=0.03)
    assert sum(drawn[site, "test"] for site in range(3)) / 4000 == pytest.approx(0.2, abs=0.03)


def test_real_hippocampi_are_split_into_three_artificial_sites(
    real_medical: RealData, tmp_path: Path
) -> None:
    folder, centers = find(HIPPOCAMPUS, real_medical("msd_hippocampus"))
    volumes = listed_hippocampi(folder)
    assert centers == [0, 1, 2]
    assert len(volumes) == 260
    chosen: dict[tuple[int, str], list[Path]] = {}
    for volume in volumes:
        chosen.setdefault((volume.center, volume.fold), []).append(volume.image)
    few = [image for images in chosen.values() for image in images[:2]]
    for image in few:
        for part in ("images", "labels"):
            (tmp_path / "msd_hippocampus" / part).mkdir(parents=True, exist_ok=True)
            (tmp_path / "msd_hippocampus" / part / image.name).symlink_to(
                folder / part / image.name
            )
    dataset = load("msd-hippocampus", tmp_path)
    assert len(dataset.train_inputs) == len(dataset.test_inputs) == 6
    assert "artificial" in dataset.remarks[0]
    share = dataset.train_targets.float().mean(dim=(1, 2, 3))
    assert (share > 0.01).all()  # the hippocampus fills a few percent of its crop
    assert (share < 0.2).all()
    next((tmp_path / "msd_hippocampus" / "labels").iterdir()).unlink()
    with pytest.raises(DataError, match=r"labels/hippocampus_.* is missing, the mask of"):
        load("msd-hippocampus", tmp_path)
