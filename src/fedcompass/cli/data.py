"""`fedcompass data`: which datasets there are, whether they are sound, and how to get them."""

import hashlib
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcompass.cli.medical_data import check_centers, list_centers
from fedcompass.cli.plain_table import plain_table

if TYPE_CHECKING:
    from fedcompass.data.dataset import Dataset
    from fedcompass.data.fetch import Progress
    from fedcompass.data.sources import Source

__all__ = ["data"]

data = typer.Typer(help="List, check and fetch datasets.", no_args_is_help=True)

_BAR = 30  # characters of a histogram's longest bar

_Name = Annotated[str, typer.Argument(help="A dataset's name; `fedcompass data list` has them.")]
_Root = Annotated[
    Path | None,
    typer.Option("--data-root", help="Folder to look in before $FEDCOMPASS_DATA and the cache."),
]


@data.command("list")
def _list(data_root: _Root = None) -> None:
    """Print each dataset's name, its size and where it was found."""
    from fedcompass.data.places import roots
    from fedcompass.data.sources import BUNDLED, SOURCES

    rows = []
    for name in (BUNDLED, *SOURCES):
        files = _stored_files(name, data_root)
        size = _readable(sum(file.stat().st_size for file in files)) if files else "-"
        rows.append([name, size, _where(name, files)])
    print(plain_table(["name", "size", "where"], rows, left=(0, 2)))
    print("\n" + list_centers(data_root))
    print(f"\nlooked in {', '.join(map(str, roots(data_root)))}")
    print("`fedcompass data fetch NAME` downloads one; `data check NAME` reads and checks it.")


def _where(name: str, files: list[Path]) -> str:
    from fedcompass.data.sources import BUNDLED

    if name == BUNDLED:
        return "part of fedcompass"
    return str(files[0].parent) if files else "not found"


def _stored_files(name: str, root: Path | None) -> list[Path]:
    """The files that would be read, none if the dataset is nowhere; their content is not read."""
    from fedcompass.data.places import candidates
    from fedcompass.data.sources import BUNDLED, CIFAR10, SOURCES

    if name == BUNDLED:
        from fedcompass import data as package

        return sorted((Path(package.__path__[0]) / "bundled" / BUNDLED).glob("*.gz"))
    known = SOURCES[name]
    find = _cifar_files if known is CIFAR10 else _idx_files
    return next((files for folder in candidates(known, root) if (files := find(known, folder))), [])


def _idx_files(known: "Source", folder: Path) -> list[Path]:
    files = []
    for file in known.files:
        plain = [file.name.removesuffix(".gz")] if file.content_md5 else []
        found = [p for name in (file.name, *plain) if (p := folder / name).is_file()]
        if not found:
            return []
        files.append(found[0])
    return [] if _is_of_another(known, files[-1]) else files


def _is_of_another(known: "Source", file: Path) -> bool:
    """Whether a file is another dataset's of the same name (MNIST and Fashion-MNIST share them)."""
    from fedcompass.data.sources import SOURCES

    md5 = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
    others = (other for other in SOURCES.values() if other is not known)
    return any(published.md5 == md5 for other in others for published in other.files)


def _cifar_files(_known: "Source", folder: Path) -> list[Path]:
    from fedcompass.data.cifar import VERSIONS, find

    for version in VERSIONS:
        if (place := find(folder, version)) is not None:
            batches = [place / name for name in version.batches] if place.is_dir() else [place]
            return [batch for batch in batches if batch.is_file()]
    return []


@data.command("check")
def _check(name: _Name, data_root: _Root = None) -> None:
    """Read a dataset, check it against what was published and count its classes (and centers)."""
    from fedcompass.data.catalogue import load
    from fedcompass.data.sources import MEDICAL

    if name in MEDICAL:
        print(check_centers(name, data_root))
        return
    loaded = load(name, data_root)
    files = _stored_files(name, data_root)
    shape = "x".join(map(str, loaded.input_shape))
    kind = str(loaded.train_inputs.dtype).removeprefix("torch.")
    print(f"{name}: {_where(name, files)}, checked")
    print(
        f"{len(loaded.train_inputs)} training and {len(loaded.test_inputs)} test samples, "
        f"{shape} {kind}, {loaded.classes} classes\n"
    )
    print(_histogram(loaded))


def _histogram(dataset: "Dataset") -> str:
    train, test = (
        targets.bincount(minlength=dataset.classes).tolist()
        for targets in (dataset.train_targets, dataset.test_targets)
    )
    rows = [
        [str(label), str(n), str(test[label]), "#" * round(_BAR * n / max(train))]
        for label, n in enumerate(train)
    ]
    rows.append(["all", str(sum(train)), str(sum(test)), ""])
    return plain_table(["class", "training", "test", ""], rows, left=(3,))


@data.command("fetch")
def _fetch(
    name: _Name,
    to: Annotated[
        Path | None, typer.Option(help="Folder to put it in; left out: the cache folder.")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="A mirror of your own that holds the published files.")
    ] = None,
) -> None:
    """Download a dataset; one that was interrupted goes on where it stopped."""
    from fedcompass.data.fetch import fetch
    from fedcompass.data.places import roots

    try:
        with _progress() as progress:
            files = fetch(name, to, base_url=base_url, progress=progress)
    except KeyboardInterrupt:
        again = _command(name, to, base_url)
        print(f"stopped; what has arrived is kept. To go on: {again}", file=sys.stderr, flush=True)
        raise typer.Exit(130) from None
    size = _readable(sum(file.stat().st_size for file in files))
    s = "" if len(files) == 1 else "s"
    where = files[0].parent
    print(f"{name}: {len(files)} file{s}, {size}, in {where}; checksum{s} as published")
    if to is not None and to.expanduser() not in roots():
        folder = shlex.quote(str(to.expanduser().absolute()))
        print(f"It is found with --data-root {folder} or FEDCOMPASS_DATA={folder}")


def _command(name: str, to: Path | None, base_url: str | None) -> str:
    """The command that goes on, ready to paste."""
    words = ["fedcompass", "data", "fetch", name]
    words += ["--to", str(to)] if to is not None else []
    words += ["--base-url", base_url] if base_url is not None else []
    return shlex.join(words)


@contextmanager
def _progress() -> "Iterator[Progress]":
    """A bar per file in a terminal, a line per finished file elsewhere; both on stderr."""
    if not sys.stderr.isatty():
        yield _tell_when_done
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bars

    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:
        tasks = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=None)
            bars.update(tasks[file], completed=done, total=total)

        yield show


def _tell_when_done(file: str, done: int, total: int | None) -> None:
    if done == total:
        print(f"{file}: {_readable(done)}", file=sys.stderr, flush=True)


def _readable(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"
