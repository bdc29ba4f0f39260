"""Where datasets are looked for: a given root, `$FEDCOMPASS_DATA`, the cache folder."""

import os
from collections.abc import Iterator
from pathlib import Path

from fedcompass.data.sources import Source
from fedcompass.errors import DataError

__all__ = ["cache_folder", "candidates", "not_found", "roots"]


def cache_folder() -> Path:
    """Where downloads go: `$XDG_CACHE_HOME/fedcompass`, else `~/.cache/fedcompass`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fedcompass"


def roots(root: Path | None = None) -> list[Path]:
    """The data roots in the order searched, each once."""
    given = os.environ.get("FEDCOMPASS_DATA")
    places = [root, Path(given) if given else None, cache_folder()]
    return list(dict.fromkeys(place.expanduser() for place in places if place is not None))


def candidates(source: Source, root: Path | None = None) -> Iterator[Path]:
    """Existing folders that may hold a dataset, in the order searched."""
    for place in roots(root):
        for folder in source.folders:
            if (path := place / folder).is_dir():
                yield path


def not_found(source: Source, wanted: str, root: Path | None = None, also: str = "") -> DataError:
    """The one line for a dataset that is nowhere: what, where, and what to do."""
    places = ", ".join(str(place) for place in roots(root))
    folders = ", ".join(folder for folder in source.folders if folder != ".")
    return DataError(
        f"dataset {source.name!r} was not found: looked for {wanted} in {places} "
        f"(and there in {folders}){also}; run `fedcompass data fetch {source.name}`, "
        "or name the folder that holds it with --data-root or $FEDCOMPASS_DATA"
    )
