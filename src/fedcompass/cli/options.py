"""The options that commands which run something share, beside those that are settings."""

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcompass.errors import SettingsError

__all__ = [
    "Device",
    "Executor",
    "ExperimentFile",
    "MaxStack",
    "SetKeys",
    "Workers",
    "named",
    "next_free",
    "parse_assignment",
]

ExperimentFile = Annotated[
    Path | None, typer.Argument(help="An experiment's TOML file; left out: the default one.")
]
SetKeys = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting: fleet.jitter=0.1. Repeatable."),
]
Device = Annotated[str, typer.Option(help="Where to train: cpu or cuda.")]
MaxStack = Annotated[
    int | None,
    typer.Option(min=1, help="Most tasks in a stack; default: as many as pay and fit the memory."),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; default: one per core.")]
Executor = Annotated[
    str | None,
    typer.Option(
        help="serial or processes (the same bits), or stacked (within rounding), which is usual on "
        "cuda."
    ),
]


def parse_assignment(text: str) -> dict[str, Any]:
    """`fleet.jitter=0.1` as a nested table; the value is TOML, or else plain text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SettingsError(f"--set is {text!r}; allowed: KEY=VALUE, such as fleet.jitter=0.1")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    from fedcompass.settings import nested

    return nested(key, parsed)


def named(name: str) -> Path:
    """The folder of that name under runs/.

    Raises:
        SettingsError: the name is a path that leads elsewhere.
    """
    if name in (".", "..") or Path(name).name != name:
        raise SettingsError(f"--name is {name!r}; allowed: a plain name, without folders")
    return Path("runs") / name


def next_free(folder: Path, name: str) -> Path:
    """The first of name, name-2, name-3, … that is not there yet."""
    path, number = folder / name, 2
    while path.exists():
        path, number = folder / f"{name}-{number}", number + 1
    return path
