"""`fedcompass data`: list datasets, check them, download them."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcompass.cli.interrupts import going_on_later
from fedcompass.cli.medical_data import check_centers, list_centers
from fedcompass.cli.progress import bars
from fedcompass.cli.text import plain_table

if TYPE_CHECKING:
    from fedcompass.data.dataset import Dataset

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
    from fedcompass.data.places import roots, stored_files
    from fedcompass.data.sources import BUNDLED, SOURCES

    rows = []
    for name in (BUNDLED, *SOURCES):
        files = stored_files(name, data_root)
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


@data.command("check")
def _check(name: _Name, data_root: _Root = None) -> None:
    """Read a dataset, check it against what was published and count its classes (and centers)."""
    from fedcompass.data.catalogue import load
    from fedcompass.data.places import stored_files
    from fedcompass.data.sources import MEDICAL

    if name in MEDICAL:
        print(check_centers(name, data_root))
        return
    loaded = load(name, data_root)
    files = stored_files(name, data_root)
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
    """Download a dataset; an interrupted download continues where it stopped."""
    from fedcompass.data.fetch import fetch
    from fedcompass.data.places import roots

    again = f"stopped; what has arrived is kept. To go on: {_command(name, to, base_url)}"
    with (
        going_on_later(lambda: print(again, file=sys.stderr, flush=True)),
        bars("{}", lambda file, size: f"{file}: {_readable(size)}", in_bytes=True) as progress,
    ):
        files = fetch(name, to, base_url=base_url, progress=progress)
    size = _readable(sum(file.stat().st_size for file in files))
    s = "" if len(files) == 1 else "s"
    where = files[0].parent
    print(f"{name}: {len(files)} file{s}, {size}, in {where}; checksum{s} as published")
    if to is not None and to.expanduser() not in roots():
        folder = shlex.quote(str(to.expanduser().absolute()))
        print(f"It is found with --data-root {folder} or FEDCOMPASS_DATA={folder}")


def _command(name: str, to: Path | None, base_url: str | None) -> str:
    """The command that continues the download, ready to paste."""
    words = ["fedcompass", "data", "fetch", name]
    words += ["--to", str(to)] if to is not None else []
    words += ["--base-url", base_url] if base_url is not None else []
    return shlex.join(words)


def _readable(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"
