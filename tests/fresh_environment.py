"""New Python environments, made in seconds and without a network."""

import os
import subprocess
import sys
import sysconfig
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest


def need(module: str) -> None:
    """Skip a test where a module of the extra `dev` is missing, but never in CI."""
    if find_spec(module) is None:
        reason = f"{module} is not installed (pip install -e '.[dev]')"
        if os.environ.get("CI"):
            pytest.fail(f"{reason}; CI must have it")
        pytest.skip(reason)


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints that must succeed; it sees none of our modules."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def fresh_environment(folder: Path, *package: str | Path, cwd: Path | None = None) -> Path:
    """The `bin` of an environment with a package in it, and what it depends on within reach."""
    venv.create(folder, with_pip=False, symlinks=True)
    # A folder named in a .pth file is searched, but its own .pth files, such as that of an editable
    # fedcompass, are not read.
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    offline = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    run(*pip, "install", *offline, "--ignore-installed", *package, cwd=cwd or folder)
    return folder / "bin"
