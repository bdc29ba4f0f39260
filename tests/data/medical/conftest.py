import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing of the machine's own data or prepared samples is found by accident."""
    monkeypatch.delenv("FEDCOMPASS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fedcompass"


@pytest.fixture(scope="session")
def real_medical(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A data root that has the named dataset as its authors lay it out; unpacked once."""
    given = os.environ.get("FEDCOMPASS_DATA")
    root = Path(given) if given else BESIDE_THE_REPOSITORY
    unpacked = tmp_path_factory.mktemp("medical")

    def lay_out(name: str) -> Path:
        if not root.is_dir():
            pytest.skip(f"no real data: $FEDCOMPASS_DATA is not set and {root} does not exist")
        script = root / "unpack"
        if not script.is_file():
            if not (root / name).is_dir():
                pytest.skip(f"no {name} in {root}")
            return root
        if not (unpacked / name).is_dir():
            command = [sys.executable, str(script), str(unpacked), name]
            subprocess.run(command, check=True, capture_output=True)
        return unpacked

    return lay_out
