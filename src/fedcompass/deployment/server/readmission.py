"""An operator's word to a running server: let a site out of quarantine.

It is a file in the run folder, named after the site, that says who asks; the server's loop takes it
up. Who may write there runs the server anyway, so it needs no port and no secret.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from fedcompass.deployment.wire.short_texts import one_line
from fedcompass.errors import RunFolderError, SettingsError
from fedcompass.vocabulary import ClientId

__all__ = ["put_request", "take_requests"]

_FOLDER = "readmit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")


def put_request(run: Path, site: ClientId, by: str) -> Path:
    """Put down a request: a file by the site's name, with the name of who asks.

    Raises:
        SettingsError: the name cannot be a site's.
        RunFolderError: the folder is not this user's, or cannot be written to.
    """
    if not _NAME.fullmatch(site):
        raise SettingsError(f"{site!r} is no site's name; `fedcompass deploy status` lists them")
    folder = run / _FOLDER
    request, written = folder / site, folder / f".{site}"  # the server takes no hidden file
    try:
        if run.stat().st_uid != os.getuid():
            raise RunFolderError(f"{run} is another user's; run this as that user")
        folder.mkdir(mode=0o700, exist_ok=True)
        written.touch(mode=0o600)
        written.write_text(by, encoding="utf-8")
        written.replace(request)
    except OSError as error:
        raise RunFolderError(f"{folder} cannot be written to: {error.strerror}") from None
    return request


def take_requests(run: Path) -> list[tuple[ClientId, str]]:
    """The sites that are to be readmitted, and who asks; each request is handed out once."""
    taken = []
    with suppress(OSError):  # nobody ever asked
        for path in sorted((run / _FOLDER).iterdir()):
            if _NAME.fullmatch(path.name):
                by = one_line(path.read_text(encoding="utf-8", errors="replace"))
                path.unlink()
                taken.append((path.name, by))
    return taken
