"""`fedcompass partition`: which client gets how many samples of which class."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcompass.cli.options import DataRoot, PictureOption, picture_file
from fedcompass.cli.text import plain_table
from fedcompass.errors import SettingsError
from fedcompass.own_code import absolute, is_own, short

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["partition"]

_USUAL_CLIENTS = 10  # as in the paper's two figures


def partition(
    dataset: Annotated[
        str, typer.Argument(help="mnist-mini, mnist, fashion-mnist, cifar10; or FILE.py:name.")
    ] = "mnist-mini",
    kind: Annotated[str, typer.Option(help="class, dual-dirichlet, iid or center.")] = "class",
    clients: Annotated[
        int | None,
        typer.Option(help="How many clients: 10 unless given; by center, one per center."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    n_min: Annotated[int | None, typer.Option(help="class: fewest classes of a client.")] = None,
    n_max: Annotated[int | None, typer.Option(help="class: most classes of a client.")] = None,
    mean: Annotated[
        float | None, typer.Option(help="class: μ of a client's share of a class; 10.")
    ] = None,
    std: Annotated[
        float | None, typer.Option(help="class: σ of a client's share of a class; 3.")
    ] = None,
    alpha1: Annotated[
        float | None,
        typer.Option(help="dual-dirichlet: how even the clients' sizes are; number of clients."),
    ] = None,
    alpha2: Annotated[
        float | None, typer.Option(help="dual-dirichlet: how even a client's classes are; 0.5.")
    ] = None,
    data_root: DataRoot = None,
    output: PictureOption = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="JSON lines: client, samples, share, counts (one number per class)."
        ),
    ] = False,
) -> None:
    """Split a dataset among clients and show the split: the table and the figure."""
    from fedcompass.data.partition import class_counts
    from fedcompass.data.partition import partition as deal
    from fedcompass.settings.data import PartitionSettings

    given: dict[str, Any] = {"kind": kind, "n_min": n_min, "n_max": n_max, "mean": mean}
    settings = PartitionSettings(**given, std=std, alpha1=alpha1, alpha2=alpha2)
    targets, classes, centers = _labels(dataset, data_root, seed)
    if clients is None:
        clients = _usual_clients(centers, kind)
    try:
        parts = deal(targets, classes, clients, settings, seed, centers)
    except SettingsError as error:
        said = str(error).replace("partition.kind is", "--kind is").replace(" (--partition)", "")
        raise SettingsError(said) from None
    counts = class_counts(parts, targets, classes)
    what = f"{short(dataset)}, {kind} partition, {clients} clients, seed {seed}"
    if output is not None:
        _draw(counts, output, what)
    if as_json:
        _print_json(counts)
    else:
        print(f"{what}\n{int(counts.sum())} training samples, {_classes_held(counts)}\n")
        print(_table(counts))


def _labels(name: str, root: Path | None, seed: int) -> "tuple[Tensor, int, Tensor | None]":
    """The training samples' targets, how many classes they are of, and the natural centers."""
    from fedcompass.data.catalogue import load
    from fedcompass.data.own_data import own_data

    if not is_own(name):
        dataset = load(name, root)
        return dataset.train_targets, dataset.classes, dataset.train_centers
    data = own_data(absolute(name), clients=_USUAL_CLIENTS, seed=seed)
    if isinstance(data.train, list):
        raise SettingsError(f"data {data.shown!r} come by client: there is nothing to split")
    return data.train.targets, data.classes or 0, data.centers


def _usual_clients(centers: "Tensor | None", kind: str) -> int:
    if kind == "center" and centers is not None:
        return len(set(centers.tolist()))
    return _USUAL_CLIENTS


def _draw(counts: "Tensor", path: Path, title: str) -> None:
    from fedcompass.report.figures.setup import draw_partition

    with picture_file(path):
        draw_partition(counts, path, title)


def _print_json(counts: "Tensor") -> None:
    total = int(counts.sum())
    for client, row in enumerate(counts.tolist()):
        samples = sum(row)
        record = {"client": client, "samples": samples, "share": samples / total, "counts": row}
        print(json.dumps(record))


def _classes_held(counts: "Tensor") -> str:
    held = (counts > 0).sum(dim=1)
    low, high = int(held.min()), int(held.max())
    return f"{low} classes each" if low == high else f"{low} to {high} classes per client"


def _table(counts: "Tensor") -> str:
    """A row per client, a column per class; a dot for zero makes the rest easy to see."""
    total = int(counts.sum())
    rows = [
        [client, *(n or "." for n in row), sum(row), f"{sum(row) / total:.1%}"]
        for client, row in enumerate(counts.tolist())
    ]
    rows.append(["all", *counts.sum(dim=0).tolist(), total, "100%"])
    header = ["client", *(str(label) for label in range(counts.shape[1])), "total", "share"]
    return plain_table(header, rows, left=())
