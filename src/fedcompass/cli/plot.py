"""`fedcompass plot`: a figure for a paper, drawn from the folders of runs."""

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcompass.cli.options import check_choice, picture_file
from fedcompass.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedcompass.report.figures.run_records import RunRecord
    from fedcompass.report.figures.style import Picture

__all__ = ["plot"]

_SETTINGS = ("partition", "fleet")
_KINDS = ("timeline", "accuracy", "staleness", "times", *_SETTINGS)
_NARROWEST, _WIDEST = 1.5, 40.0  # inches


def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Runs' folders, or folders of such folders as `compare` writes them; for times "
            "a comparison's folder, a sweep's TOML file or a file of results.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The figure's .pdf, .png or .svg file.")
    ],
    what: Annotated[str, typer.Option(help=f"{', '.join(_KINDS)}.")] = "timeline",
    metric: Annotated[
        str | None,
        typer.Option(help="accuracy: another metric, such as loss; left out: the target's."),
    ] = None,
    start: Annotated[float, typer.Option("--from", help="Show the run from this time on.")] = 0.0,
    end: Annotated[
        float | None, typer.Option("--until", help="Show it up to this time; left out: all.")
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(help="Inches: 3.5, a column, unless given; of timeline and times 7, a page."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="times: AXIS=LABEL, only these (* is any text); several narrow further."),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="times: a sweep's file of results, if it is elsewhere.")
    ] = None,
) -> None:
    """Draw runs for a paper: who trained when, how accuracy rose, how stale updates were.

    `--what times` compares strategies: the time to the target and the share of time spent waiting,
    with every seed.

    Runs that differ only in their seed become one curve: their mean, with a band of one standard
    deviation. Text stays text in .pdf and .svg files, and colours differ for all eyes.
    """
    _check(what, metric, start, end, width)
    if what == "times":
        _draw_times(runs, output, width, where or [], store)
        return
    if where or store:
        raise SettingsError(f"--where and --store go with --what times, not with {what}")
    from fedcompass.report.figures.run_records import read_runs
    from fedcompass.report.figures.style import COLUMN, PAGE, Picture, check_picture

    check_picture(output)
    picture = Picture(output, width or (PAGE if what == "timeline" else COLUMN), start, end)
    records = read_runs(runs)
    if what == "partition" and len(records) != 1:
        raise SettingsError(f"--what partition draws one run, not {len(records)}; give one")
    with picture_file(output):
        _draw(what, records, picture, metric)


def _check(
    what: str, metric: str | None, start: float, end: float | None, width: float | None
) -> None:
    check_choice("--what", what, _KINDS)
    if metric is not None and what != "accuracy":
        raise SettingsError(f"--metric goes with --what accuracy, not with {what}; leave it out")
    if what in _SETTINGS and (start or end is not None or width is not None):
        raise SettingsError(f"--from, --until and --width do not go with {what}; leave them out")
    if what == "times" and (start or end is not None):
        raise SettingsError("--from and --until do not go with times; leave them out")
    if not 0 <= start < (inf if end is None else end):
        raise SettingsError(
            f"--from is {start:g} and --until {end}; allowed: a part of the run, from 0 on"
        )
    if width is not None and not _NARROWEST <= width <= _WIDEST:
        raise SettingsError(f"--width is {width:g}; allowed: {_NARROWEST:g} to {_WIDEST:g} inches")


def _draw_times(
    sources: list[Path], output: Path, width: float | None, where: list[str], store: Path | None
) -> None:
    from fedcompass.cli.table import narrowed, results_of
    from fedcompass.report.figures.style import PAGE, check_picture
    from fedcompass.report.figures.times import draw_times

    check_picture(output)
    if len(sources) != 1:
        raise SettingsError(f"--what times draws one comparison, not {len(sources)}; give one")
    results = narrowed(results_of(sources[0], store), where)
    with picture_file(output):
        draw_times(results, output, width or PAGE)


def _draw(
    what: str, records: "Sequence[RunRecord]", picture: "Picture", metric: str | None
) -> None:
    match what:
        case "timeline":
            from fedcompass.report.figures.timeline import draw_timeline

            draw_timeline(records, picture)
        case "accuracy":
            from fedcompass.report.figures.curves import draw_curves

            draw_curves(records, picture, metric)
        case "staleness":
            from fedcompass.report.figures.staleness_bars import draw_staleness

            draw_staleness(records, picture)
        case "partition":
            from fedcompass.report.figures.setup import draw_partition_of

            draw_partition_of(records[0], picture.path)
        case _:
            from fedcompass.report.figures.setup import draw_fleets_of

            draw_fleets_of(records, picture.path)
