"""`fedcompass table`: a sweep's results as the paper's kind of tables."""

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcompass.cli.options import check_choice
from fedcompass.cli.text import fitted_table, wrapped
from fedcompass.errors import SettingsError

if TYPE_CHECKING:
    from fedcompass.sweeps.formats import TextTable
    from fedcompass.sweeps.results import Results

__all__ = ["narrowed", "results_of", "table"]

_FORMATS = ("text", "csv", "markdown", "latex")
_METRICS = ("time", "accuracy")


def table(
    source: Annotated[
        Path, typer.Argument(help="A sweep's TOML file, or a file of results (or its folder).")
    ],
    output_format: Annotated[
        str, typer.Option("--format", help="text, csv (every number), markdown, latex.")
    ] = "text",
    metric: Annotated[
        str | None,
        typer.Option(help="In a grid: time (to target; the default) or accuracy (the top one)."),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="Axes down a grid, commas between; default: strategies.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Axes across a grid, commas between; left out: a list.")
    ] = None,
    reference: Annotated[
        str, typer.Option(help="What times are relative to: a label, or AXIS=LABEL.")
    ] = "fedcompass",
    paired: Annotated[
        bool,
        typer.Option(
            "--paired", help="Compare seed by seed with the reference; --columns: a table for each."
        ),
    ] = False,
    lead_at: Annotated[
        float | None,
        typer.Option(
            help="With --paired: the lead by this time, in seconds; default: when the sooner of "
            "both is at the target.",
            min=0,
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="AXIS=LABEL: only these (* is any text); several narrow further."),
    ] = None,
    whole_seeds: Annotated[
        bool,
        typer.Option("--whole-seeds", help="Only seeds with which all of these runs are done."),
    ] = False,
    store: Annotated[
        Path | None, typer.Option(help="A sweep's file of results, if it is elsewhere.")
    ] = None,
) -> None:
    """Print results: mean and spread over seeds, relative times, counts and wins."""
    check_choice("--format", output_format, _FORMATS)
    check_choice("--metric", metric or "time", _METRICS)
    in_grid = not paired and (rows is not None or columns is not None)
    if metric is not None and not in_grid:
        raise SettingsError(
            "--metric is for a grid: give --columns, or leave it out; a list has both"
        )
    if lead_at is not None and not paired:
        raise SettingsError("--lead-at is for --paired: give that, too, or leave it out")
    if lead_at is not None and not isfinite(lead_at):
        raise SettingsError(f"--lead-at is {lead_at}; allowed: seconds, such as 60")
    from fedcompass.cli.table_shapes import every_number, grids, listing, notes
    from fedcompass.sweeps.comparison import Comparison

    results = narrowed(results_of(source, store), where or [])
    comparison = Comparison(results.whole_seeds() if whole_seeds else results, reference)
    if paired:
        from fedcompass.cli.paired_table import paired_shapes

        shapes = paired_shapes(comparison.results, reference, _axes(columns), lead_at)
    elif output_format == "csv":
        shapes = [every_number(comparison)]
    elif rows is None and columns is None:
        shapes = [listing(comparison)]
    else:
        shapes = grids(comparison, metric or "time", _axes(rows), _axes(columns))
    parts = [_rendered(shape, output_format) for shape in shapes]
    meaning = shapes[0].meaning if shapes else ""
    print("\n\n".join([*parts, *_remarks(notes(comparison), meaning, output_format)]))


def _axes(text: str | None) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()] if text else []


def results_of(source: Path, store: Path | None) -> "Results":
    """What a sweep's file, a store, or the folder of either has.

    Raises:
        SettingsError: there are no results.
    """
    from fedcompass.cli.sweep import RESULTS, SWEEP_FILE, usual_store
    from fedcompass.sweeps.results import Results
    from fedcompass.sweeps.store import Store
    from fedcompass.sweeps.sweep_file import Sweep

    file = source / SWEEP_FILE if (source / SWEEP_FILE).is_file() else source
    sweep = Sweep.from_toml(file) if file.suffix == ".toml" else None
    path = store or (usual_store(sweep) if sweep and file == source else source)
    path = path / RESULTS if path.is_dir() else path
    if not path.is_file():
        raise SettingsError(f"{path} is not there; run `fedcompass sweep` first, or give --store")
    results = Store(path)
    return Results.of_plan(sweep.plan(), results) if sweep else Results.of_store(results)


def narrowed(results: "Results", where: list[str]) -> "Results":
    """The results that every AXIS=LABEL fits.

    Raises:
        SettingsError: one names no axis, or no label of it.
    """
    for one in where:
        axis, equals, label = one.partition("=")
        if not equals:
            raise SettingsError(f"--where is {one!r}; give AXIS=LABEL")
        results = results.where(axis, label)
    return results


def _rendered(shape: "TextTable", output_format: str) -> str:
    from fedcompass.sweeps.formats import csv_table, latex_table, markdown_table

    match output_format:
        case "csv":
            return csv_table(shape)
        case "markdown":
            return markdown_table(shape)
        case "latex":
            return latex_table(shape)
        case _:
            title = f"{wrapped(shape.title)}\n" if shape.title else ""
            return title + fitted_table(shape.header, shape.rows, shape.left)


def _remarks(notes: list[str], meaning: str, output_format: str) -> list[str]:
    from fedcompass.sweeps.formats import markdown_text

    match output_format:
        case "csv":
            return []  # its columns say it
        case "markdown":
            return [markdown_text(note) for note in notes]
        case "latex":
            return ["\n".join(f"% {note}" for note in notes)] if notes else []
        case _:
            return ["\n".join(map(wrapped, [*notes, meaning]))]
