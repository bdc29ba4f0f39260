"""Files that only their owner may read: written so from the start, and checked before use."""

import os
import stat
from pathlib import Path

from fedcompass.errors import ProjectError

__all__ = ["check_private", "write_secret"]

_OTHERS = 0o077


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read; it never exists with wider permissions.

    Raises:
        ProjectError: the file is there already; secrets are never overwritten.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ProjectError(f"{path} exists already; move it away first") from None
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, 0o600)  # whatever the umask says
        file.write(content)


def check_private(path: Path) -> None:
    """Make sure that a secret file is there and that only its owner can read it.

    Raises:
        ProjectError: otherwise; says what to type.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise ProjectError(f"{path}: {error.strerror}; ask for a new folder") from None
    if mode & _OTHERS:
        raise ProjectError(f"{path} can be read by others (mode {mode:o}); run: chmod 600 {path}")
