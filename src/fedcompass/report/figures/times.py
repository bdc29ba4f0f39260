"""Strategies compared: the time each seed took to the target, and the share of time spent waiting.

A seed that missed the target is a hollow mark at the horizon and counts there in the mean, so that
failing never looks fast.
"""

from pathlib import Path
from statistics import fmean

from fedcompass.errors import SettingsError
from fedcompass.number_text import metric_text
from fedcompass.own_code import short
from fedcompass.report.figures.style import (
    COLOURS,
    new_figure,
    paler,
    publication_style,
    save_figure,
)
from fedcompass.settings.training import falls
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.results import Results

__all__ = ["draw_times"]


def draw_times(results: Results, path: Path, width: float) -> None:
    """Draw one row for each label of the axis in which the results differ.

    Args:
        results: all of one target and one horizon.
        path: where to write; its ending says the format.
        width: in inches.

    Raises:
        SettingsError: the results differ in several axes, or no time to a common target is known.
    """
    several = [axis for axis, labels in results.axes.items() if len(labels) > 1]
    if len(several) > 1:
        raise SettingsError(
            f"these results differ in {', '.join(several)}; narrow them to one axis with --where"
        )
    axis = (several or list(results.axes))[0]
    rows: dict[str, list[Record]] = {}
    for run in results.runs:
        if run.record is not None and run.record.is_done:
            rows.setdefault(short(run.labels[axis]), []).append(run.record)
    targets = {
        (r.experiment.get("target"), short(r.experiment["evaluation"]["target_metric"]), r.horizon)
        for records in rows.values()
        for r in records
    }
    if len(targets) != 1 or (found := targets.pop())[0] is None:
        raise SettingsError(
            "times need runs that are done and have one target and one horizon"
            + ("; none of these is done" if not rows else "")
        )
    target, metric, horizon = found
    with publication_style():
        figure = new_figure(width, 0.7 + 0.36 * len(rows))
        times, waits = figure.subplots(1, 2, sharey=True, width_ratios=(2, 1))
        for place, records in enumerate(rows.values()):
            colour = COLOURS[place % len(COLOURS)]
            taken = [record.numbers.time_to_target for record in records]
            reached = [time for time in taken if time is not None]
            mean = fmean([*reached, *[horizon] * (len(taken) - len(reached))])
            waiting = fmean(record.numbers.idle_share for record in records)
            times.barh(place, mean, height=0.62, color=paler(colour), zorder=2)
            times.plot(reached, [place] * len(reached), "o", color=colour, markersize=2.5, zorder=3)
            if len(reached) < len(taken):
                hollow = {"markerfacecolor": "white", "clip_on": False}
                times.plot(horizon, place, "o", color=colour, markersize=4, zorder=3, **hollow)
            waits.barh(place, waiting, height=0.62, color=paler(colour))
            least = "≥ " if len(reached) < len(taken) else ""  # a miss takes longer than it counts
            counted = f"{least}{mean:.0f} s, {len(reached)} of {len(taken)} reached"
            for axes, end, text in ((times, horizon, counted), (waits, waiting, f"{waiting:.0%}")):
                axes.annotate(text, (end, place), (6, 0), textcoords="offset points", va="center")
        reach = "at or below" if falls(metric) else "at or above"
        goal = f"{metric} {reach} {metric_text(metric, target, 0)}"
        times.set(title=f"Time to {goal}: every seed, and the mean (bar)", xlim=(0, horizon))
        times.set_xlabel(f"virtual time (s); ○ missed it, counted as {horizon:g} s")
        times.axvline(horizon, color="0.5", linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
        times.set_yticks(range(len(rows)), list(rows))
        waits.set(title="Share of time spent waiting", xlim=(0, 1))
        waits.xaxis.set_major_formatter("{x:.0%}")
        for axes in (times, waits):
            axes.set_ylim(len(rows) - 0.5, -0.5)
            axes.tick_params(axis="y", length=0)
        save_figure(figure, path)
