"""Processes that tests start: none of them outlives its test, whatever goes wrong in between."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 120.0  # seconds, for what a child is to do; only a failing test waits so long
ROOT = Path(__file__).parents[1]


def importing_tests() -> dict[str, str]:
    """What to add to the environment of a program that imports these tests, as we import them."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path)}


@contextmanager
def started(command: Sequence[str | Path], **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """A process, killed at the end unless it has ended by itself."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()  # does nothing to one that has ended and was waited for
