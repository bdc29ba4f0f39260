"""Words that one side hands to the other; plain texts, so that neither torch nor gRPC is needed."""

import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["KEPT", "one_line", "without_folders"]

KEPT = "kept"
"""The form of an answer whose update stays at the site until a secure sum asks for it."""

_LONGEST = 300  # characters of a text that one side hands to the other
_QUOTED_FOLDER = re.compile(r"""(?<=['"])/[^'"]*/(?=[^'"/]*['"])""")
_FOLDER = re.compile(r"""(?<![\w./~])~?/(?:[^\s/:;,'"()\[\]]+/)+""")


def without_folders(text: str, known: Iterable[Path] = ()) -> str:
    """A text with files' names in place of their absolute paths: a site's folders are its own.

    Args:
        text: what is to leave the site.
        known: folders that may occur in it; one whose name has a space is found only so.
    """
    for folder in sorted({str(folder) for folder in known if folder.is_absolute()}, reverse=True):
        text = text.replace(f"{folder}/", "")
    return _FOLDER.sub("", _QUOTED_FOLDER.sub("", text))


def one_line(text: str) -> str:
    """What a site, an app or an engine said, as one short line that can be printed."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text[:4000]).split())
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"
