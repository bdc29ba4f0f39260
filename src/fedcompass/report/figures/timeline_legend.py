"""How a timeline's groups, waits, merges and marks look, in the lanes and in the legend."""

from collections.abc import Sequence
from math import ceil, inf
from typing import Any

from fedcompass.report.figures.style import COLOURS, GREY, SKY_BLUE
from fedcompass.report.figures.timeline_data import Timeline
from fedcompass.runs.tally import Outcome
from fedcompass.vocabulary import GroupId, Seconds

__all__ = [
    "DOTTED",
    "MERGED",
    "OUTCOMES",
    "SHORT_WAIT",
    "WAITING",
    "draw_legend",
    "group_colours",
    "outcome_mark",
]

OUTCOMES: dict[Outcome, str] = {"late": "D", "refused": "X", "lost": "x"}
WAITING: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": "0.75",
    "hatch": "//////",
    "linewidth": 0.4,
}
SHORT_WAIT: dict[str, Any] = {"facecolor": "0.9", "linewidth": 0.0}  # no room for a hatch
DOTTED = (0, (1.0, 1.3))
MERGED: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 2.6,
    "markerfacecolor": "0.15",
    "markeredgecolor": "white",
    "markeredgewidth": 0.4,
}


def outcome_mark(marker: str) -> dict[str, Any]:
    """How the end of a round that did not go as planned is drawn."""
    return {
        "linestyle": "none",
        "marker": marker,
        "markersize": 5,
        "markerfacecolor": "white",
        "markeredgecolor": "black",
        "markeredgewidth": 0.9,
        "zorder": 6,
    }


def group_colours(timeline: Timeline) -> dict[GroupId | None, str]:
    """A colour for each group, in order of opening: the one that was last seen longest ago.

    Under None: rounds outside groups, grey beside groups, sky blue where there are none.
    """
    last_seen: dict[GroupId, Seconds] = {}
    for work in timeline.rounds:
        if work.group is not None:
            last_seen[work.group] = max(work.end, last_seen.get(work.group, -inf))
    busy_until = dict.fromkeys(COLOURS, -inf)
    colours: dict[GroupId | None, str] = {None: GREY if last_seen else SKY_BLUE}
    for group in sorted(last_seen):
        colours[group] = min(COLOURS, key=busy_until.__getitem__)
        busy_until[colours[group]] = last_seen[group]
    return colours


def draw_legend(figure: Any, timelines: Sequence[Timeline], start: Seconds, end: Seconds) -> None:
    """What is in the picture, below it."""
    rounds = [
        work for t in timelines for work in t.rounds if work.start <= end and work.end >= start
    ]
    handles = _bar_handles(timelines, {work.group for work in rounds})
    handles += _line_handles(timelines, {work.outcome for work in rounds})
    rows = ceil(len(handles) / max(3, figure.get_figwidth() / 0.85))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=ceil(len(handles) / rows),
        handlelength=1.4,
        columnspacing=1.2,
    )


def _bar_handles(timelines: Sequence[Timeline], shown: set[GroupId | None]) -> list[Any]:
    from matplotlib.patches import Patch

    colours = [group_colours(timeline) for timeline in timelines]
    handles = [
        Patch(color=colour, label="warm-up" if colour == GREY else "local round (Q steps)")
        for colour in dict.fromkeys(table[None] for table in colours)
        if None in shown
    ]
    groups = sorted(group for group in shown if group is not None)
    by_group = [{table[group] for table in colours if group in table} for group in groups]
    if len(groups) <= len(COLOURS) and all(len(found) == 1 for found in by_group):
        named = zip(groups, by_group, strict=True)
        handles += [Patch(color=found.pop(), label=f"group {group}") for group, found in named]
    else:
        handles.append(Patch(color=COLOURS[0], label="local round, coloured by group"))
    if any(timeline.waits for timeline in timelines):
        handles.append(Patch(**WAITING, label="waiting"))
    return handles


def _line_handles(timelines: Sequence[Timeline], outcomes: set[Outcome]) -> list[Any]:
    from matplotlib.lines import Line2D

    dot = {key: value for key, value in MERGED.items() if key != "linestyle"}
    handles = [Line2D([], [], color="0.2", linewidth=0.6, **dot, label="merge")]
    if any(t.deadlines for t in timelines):
        handles.append(Line2D([], [], color="0.3", linestyle=DOTTED, label="deadline"))
    for outcome, marker in OUTCOMES.items():
        if outcome in outcomes:
            handles.append(Line2D([], [], **outcome_mark(marker), label=outcome))
    return handles
