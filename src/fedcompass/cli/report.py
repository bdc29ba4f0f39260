"""`fedcompass report`: runs as one HTML file to look at."""

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report", "reported"]


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Runs' folders, or a folder of such folders; seeds of one strategy become a band, "
            "several strategies are compared on one time axis."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file; default: report.html in the folder."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write one self-contained HTML page about runs: timeline, accuracy, staleness and more."""
    from fedcompass.report.run_files import find_runs
    from fedcompass.report.written import usual_place, write_report

    found = find_runs(runs)
    path = write_report(
        found,
        output or usual_place(runs, found),
        lambda line: print(f"note: {line}", file=sys.stderr),
    )
    print(f"report: {path}")
    if open_it:
        typer.launch(path.resolve().as_uri())


def reported(folder: Path) -> str:
    """The path of a finished folder's report, written now; a way to get it where that fails."""
    from fedcompass.errors import FedcompassError
    from fedcompass.report.run_files import find_runs
    from fedcompass.report.written import write_report

    try:
        return str(write_report(find_runs([folder]), folder / "report.html"))
    except FedcompassError as error:
        return f"not written: {error}"
