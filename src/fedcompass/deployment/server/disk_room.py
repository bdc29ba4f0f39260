"""How much of the disk under a server's state is kept for the run, and whether that is still free.

Answers are taken in only where they leave `kept_free` (`wire/answers.py`). A server whose disk is
so full that not even one answer more could be taken in is stopped: it would stand still.
"""

import shutil
from contextlib import suppress
from pathlib import Path
from time import time

from fedcompass.deployment.server.audit import Audit
from fedcompass.errors import FedcompassError
from fedcompass.runs.files import LineFile

__all__ = ["kept_free", "lack_of_room", "tell_audit"]

_LEAST = 1 << 20  # bytes, however small the model


def kept_free(run: Path) -> int:
    """The bytes that no site's answer may take: the next checkpoint is written beside the last.

    It may be twice as large, with more models that are trained on and more groups that are open.
    """
    return max(_LEAST, 2 * _checkpoint_size(run))


def lack_of_room(state: Path, run: Path) -> str | None:
    """What to say about a disk that can take in no answer; None while it can.

    The checkpoint stands for an answer's size, too: it holds the model at least once. What has come
    of answers counts as free, so that sites cannot stop the server by what they send.
    """
    try:
        free = shutil.disk_usage(state).free
    except OSError as error:
        return f"{state} cannot be used: {error.strerror}; mend it, then resume"
    for path in (state / "wire" / "uploads").glob("*"):
        with suppress(OSError):
            free += path.stat().st_size
    needed = kept_free(run) + _checkpoint_size(run)
    if free >= needed:
        return None
    return (
        f"the disk of {state} is full: {free:,} bytes are left, the run and an answer need "
        f"{needed:,}; nothing accepted is lost. Free some space, then resume"
    )


def _checkpoint_size(run: Path) -> int:
    with suppress(OSError):
        return (run / "checkpoint.safetensors").stat().st_size
    return 0


def tell_audit(run: Path, why: str) -> None:
    """Add a line to the audit of a run whose server has ended; a full disk cannot have it."""
    path = run / "audit.jsonl"
    if not path.exists():
        return
    with suppress(FedcompassError):
        lines = LineFile(path, durable=True)
        at = max((float(line.get("at", 0.0)) for line in lines.records()), default=0.0)
        Audit(lines, time).say("disk full", at, why=why)
