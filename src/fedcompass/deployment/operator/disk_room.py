"""Whether the disk under a server's state has room: without it every message fails for minutes."""

import shutil
from contextlib import suppress
from pathlib import Path
from time import time

from fedcompass.deployment.server.audit import Audit
from fedcompass.errors import FedcompassError
from fedcompass.runs.files import LineFile

__all__ = ["lack_of_room", "tell_audit"]

_LEAST = 1 << 20  # bytes, however small the model


def lack_of_room(state: Path, run: Path) -> str | None:
    """What to say about a disk that cannot take the next messages; None while it can.

    The run's checkpoint stands for the size of the messages: it holds the model at least once.
    """
    try:
        free = shutil.disk_usage(state).free
    except OSError as error:
        return f"{state} cannot be used: {error.strerror}; mend it, then resume"
    needed = _LEAST
    with suppress(OSError):
        needed = max(needed, (run / "checkpoint.safetensors").stat().st_size)
    if free >= needed:
        return None
    return (
        f"the disk of {state} is full: {free:,} bytes are left, messages need {needed:,}; nothing "
        "accepted is lost. Free some space, then resume"
    )


def tell_audit(run: Path, why: str) -> None:
    """Add a line to the audit of a run whose server has ended; a full disk cannot have it."""
    path = run / "audit.jsonl"
    if not path.exists():
        return
    with suppress(FedcompassError):
        lines = LineFile(path, durable=True)
        at = max((float(line.get("at", 0.0)) for line in lines.records()), default=0.0)
        Audit(lines, time).say("disk full", at, why=why)
