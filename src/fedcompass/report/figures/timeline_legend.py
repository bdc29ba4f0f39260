"""What the colours, lines and marks of a timeline mean."""

from collections.abc import Sequence
from math import ceil
from typing import Any

from fedcompass.report.figures.group_colours import group_colours
from fedcompass.report.figures.style import COLOURS, GREY
from fedcompass.report.figures.timeline_data import Timeline
from fedcompass.report.figures.timeline_marks import DOTTED, MERGED, OUTCOMES, WAITING, outcome_mark
from fedcompass.runs.tally import Outcome
from fedcompass.vocabulary import GroupId, Seconds

__all__ = ["draw_legend"]


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
    for outcome, (marker, label) in OUTCOMES.items():
        if outcome in outcomes:
            handles.append(Line2D([], [], **outcome_mark(marker), label=label))
    return handles
