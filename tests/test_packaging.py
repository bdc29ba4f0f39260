"""What is published: sdist and wheel are complete, and the wheel works in a fresh environment."""

import json
import re
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.fresh_environment import fresh_environment, need, run

from fedcompass import __version__

ROOT = Path(__file__).parent.parent
ONLY_FOR_CHECKS = {".d.ts"}


def built(kind: str, source: Path, into: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", into, cwd=source)
    (found,) = into.iterdir()
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("hatchling")
    return built("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of the unpacked sdist, as pip does: so the sdist has all that it takes."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    return built("wheel", unpacked / f"fedcompass-{__version__}", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a new environment with the wheel in it, and what it depends on within reach."""
    folder = tmp_path_factory.mktemp("fresh")
    return fresh_environment(folder, wheel)


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "src" / "fedcompass"
    wanted = {
        f"fedcompass/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not any(path.name.endswith(each) for each in ONLY_FOR_CHECKS)
    }
    for each in ("py.typed", "report/page/page.html", "report/page/app.js"):
        assert f"fedcompass/{each}" in wanted
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name for name in names if name.startswith("fedcompass/")} == wanted


def test_the_wheel_tells_what_it_is_and_where_to_read_on(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        told = archive.read(f"fedcompass-{__version__}.dist-info/METADATA").decode()
    assert "Project-URL: Paper, https://arxiv.org/abs/2309.14675" in told
    assert "License-Expression: Apache-2.0" in told
    assert "Requires-Python: >=3.11" in told


def test_a_wheel_names_a_repository_only_once_its_address_is_filled_in(wheel: Path) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (line,) = re.findall(r"^(?:# )?Repository = .*", text, re.MULTILINE)
    urls = tomllib.loads(text)["project"]["urls"]
    assert ("Repository" in urls) == (not line.startswith("#"))
    with ZipFile(wheel) as archive:
        metadata = archive.read(f"fedcompass-{__version__}.dist-info/METADATA").decode()
    published = dict(re.findall(r"^Project-URL: (.+), (.+)$", metadata, re.MULTILINE))
    assert published == urls
    assert not [url for url in published.values() if "OWNER" in url]


def test_the_sdist_has_tests_docs_and_what_builds_them(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {
            Path(name).relative_to(f"fedcompass-{__version__}").as_posix()
            for name in archive.getnames()
        }
    wanted = {"LICENSE", "README.md", "Makefile", "constraints.txt", "mkdocs.yml", "docs/index.md"}
    wanted |= {"SECURITY.md", "CITATION.cff", ".ci/run", ".github/workflows/ci.yml"}
    wanted |= {".pre-commit-config.yaml"}
    assert wanted - names == set()
    assert "tests/test_packaging.py" in names
    assert not [name for name in names if name.startswith(("runs/", "site/", ".venv", "dist/"))]


def test_the_installed_command_works_in_a_fresh_environment(fresh: Path, tmp_path: Path) -> None:
    command = fresh / "fedcompass"
    where = run(
        fresh / "python", "-c", "import fedcompass; print(fedcompass.__file__)", cwd=tmp_path
    )
    assert Path(where).is_relative_to(fresh.parent)
    assert run(command, "--version", cwd=tmp_path) == f"fedcompass {__version__}\n"
    assert "Usage: fedcompass" in run(command, "-h", cwd=tmp_path)
    assert "fedbuff" in run(command, "strategies", cwd=tmp_path)
    assert "complete -o default" in run(command, "completion", "bash", cwd=tmp_path)


def test_a_fresh_environment_has_the_bundled_data_the_page_and_the_papers_numbers(
    fresh: Path, tmp_path: Path
) -> None:
    command = fresh / "fedcompass"
    assert "client" in run(command, "partition", "mnist-mini", "--clients", "3", cwd=tmp_path)
    paces = ("schedule", "--paces", "1,2", "--until", "60", "--record", "kept")
    run(command, *paces, cwd=tmp_path)
    run(command, "report", "kept", cwd=tmp_path)
    assert "<script" in (tmp_path / "kept" / "report.html").read_text(encoding="utf-8")
    assert "table-1" in run(command, "paper", "list", cwd=tmp_path)


def test_a_fresh_environment_trains_the_default_run_and_keeps_its_record(
    fresh: Path, tmp_path: Path
) -> None:
    command = (fresh / "fedcompass", "run", "--horizon", "3", "--executor", "serial")
    output = run(*command, cwd=tmp_path)
    assert output.startswith(
        "run: runs/fedcompass-mnist-mini-seed0\nfedcompass on mnist-mini (mlp): 5 clients"
    )
    (steps,) = re.findall(r"^  local steps +(\d+) in 3 s of virtual time$", output, re.MULTILINE)
    (top,) = re.findall(r"^  top accuracy +([\d.]+)% at ", output, re.MULTILINE)
    folder = tmp_path / "runs" / "fedcompass-mnist-mini-seed0"
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert int(steps) > 100
    assert float(top) > 20  # ten digits: 10 would be chance
    assert summary["local_steps"] == int(steps)
    assert (folder / "final.safetensors").is_file()
    assert (folder / "report.html").is_file()
