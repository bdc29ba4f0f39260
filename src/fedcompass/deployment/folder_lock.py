"""One process has a folder at a time; a process that dies lets go."""

import fcntl
import os
from pathlib import Path

__all__ = ["lock_folder"]


def lock_folder(folder: Path) -> int:
    """A handle that keeps others from a folder until it is closed.

    Raises:
        BlockingIOError: another process has it.
        OSError: it cannot be opened.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle
