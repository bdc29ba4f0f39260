"""Disks that are small enough to be filled; they take root to mount."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str = "12m") -> Iterator[None]:
    """Have a disk of its own under a new folder; `pytest.skip` where none can be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a small disk: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(ballast: Path, leave: int) -> None:
    """Use up a disk but for so many bytes."""
    disk = os.statvfs(ballast.parent)
    room = disk.f_bavail * disk.f_frsize
    # Where the server was quicker the disk is full anyway.
    with suppress(OSError), ballast.open("wb") as file:
        file.write(bytes(max(room - leave, 0)))
