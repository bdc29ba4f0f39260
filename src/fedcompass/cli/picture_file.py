"""Where a picture goes: the folder is made, and a place that cannot be written is one line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fedcompass.errors import SettingsError

__all__ = ["PictureOption", "picture_file"]

PictureOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Also draw it: a .png, .pdf or .svg file."),
]


@contextmanager
def picture_file(path: Path) -> Iterator[None]:
    """Draw to `path` inside; says on stderr, where it disturbs no JSON, that it is done.

    Raises:
        SettingsError: the file or its folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise SettingsError(
            f"picture {path} cannot be written: {error.strerror or error}; choose another place"
        ) from None
    print(f"picture: {path}", file=sys.stderr, flush=True)
