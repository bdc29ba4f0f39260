"""An exception of somebody's code in one line: what it says, and where in the user's own file."""

import sysconfig
import traceback
from pathlib import Path

__all__ = ["is_of_user", "told"]

_OURS = Path(__file__).resolve().parent
_PYTHON = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))
_INSTALLED = {"site-packages", "dist-packages"}


def told(error: BaseException) -> str:
    """`TypeError: what it says (own.py:9 in forward)`; the place is left out if it is no user's."""
    words = " ".join(str(error).split())
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    place = _place(error)
    return text if place is None else f"{text} ({place})"


def is_of_user(error: BaseException) -> bool:
    """Whether a user's own code raised it, or something that it called."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_users(frame.filename):
            return True
        if Path(frame.filename).resolve().is_relative_to(_OURS):
            return False
    return False


def _place(error: BaseException) -> str | None:
    """The last line of a file that is neither ours nor installed."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_users(frame.filename):
            return f"{_shown(Path(frame.filename))}:{frame.lineno} in {frame.name}"
    return None


def _is_users(file: str) -> bool:
    if file.startswith("<"):  # made at run time
        return False
    path = Path(file).resolve()
    if _INSTALLED & set(path.parts):
        return False
    return not any(path.is_relative_to(folder) for folder in (_OURS, *_PYTHON))


def _shown(path: Path) -> str:
    """A file as a user would name it: from the current folder if it is in there."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
