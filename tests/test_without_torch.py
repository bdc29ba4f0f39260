"""What describes, lists and tabulates runs never loads torch, which takes seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = sorted(path.stem for path in (ROOT / "src/fedcompass/settings").glob("*.py"))
MODULES = [
    *(f"fedcompass.settings.{name}" for name in SETTINGS if name != "__init__"),
    "fedcompass.experiment",
    "fedcompass.strategies",
    "fedcompass.sweeps",
    "fedcompass.sweeps.store",
    "fedcompass.sweeps.comparison",
    "fedcompass.paper.pages",
    "fedcompass.deployment.server.federation_settings",
    "fedcompass.cli",
]
PUBLIC = "import fedcompass; fedcompass.Experiment(loss='cox'); fedcompass.strategy('fedat')"


def run_without_torch(code: str, *arguments: str) -> str:
    """What a program prints where torch cannot be imported; the importer is in the traceback."""
    refused = "import sys; sys.modules['torch'] = None\n"
    command = [sys.executable, "-c", refused + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder with a store of a few runs."""
    lines = (ROOT / "results" / "mnist-mini.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "store.jsonl").write_text("".join(lines[:10]))
    return tmp_path


def test_settings_strategies_and_stores_are_imported_without_torch() -> None:
    run_without_torch("\n".join([*(f"import {module}" for module in MODULES), PUBLIC]))


def test_a_table_of_the_paper_is_shown_as_soon_as_its_stores_are_read() -> None:
    shown = run_without_torch(
        "sys.modules['numpy'] = sys.modules['pydantic'] = None  # each takes a while to import\n"
        "from fedcompass.cli import main; main()",
        *("paper", "show", "table-1", "--cells", "mnist-class/m=5/exp"),
    )
    assert "as written" in shown
    assert "as run" in shown


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("strategies", "fedcompass+n"),
        ("advise --paces 0.1,0.2", "Use fedavg:"),
        ("strategies fedbuff", "buffer_size"),
        ("table {}/store.jsonl", "time: first evaluation"),
        ("paper show table-1 --results {}", "fedavgm"),
    ],
)
def test_commands_that_only_read_run_without_torch(
    command: str, printed: str, results: Path
) -> None:
    arguments = command.format(results).split()
    assert printed in run_without_torch("from fedcompass.cli import main; main()", *arguments)
