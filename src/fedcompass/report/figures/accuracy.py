"""A metric over virtual time: one curve per strategy, a band over its seeds, the target line."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedcompass.errors import SettingsError
from fedcompass.report.figures.curves import mean_curve
from fedcompass.report.figures.records import RunRecord, SeedGroup, seed_groups, seeds_note
from fedcompass.report.figures.style import (
    COLUMN,
    check_picture,
    line_look,
    publication_style,
    save_figure,
)
from fedcompass.report.figures.time_axis import show_time
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_accuracy"]

_SHARES = ("accuracy", "balanced_accuracy", "binary_accuracy", "dice")  # shown in percent


def draw_accuracy(
    runs: Sequence[RunRecord],
    path: Path,
    *,
    metric: str | None = None,
    width: float = COLUMN,
    start: Seconds = 0.0,
    end: Seconds | None = None,
) -> Path:
    """Draw how a metric changes; runs that differ only in their seed become one curve.

    Args:
        runs: at least one.
        path: a .pdf, .png or .svg file.
        metric: left out: the metric the runs' target is about.
        width: of the figure, in inches.
        start: show the time from here on.
        end: up to here; left out: all of it.

    Raises:
        MissingExtra: matplotlib is not installed.
        SettingsError: the metric was not measured, or the path is no picture's.
    """
    check_picture(path)
    name = metric or _common_metric(runs)
    with publication_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, 0.72 * min(width, 5.0)), layout="constrained")
        axes = figure.add_subplot()
        groups = seed_groups(runs)
        lengths = [_draw_curve(axes, group, name, n) for n, group in enumerate(groups)]
        show_time(axes, start, end if end is not None else max(lengths))
        _draw_target(axes, runs, name)
        _finish(axes, name, groups)
        return save_figure(figure, path)


def _common_metric(runs: Sequence[RunRecord]) -> str:
    metrics = sorted({run.target_metric for run in runs})
    if len(metrics) > 1:
        raise SettingsError(f"the runs are about {', '.join(metrics)}; choose one with --metric")
    return metrics[0]


def _draw_curve(axes: "Axes", group: SeedGroup, metric: str, number: int) -> Seconds:
    band = mean_curve(group.runs, metric)
    look = line_look(number)
    (line,) = axes.plot(band.times, band.mean, **look, label=group.label, zorder=3)
    line.set_drawstyle("steps-post")
    if band.spread is not None:
        low, high = band.mean - band.spread, band.mean + band.spread
        axes.fill_between(
            band.times,
            low,
            high,
            step="post",
            color=look["color"],
            alpha=0.18,
            linewidth=0,
            zorder=2,
        )
    return float(band.times[-1])


def _draw_target(axes: "Axes", runs: Sequence[RunRecord], metric: str) -> None:
    """A line where all runs had the same target."""
    targets = {run.target for run in runs if run.target_metric == metric}
    if len(targets) != 1 or (target := targets.pop()) is None:
        return
    text = f"target {target:.0%}" if metric in _SHARES else f"target {target:g}"
    axes.axhline(target, color="0.4", linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
    axes.annotate(
        text,
        (1, target),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=6.5,
        color="0.3",
    )


def _finish(axes: "Axes", metric: str, groups: Sequence[SeedGroup]) -> None:
    axes.set_ylabel(metric.replace("_", " "))
    if metric in _SHARES:
        axes.yaxis.set_major_formatter("{x:.0%}")
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0.0), min(high, 1.0))
    axes.grid(axis="y", color="0.92", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    note = seeds_note(groups)
    if len(groups) <= 3:
        axes.legend(loc="lower right" if metric != "loss" else "upper right", title=note)
    else:  # below the picture, where it hides nothing
        axes.figure.legend(loc="outside lower center", ncols=3, title=note)
