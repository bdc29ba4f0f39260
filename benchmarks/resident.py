"""Memory of a process, as Linux counts it."""

from pathlib import Path
from typing import Literal


def resident(field: Literal["VmRSS", "VmHWM"], pid: int | Literal["self"] = "self") -> int:
    """Bytes of a process in memory now (VmRSS) or at most so far (VmHWM).

    `resource.getrusage` would not do: its peak is inherited from the process that started this one.
    """
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{pid}/status has no {field}")
