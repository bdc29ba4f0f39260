"""When a run was made, by which command and how long it took.

A file of its own, origin.json: it alone differs between two runs that are otherwise equal.
"""

import json
import shlex
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from fedcompass.errors import RunFolderError
from fedcompass.finite_json import json_text
from fedcompass.runs.files import write_whole

__all__ = ["ORIGIN_FILE", "Origin"]

ORIGIN_FILE = "origin.json"


class Origin:
    """Keeps a run's origin in its folder, from now until `close`; a resumed run adds its time."""

    def __init__(self, folder: Path) -> None:
        self._path, self._since = folder / ORIGIN_FILE, monotonic()
        self._facts: dict[str, Any] = {
            "command": _command(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "wall_seconds": 0.0,
        }
        with suppress(OSError, ValueError, TypeError):
            self._facts |= json.loads(self._path.read_text(encoding="utf-8"))
        self._write()

    def note(self, **facts: Any) -> None:
        """Write down further facts that are no result."""
        self._facts |= facts
        self._write()

    def close(self) -> None:
        """Add the time since the beginning, or since the last call."""
        now = monotonic()
        self._facts["wall_seconds"] = round(self._facts["wall_seconds"] + now - self._since, 3)
        self._since = now
        self._write()

    def _write(self) -> None:
        with suppress(RunFolderError):  # the run itself says that the disk is full
            write_whole(self._path, json_text(self._facts) + "\n")


def _command() -> str:
    """The command line as one would type it."""
    program, *arguments = sys.argv or [""]
    path = Path(program)
    name = path.parent.name if path.name == "__main__.py" else path.name
    return shlex.join([name, *arguments]) if name.strip("-c") else "python"
