"""A worker's Unix socket: only its own user may reach it, and only one worker serves it."""

import os
import socket
import stat
from pathlib import Path

from fedcompass.errors import ProjectError

__all__ = ["MOST_PATH_BYTES", "listen_at"]

MOST_PATH_BYTES = 107  # sun_path of sockaddr_un, less its final zero
_OTHERS = 0o077
_BACKLOG = 8


def listen_at(path: Path) -> socket.socket:
    """A listening socket of mode 0600 in a folder of mode 0700; a dead worker's socket is replaced.

    Raises:
        ProjectError: the path is too long, others can open its folder, or a worker is there.
    """
    if len(os.fsencode(path)) > MOST_PATH_BYTES:
        raise ProjectError(
            f"the socket's path {path} has {len(os.fsencode(path))} bytes; the system allows "
            f"{MOST_PATH_BYTES}. Use a shorter folder"
        )
    _check_folder(path.parent)
    _remove_dead(path)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)  # from its first moment, not by a chmod after the fact
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise ProjectError(f"no socket can be made at {path}: {error}") from None
    finally:
        os.umask(before)
    listener.listen(_BACKLOG)
    return listener


def _check_folder(folder: Path) -> None:
    """Make the folder for us alone; refuse one that is open to others."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise ProjectError(f"the socket's folder {folder} belongs to another user; use your own")
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise ProjectError(
            f"the socket's folder {folder} is open to others (mode {mode:04o}); run: "
            f"chmod 700 {folder}"
        )


def _remove_dead(path: Path) -> None:
    """Remove the socket of a worker that was killed; one that answers is left alone."""
    if not path.exists():
        return
    if not path.is_socket():
        raise ProjectError(
            f"{path} is in the way: it is not a socket. Move it, or use another path"
        )
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise ProjectError(f"{path} is in the way: {error}. Remove it") from None
        else:
            raise ProjectError(f"another worker serves {path}; stop it, or use another socket")
