"""`fedcompass deploy readmit`: ask a running server to let a site out of quarantine."""

import getpass
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from fedcompass.deployment.operator.run_view import RunView
from fedcompass.deployment.server.readmission import put_request
from fedcompass.errors import RunFolderError
from fedcompass.vocabulary import ClientId, Seconds

__all__ = ["request_readmission"]

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
    view = RunView(run)
    view.refresh()
    if view.finished:
        raise RunFolderError(f"{run} is finished; nobody is in quarantine any more")
    asked = put_request(run, site, _operator())
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


def _operator() -> str:
    """Who runs this command, by the system's word; behind `sudo -u`, who called that."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container's user has no name
        return f"user {os.getuid()}"
