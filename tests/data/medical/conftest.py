import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing of the machine's own data or prepared samples is found by accident."""
    monkeypatch.delenv("FEDCOMPASS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fedcompass"


@pytest.fixture(scope="session")
def real_medical(
    real_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A data root that has the named dataset as its authors lay it out; unpacked once."""
    unpacked = tmp_path_factory.mktemp("medical")

    def lay_out(name: str) -> Path:
        script = real_data / "unpack"
        if not script.is_file():
            if not (real_data / name).is_dir():
                pytest.skip(f"no {name} in {real_data}")
            return real_data
        if not (unpacked / name).is_dir():
            command = [sys.executable, str(script), str(unpacked), name]
            subprocess.run(command, check=True, capture_output=True)
        return unpacked

    return lay_out
