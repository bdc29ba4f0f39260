import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedcompass.data import cifar

BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real datasets: $FEDCOMPASS_DATA, else beside the repository."""
    given = os.environ.get("FEDCOMPASS_DATA")
    root = Path(given) if given else BESIDE_THE_REPOSITORY
    if not root.is_dir():
        pytest.skip(f"no real data: $FEDCOMPASS_DATA is not set and {root} does not exist")
    return root


@pytest.fixture(scope="session")
def real_cifar(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with CIFAR-10 as published, laid out by the data folder's own script if need be."""
    if cifar.find(real_data):
        return real_data
    script = real_data / "unpack"
    if not script.is_file():
        pytest.skip(f"no CIFAR-10 in {real_data}")
    folder = tmp_path_factory.mktemp("published")
    subprocess.run(
        [sys.executable, str(script), str(folder), "cifar10"], check=True, capture_output=True
    )
    return folder
