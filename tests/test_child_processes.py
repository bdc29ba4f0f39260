"""The tests' own footing: what programs they start inherit from whoever started the tests."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEEDS = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
THIS = f"{Path(__file__).name}::test_a_program_started_by_a_test_heeds_ctrl_c"


def test_a_program_started_by_a_test_heeds_ctrl_c() -> None:
    assert subprocess.check_output([sys.executable, "-c", HEEDS], text=True) == "True\n"


def test_it_does_so_when_the_tests_run_in_the_background_of_a_script() -> None:
    """A shell starts background jobs with SIGINT ignored, which programs inherit."""
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/{THIS}"]
    ignoring = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *tests]
    done = subprocess.run(ignoring, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
