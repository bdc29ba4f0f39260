"""What all tests share: golden files, how hard Hypothesis tries, and who is marked `trains`."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing.forkserver import ForkServer
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch.optim.optimizer import register_optimizer_step_post_hook

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"

pytest.register_assert_rewrite("tests.scheduling.invariants")

# Machines are slow when they share a core with other tests: time is no reason to fail.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50
)
settings.register_profile(
    "thorough", settings.get_profile("default"), max_examples=500, stateful_step_count=80
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell starts a background job with SIGINT ignored, and programs inherit that; those that tests
# start are to heed Ctrl-C. A handler does that: the tests go on ignoring it, but no program
# inherits a handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda _number, _frame: None)

# The fork server is started once and keeps the folder it was started in. Tests remove theirs, and
# coverage looks at the current folder in every process that is forked later.
_ensure_running = ForkServer.ensure_running


def _ensure_running_from_here(server: ForkServer) -> None:
    with contextlib.chdir(HERE):
        _ensure_running(server)


ForkServer.ensure_running = _ensure_running_from_here  # type: ignore[assignment,method-assign]

# What the tests compare was trained on the CPU; those of GPUs ask for them.
os.environ.setdefault("FEDCOMPASS_DEVICE", "cpu")

TRAINING = (  # files and folders of tests that are marked `trains`
    "deployment/operator/test_demo_app.py",
    "deployment/site/test_site_budget.py",
    "deployment/site/test_trainer.py",
    "deployment/site/test_worker.py",
    "flower/test_new_project.py",
    "data/medical/test_cli_medical.py",
    "data/medical/test_medical_experiments.py",
    "paper/test_paper_table_runs.py",
    "simulation",
    "sweeps/test_run_all.py",
    "test_cli_paper.py",
    "test_cli_run.py",
    "test_cli_sweep.py",
    "test_diverged_runs.py",
    "test_docs_deployment.py",
    "test_docs_own.py",
    "test_examples.py",
    "test_notebook.py",
    "test_one_update.py",
    "training",
)
# What these tell does not depend on what is learned, and some of them take a minute. Tests among
# those above are left out by the mark `whatever_is_learned`: two runs that are to be the same round
# alike, too.
TRAINING_UNMARKED = ("faults", "report", "sweeps/test_on_ray.py", "test_own_things.py")


@cache
def _among(path: Path, places: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(HERE / place) for place in places)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the others where only those that train are asked for."""
    others = collection_path.is_file() and not _among(collection_path, TRAINING)
    return True if others and config.option.markexpr == "trains" else None


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _among(item.path, TRAINING) and not item.get_closest_marker("whatever_is_learned"):
            item.add_marker(pytest.mark.trains)


_steps = 0  # of any optimizer in this process


def _count_step(*_: object) -> None:
    global _steps
    _steps += 1


if not torch.cuda.is_available():  # where steps become CUDA graphs a hook would change them
    register_optimizer_step_post_hook(_count_step)


@pytest.fixture(autouse=True)
def ctrl_c_as_before() -> Iterator[None]:
    """A command ends with Ctrl-C ignored; programs that later tests start must not inherit that."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def trains_only_if_marked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that trains but is not run with plain arithmetic, too (see scripts/check)."""
    before = _steps
    yield
    known = _among(request.path, TRAINING + TRAINING_UNMARKED)
    assert known or _steps == before, "this test trains: add its file to TRAINING in conftest.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the files under tests/golden; review the difference like code",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with a file under tests/golden, whole; rewrites it with --update-golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
