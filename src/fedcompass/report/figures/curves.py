"""A metric over time: one curve per strategy, a band over its seeds, the target line.

`report/page/groups.js` follows the same rule for means; a test compares the two number by number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcompass.errors import SettingsError
from fedcompass.report.figures.run_records import RunRecord, SeedGroup, seed_groups, seeds_note
from fedcompass.report.figures.style import Picture, line_look, show_time
from fedcompass.runs.curve import metrics_of
from fedcompass.settings.training import is_share
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Band", "draw_curves", "mean_curve"]


def draw_curves(runs: Sequence[RunRecord], picture: Picture, metric: str | None = None) -> None:
    """Draw how a metric changes; runs that differ only in their seed become one curve.

    Args:
        runs: at least one.
        picture: where to, and what part of time.
        metric: left out: the metric the runs' target is about.

    Raises:
        SettingsError: the metric was not measured.
    """
    name = metric or _common_metric(runs)
    with picture.axes() as axes:
        groups = seed_groups(runs)
        lengths = [_draw_curve(axes, group, name, n) for n, group in enumerate(groups)]
        show_time(axes, picture.start, max(lengths) if picture.end is None else picture.end)
        _draw_target(axes, runs, name)
        _finish(axes, name, groups)


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
        fill = {"step": "post", "color": look["color"], "alpha": 0.18, "linewidth": 0, "zorder": 2}
        axes.fill_between(band.times, low, high, **fill)
    return float(band.times[-1])


def _draw_target(axes: "Axes", runs: Sequence[RunRecord], metric: str) -> None:
    """A line where all runs had the same target."""
    targets = {run.target for run in runs if run.target_metric == metric}
    if len(targets) != 1 or (target := targets.pop()) is None:
        return
    text = f"target {target:.0%}" if is_share(metric) else f"target {target:g}"
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
    if is_share(metric):
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


@dataclass(frozen=True)
class Band:
    """Mean and standard deviation of some runs; between two times the earlier values hold."""

    times: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64] | None  # sample standard deviation; None for a single run
    runs: int


def mean_curve(runs: Sequence[RunRecord], metric: str) -> Band:
    """The mean of a metric over runs, at every time at which one of them was measured.

    A run's value holds until its next evaluation. The curve ends where the shortest run ends: no
    seed drops out of the mean on the way.

    Raises:
        SettingsError: a run did not measure the metric.
    """
    measured = [_measured(run, metric) for run in runs]
    end = min(run.end for run in runs)
    begin = max(times[0] for times, _ in measured)
    every = np.unique(np.concatenate([times for times, _ in measured] + [np.array([end])]))
    times = every[(every >= begin) & (every <= end)]
    values = np.stack([_at(times, *points) for points in measured])
    spread = values.std(axis=0, ddof=1) if len(runs) > 1 else None
    return Band(times, values.mean(axis=0), spread, len(runs))


def _measured(run: RunRecord, metric: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows = [row for row in run.curve if row.get(metric) is not None]  # null: it was not finite
    if not rows:
        known = metrics_of((run.curve or [{}])[0])
        raise SettingsError(
            f"{run.files.path} has no {metric!r}; measured were: {', '.join(known) or 'nothing'}"
        )
    times = np.array([row["time"] for row in rows], dtype=np.float64)
    return times, np.array([row[metric] for row in rows], dtype=np.float64)


def _at(
    times: NDArray[np.float64], known: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The latest value known at each time; of several at one time, the last."""
    return values[np.searchsorted(known, times, side="right") - 1]
