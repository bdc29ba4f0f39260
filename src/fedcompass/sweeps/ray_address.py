"""Which Ray cluster `--on` means, and whether it answers; Ray itself waits minutes for one."""

import os
import socket
from pathlib import Path

from fedcompass.errors import SettingsError
from fedcompass.vocabulary import Seconds

__all__ = ["cluster_address"]

_PATIENCE: Seconds = 10.0  # for a connection


def cluster_address(where: str) -> str:
    """What to give to `ray.init`: an address where somebody listens, or "local" for a new cluster.

    Args:
        where: "ray" (the cluster that $RAY_ADDRESS names, else the one that runs on this machine,
            else a new one), "ray://host:port" or "host:port".

    Raises:
        SettingsError: it is no address, or nobody listens there.
    """
    if where not in ("ray", "auto", "local") and ":" not in where:
        raise SettingsError(f"--on is {where!r}; allowed: ray, ray://HOST:PORT or HOST:PORT")
    named = os.environ.get("RAY_ADDRESS") if where == "ray" else where
    if named:
        if problem := _problem(named):
            setting = "--on" if named is where else "$RAY_ADDRESS"
            raise SettingsError(
                f"{setting} is {named!r}, and no Ray cluster answers there: {problem}; see "
                "whether it runs with `ray status`"
            )
        return named
    noted = _noted()
    return noted if noted and not _problem(noted) else "local"


def _noted() -> str | None:
    """The address of the cluster that this machine started last; it may be gone since.

    Ray's documentation of `ray.init` names the file. A cluster that crashed leaves it behind.
    """
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        return (Path(folder) / "ray" / "ray_current_cluster").read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _problem(address: str) -> str | None:
    """Why nobody can be reached there; None if somebody listens, or only Ray can tell."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return None
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        return str(error)
    return None
