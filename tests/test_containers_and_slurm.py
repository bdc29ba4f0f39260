"""The Dockerfile by its steps, and the Slurm scripts with a Slurm that runs jobs at once, here."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

import pytest
from tests.child_processes import PATIENCE
from tests.faults.federation_files import FederationFiles
from tests.fresh_environment import fresh_environment, need, run

ROOT = Path(__file__).parent.parent
SLURM = ROOT / "examples" / "slurm"
KNOWN = {
    "FROM",
    "WORKDIR",
    "ARG",
    "COPY",
    "RUN",
    "ENV",
    "USER",
    "VOLUME",
    "EXPOSE",
    "ENTRYPOINT",
    "CMD",
}
SBATCH_OPTIONS = {"--job-name", "--output", "--time", "--cpus-per-task", "--mem", "--requeue"}


def steps() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, in order."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"]
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines]


def instructions(name: str) -> list[str]:
    return [rest for each, rest in steps() if each == name]


def test_the_dockerfile_has_only_instructions_whose_steps_are_tested() -> None:
    assert {name for name, _ in steps()} == KNOWN
    assert steps()[0] == ("FROM", "python:3.12-slim")


def test_every_file_that_is_copied_exists_and_is_sent_to_docker() -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert ignore[0] == "*"
    sent = [line[1:] for line in ignore if line.startswith("!")]
    for line in instructions("COPY"):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists()
            assert any(fnmatch(source, pattern) for pattern in sent), source


def test_torch_is_pinned_and_installed_before_the_rest() -> None:
    first, second = (shlex.split(line) for line in instructions("RUN"))
    assert first == [
        *("pip", "install", "--no-cache-dir", "-c", "constraints.txt"),
        *("torch", "--index-url", "${TORCH_INDEX}"),
    ]
    assert second[:-1] == first[: len(second) - 1]
    assert re.search(r"^torch==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def test_what_is_copied_can_be_installed_and_its_commands_run(tmp_path: Path) -> None:
    need("hatchling")
    image = tmp_path / "image"
    image.mkdir()
    for line in instructions("COPY"):
        *sources, target = line.split()
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, image / target)
            else:
                shutil.copy(ROOT / source, image / target)
    package = shlex.split(instructions("RUN")[-1])[-1]
    bin_ = fresh_environment(tmp_path / "venv", package, cwd=image)
    (entry,) = json.loads(instructions("ENTRYPOINT")[0])
    command = [each for each in json.loads(instructions("CMD")[0]) if each != "/federation"]
    assert "Usage: fedcompass deploy server" in run(bin_ / entry, *command, "-h", cwd=tmp_path)
    run(bin_ / "python", "-c", "import grpc, cryptography", cwd=tmp_path)


STUBS = {
    "sbatch": """\
echo "$*" >> "$SLURM_STUB/asked"
while [[ $1 == --* ]]; do shift; done
job=$(( $(ls "$SLURM_STUB" | grep -c pid) + 1 ))
setsid bash "$@" > "$SLURM_STUB/$job.log" 2>&1 < /dev/null &
echo $! > "$SLURM_STUB/$job.pid"
echo $job
""",
    "srun": 'exec "$@"\n',
    "scancel": 'for job; do kill -TERM -- "-$(cat "$SLURM_STUB/$job.pid")"; done\n',
    "fedcompass": f'exec {sys.executable} -m fedcompass "$@"\n',
}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which each job has a process id and a log; no job outlives its test."""
    programs, jobs = tmp_path / "bin", tmp_path / "jobs"
    programs.mkdir()
    jobs.mkdir()
    for name, body in STUBS.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("SLURM_STUB", str(jobs))
    yield jobs
    for path in jobs.glob("*.pid"):
        with suppress(ProcessLookupError):
            os.killpg(int(path.read_text()), signal.SIGKILL)


def is_running(group: int) -> bool:
    with suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


def test_slurm_runs_a_job_for_each_site_and_one_for_the_server_that_ends_them(slurm: Path) -> None:
    files = FederationFiles({"north": 0.0, "south": 0.0}, max_updates=3)
    done = subprocess.run(
        [SLURM / "submit.sh", files.project], capture_output=True, text=True, check=False, cwd=slurm
    )
    assert done.stderr == ""
    assert done.stdout == "3\n"
    asked = (slurm / "asked").read_text().splitlines()
    assert [line.split()[1] for line in asked] == [
        "--job-name=site-north",
        "--job-name=site-south",
        "--nodelist=127.0.0.1",
    ]
    until = time.monotonic() + PATIENCE
    groups = [int(path.read_text()) for path in slurm.glob("*.pid")]
    while any(map(is_running, groups)):
        told = {path.name: path.read_text() for path in slurm.glob("*.log")}
        assert time.monotonic() < until, told
        time.sleep(0.1)
    assert "over (max_updates)" in (slurm / "3.log").read_text()
    assert (files.run / "final.safetensors").is_file()
    shutil.rmtree(files.home)


@pytest.mark.parametrize("script", sorted(SLURM.iterdir()), ids=lambda path: path.name)
def test_a_slurm_script_is_valid_bash_with_options_that_sbatch_has(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    lines = re.findall(r"^#SBATCH (--[a-z-]+)", script.read_text(), re.MULTILINE)
    assert set(lines) <= SBATCH_OPTIONS
    assert bool(lines) == (script.suffix == ".sbatch")
