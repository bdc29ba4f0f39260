"""An operator's word to a running server: let a site out of quarantine.

It is a file in the run folder, named after the site; the server's loop takes it up. Who may write
there runs the server anyway, so it needs no port and no secret.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from fedcompass.deployment.server.run_view import RunView
from fedcompass.errors import RunFolderError, SettingsError
from fedcompass.vocabulary import ClientId, Seconds

__all__ = ["request_readmission", "take_requests"]

_FOLDER = "readmit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
_ANSWERS = ("readmitted", "not readmitted")
_PATIENCE: Seconds = 30.0  # a server looks every watch_interval
_PAUSE: Seconds = 0.2


def request_readmission(
    run: Path,
    site: ClientId,
    *,
    patience: Seconds = _PATIENCE,
    pause: Callable[[Seconds], None] = sleep,
) -> dict[str, Any]:
    """Ask the server of a run to readmit a site, and wait for the line in its audit log.

    Raises:
        RunFolderError: the folder is not this user's, its run is over, or no server answers; then
            the request is withdrawn.
        SettingsError: the name cannot be a site's.
    """
    if not _NAME.fullmatch(site):
        raise SettingsError(f"{site!r} is no site's name; `fedcompass deploy status` lists them")
    view = RunView(run)
    view.refresh()
    if view.finished:
        raise RunFolderError(f"{run} is finished; nobody is in quarantine any more")
    asked = _ask(run, site)
    until = monotonic() + patience
    while True:
        for line in view.refresh():
            if line["what"] in _ANSWERS and line.get("who") == site:
                return line
        if monotonic() > until:
            asked.unlink(missing_ok=True)
            raise RunFolderError(
                f"no server took it up within {patience:g} s; is one running {run}?"
            )
        pause(_PAUSE)


def take_requests(run: Path) -> list[ClientId]:
    """The sites that are to be readmitted; each request is handed out once."""
    taken = []
    with suppress(OSError):  # nobody ever asked
        for path in sorted((run / _FOLDER).iterdir()):
            if _NAME.fullmatch(path.name):
                path.unlink()
                taken.append(path.name)
    return taken


def _ask(run: Path, site: ClientId) -> Path:
    """Put down a request: an empty file by the site's name."""
    folder = run / _FOLDER
    try:
        if run.stat().st_uid != os.getuid():
            raise RunFolderError(f"{run} is another user's; run this as that user")
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / site).touch(mode=0o600)
    except OSError as error:
        raise RunFolderError(f"{folder} cannot be written to: {error.strerror}") from None
    return folder / site
