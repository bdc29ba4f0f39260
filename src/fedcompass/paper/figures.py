"""The paper's figures, drawn from stored runs or from the schedule alone; they need `plot`.

As in `report/figures`, whatever draws raises `MissingExtra` without matplotlib, and `SettingsError`
for a path whose ending is no picture's.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, pstdev
from typing import TYPE_CHECKING, Any

from fedcompass.errors import SettingsError
from fedcompass.paper.cells import Cell
from fedcompass.paper.groups import SETTLING, FleetGroups
from fedcompass.paper.stored_runs import EntryRuns, StoredRun, value_at
from fedcompass.paper.timelines import TIMELINES, UNTIL, clock, schedule, tasks
from fedcompass.report.figures.style import new_figure, save_figure
from fedcompass.scheduling.commands import StartTraining
from fedcompass.simulation.timetable import Merge

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "DPI",
    "draw_curves",
    "draw_groups",
    "draw_timeline",
    "legend_below",
    "named_handles",
]

COLOURS = {
    "fedavg": "#7f7f7f",
    "fedavgm": "#bcbd22",
    "fedasync": "#ff7f0e",
    "fedbuff": "#2ca02c",
    "fedat": "#9467bd",
    "fedcompass": "#d62728",
    "fedcompass+m": "#1f77b4",
    "fedcompass+n": "#17becf",
}
_GROUPS = ("#c8c8c8", "#7da7d9", "#f2a65a", "#8cc084", "#c792c7", "#e3c567", "#d98880")
DPI = 110
"""Of the paper's figures, which are large."""

_POINTS = 120  # of a drawn curve
_CURVES_NOTE = (
    "mean ± one standard deviation over seeds, up to the accuracy horizon; a single run to its end"
)


def draw_curves(runs: EntryRuns, path: Path) -> None:
    """Mean accuracy over time, one line per row with a band of one standard deviation over seeds.

    Up to the accuracy horizon: later some runs have ended, and a mean would be of the others. A
    single run is drawn to its end.

    Raises:
        SettingsError: there is no run to draw.
    """
    entry = runs.entry
    drawn = {
        cell: {row: found for row in entry.rows if (found := runs.at(cell, row))}
        for cell in runs.cells
    }
    drawn = {cell: rows for cell, rows in drawn.items() if rows}
    if not drawn:
        raise SettingsError(
            f"{entry.name} has no results yet; run: fedcompass paper run {entry.name}"
        )
    blocks = list(dict.fromkeys(cell.block for cell in drawn))
    speeds = list(dict.fromkeys(cell.speed for cell in drawn))
    figure = new_figure(4.2 * len(speeds), 3.2 * len(blocks) + 0.6)
    axes = figure.subplots(len(blocks), len(speeds), squeeze=False)
    for one in axes.flat:
        one.set_visible(False)  # a cell without runs
    for cell, rows in drawn.items():
        _draw_cell(axes[blocks.index(cell.block)][speeds.index(cell.speed)], cell, rows)
    handles = {name: handle for one in axes.flat for name, handle in named_handles(one).items()}
    legend_below(figure, handles, 4 if axes.shape[1] > 1 else 3)  # as many as it is wide
    figure.suptitle(_CURVES_NOTE, fontsize=8, color="0.35")
    save_figure(figure, path, DPI)


def _draw_cell(axes: "Axes", cell: Cell, rows: dict[str, list[StoredRun]]) -> None:
    axes.set_visible(True)
    for row, runs in rows.items():
        ends = _drawn_until(runs)
        times = [ends * k / _POINTS for k in range(_POINTS + 1)]
        values = [[value_at(run.curve, time) for run in runs] for time in times]
        middle = [100 * mean(some) for some in values]
        spread = [100 * pstdev(some) for some in values]
        (line,) = axes.plot(
            times, middle, label=row, color=COLOURS[row.partition("@")[0]], linewidth=1.3
        )
        low = [m - s for m, s in zip(middle, spread, strict=True)]
        high = [m + s for m, s in zip(middle, spread, strict=True)]
        axes.fill_between(times, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
    counts = sorted({len(runs) for runs in rows.values()})
    seeds = "-".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    axes.axhline(100 * cell.settings.target, color="0.6", linewidth=0.8, linestyle=":")
    ends_of_all = [_drawn_until(runs) for runs in rows.values()]
    axes.set_xlim(0, min(max(ends_of_all), 2.5 * min(ends_of_all)))
    axes.set_title(f"{cell} ({seeds} seed{'' if seeds == '1' else 's'})", fontsize=9)
    axes.set_xlabel("virtual seconds", fontsize=8)
    axes.set_ylabel(f"{cell.settings.metric.replace('_', ' ')} (%)", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _drawn_until(runs: list[StoredRun]) -> float:
    (first, *others) = runs
    return min(run.run_at_least for run in runs) if others else first.curve[-1][0]


def draw_timeline(name: str, path: Path, title: str = "") -> None:
    """One bar per task with its steps, coloured by group; a gap is a client that waits."""
    figure = new_figure(11.0, 3.4)
    axes = figure.add_subplot()
    drawn = tasks(name)
    for task, ends in drawn:
        _draw_task(axes, task, min(ends, UNTIL))
    for entry in schedule(name):
        if isinstance(entry, Merge) and entry.group:
            text = f"group {entry.group}\nmerges {clock(entry.at)}"
            axes.annotate(text, (entry.at, -0.55), fontsize=6.5, ha="center", va="bottom")
            axes.axvline(entry.at, color="0.75", linewidth=0.7, linestyle=":", zorder=0)
    clients = sorted({task.client for task, _ in drawn})
    axes.set_yticks([-int(client) for client in clients], [f"client {c}" for c in clients])
    axes.set(xlabel="minutes", xlim=(0, UNTIL), ylim=(-len(clients) - 0.6, 0.1))
    changed = TIMELINES[name]
    pace = "" if changed is None else f" (client 3: {1 / changed:.3g} steps/min from round 2 on)"
    axes.set_title(f"{title}{pace}", fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    save_figure(figure, path, DPI)


def _draw_task(axes: "Axes", task: StartTraining, ends: float) -> None:
    row, colour = -int(task.client), _GROUPS[(task.group or 0) % len(_GROUPS)]
    width = ends - task.at
    axes.barh(row, width, left=task.at, height=0.62, color=colour, edgecolor="white")
    axes.text((task.at + ends) / 2, row, f"{task.steps}", ha="center", va="center", fontsize=7)


def draw_groups(fleets: Sequence[FleetGroups], path: Path) -> None:
    """The mean number of groups over time beside the bound, and the shares of time above it."""
    figure = new_figure(10.5, 3.9)
    over_time, shares = figure.subplots(1, 2)
    noise = max(fleet.jitter for fleet in fleets)
    colours = ("#1f77b4", "#2ca02c", "#d62728")
    for colour, clients in zip(colours, sorted({f.clients for f in fleets}), strict=False):
        own = [f for f in fleets if f.clients == clients and f.jitter == noise]
        rounds = range(1, len(own[0].by_round) + 1)
        groups = [mean(fleet.by_round[k - 1] for fleet in own) for k in rounds]
        over_time.plot(rounds, groups, color=colour, label=f"m = {clients}")
        over_time.axhline(mean(f.bound for f in own), color=colour, linestyle="--", linewidth=0.9)
    over_time.axvspan(0, SETTLING, color="0.93", zorder=0)
    over_time.set(xlabel="mean rounds", ylabel="arrival groups, mean over fleets", ylim=(0, None))
    over_time.set_title("number of groups; dashed: mean of ⌈log_Q μ⌉", fontsize=10)
    over_time.legend(frameon=False, fontsize=8)
    for jitter, colour in zip(sorted({f.jitter for f in fleets}), colours, strict=False):
        above = sorted(fleet.share_above for fleet in fleets if fleet.jitter == jitter)
        fraction = [(k + 1) / len(above) for k in range(len(above))]
        shares.plot(above, fraction, color=colour, label=f"noise {jitter:.0%} per round")
    shares.set(xlabel="share of time with more groups than the bound", ylabel="share of fleets")
    shares.set(xlim=(-0.01, 1.01), ylim=(0, 1.02))
    count = len({fleet.seed for fleet in fleets})
    shares.set_title(f"{count:,} exponential fleets, after settling", fontsize=10)
    shares.legend(frameon=False, fontsize=8, loc="lower right")
    for axes in (over_time, shares):
        axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path, DPI)


def named_handles(axes: "Axes") -> dict[str, Any]:
    """What a panel's legend would show."""
    handles, names = axes.get_legend_handles_labels()
    return dict(zip(names, handles, strict=True))


def legend_below(figure: "Figure", handles: Mapping[str, Any], columns: int) -> None:
    """One legend for all panels: a handle for each name."""
    look = {"ncols": columns, "frameon": False, "fontsize": 9}
    figure.legend(handles.values(), handles, loc="outside lower center", **look)
