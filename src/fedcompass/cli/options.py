"""The options that several commands share, beside those that are settings."""

import re
import sys
import tomllib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcompass.errors import SettingsError
from fedcompass.setting_tables import nested
from fedcompass.vocabulary import Seconds

__all__ = [
    "DataRoot",
    "Device",
    "Executor",
    "ExperimentFile",
    "MaxStack",
    "PictureOption",
    "SetKeys",
    "Workers",
    "check_choice",
    "device_to_use",
    "for_each_client",
    "named",
    "next_free",
    "parse_assignment",
    "parse_budget",
    "parse_numbers",
    "parse_samples",
    "picture_file",
]

ExperimentFile = Annotated[
    Path | None, typer.Argument(help="An experiment's TOML file; left out: the default one.")
]
SetKeys = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting: fleet.jitter=0.1. Repeatable."),
]
Device = Annotated[
    str,
    typer.Option(
        envvar="FEDCOMPASS_DEVICE",
        help="Where to train: cpu, cuda (or gpu), cuda:1, …; auto: cuda if it is there, else cpu.",
    ),
]
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
DataRoot = Annotated[Path | None, typer.Option(help="Folder with the datasets.")]
PictureOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Also draw it: a .png, .pdf or .svg file."),
]

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_PART = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(rf"(?:{_PART}h)?(?:{_PART}m)?(?:{_PART}s?)?")


def device_to_use(asked: str, executor: str | None = None, where: str | None = None) -> str:
    """The device that is meant, said if it is not the CPU; processes train on the CPU alone.

    On a cluster, `where`, it is for the cluster to have it.

    Raises:
        SettingsError: it cannot be used.
    """
    if asked == "auto" and (where is not None or executor in ("processes", "none")):
        return "cpu"
    from fedcompass.training.device import check_device, chosen_device, device_name

    device = chosen_device(asked)
    if where is not None:
        return device
    check_device(device)
    if device != "cpu":
        other = "; --device cpu trains on the CPU" if asked == "auto" else ""
        print(f"on {device_name(device)}{other}", flush=True)
    return device


def parse_assignment(text: str) -> dict[str, Any]:
    """`fleet.jitter=0.1` as a nested table; the value is TOML, or else plain text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SettingsError(f"--set is {text!r}; allowed: KEY=VALUE, such as fleet.jitter=0.1")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    return nested(key, parsed)


def named(name: str) -> Path:
    """The folder of that name under runs/.

    Raises:
        SettingsError: the name is a path that leads elsewhere.
    """
    if name in (".", "..") or Path(name).name != name:
        raise SettingsError(f"--name is {name!r}; allowed: a plain name, without folders")
    return Path("runs") / name


def next_free(name: str) -> Path:
    """The first of name, name-2, name-3, … that is not under runs/ yet."""
    path, number = Path("runs") / name, 2
    while path.exists():
        path, number = path.with_name(f"{name}-{number}"), number + 1
    return path


def parse_budget(text: str | None) -> Seconds | None:
    """Seconds of "9m", "1h30m", "90s" or "90"; None of no --budget.

    Raises:
        SettingsError: it is none of these, or nothing.
    """
    if text is None:
        return None
    match = _DURATION.fullmatch(text.strip())
    parts = match.groups(default="0") if match else ()
    seconds = sum(float(part) * unit for part, unit in zip(parts, _UNITS.values(), strict=False))
    if seconds <= 0:
        raise SettingsError(f"--budget is {text!r}; allowed: such as 9m, 90s or 1h30m")
    return seconds


def parse_numbers(option: str, text: str) -> tuple[float, ...]:
    """The numbers of "0.1,0.25".

    Raises:
        SettingsError: it is something else.
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(
            f"{option} is {text!r}; allowed: numbers with commas between them, such as 0.1,0.25"
        ) from None


def for_each_client(name: str, text: str, clients: int) -> tuple[float, ...]:
    """An option's numbers, as many as clients; one stands for all.

    Raises:
        SettingsError: it is something else.
    """
    numbers = parse_numbers(f"--{name}", text)
    numbers = numbers * clients if len(numbers) == 1 else numbers
    if len(numbers) != clients:
        raise SettingsError(
            f"{name} has {len(numbers)} values for {clients} paces; give one, or one for each"
        )
    return numbers


def parse_samples(text: str, clients: int) -> tuple[int, ...]:
    """The samples of each client.

    Raises:
        SettingsError: it is something else.
    """
    numbers = for_each_client("samples", text, clients)
    for number in numbers:
        if not number.is_integer() or number < 1:
            raise SettingsError(f"samples has {number:g}; allowed: whole numbers above 0")
    return tuple(map(int, numbers))


def check_choice(option: str, value: str, allowed: Collection[str]) -> None:
    """Refuse a value that is not one of a few.

    Raises:
        SettingsError: listing them.
    """
    if value not in allowed:
        raise SettingsError(f"{option} is {value!r}; allowed: {', '.join(allowed)}")


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
