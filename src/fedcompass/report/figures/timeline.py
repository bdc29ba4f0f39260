"""The paper's overview figure for any run: one lane per client, bars for local rounds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedcompass.errors import SettingsError
from fedcompass.report.figures.run_records import RunRecord
from fedcompass.report.figures.style import (
    GREY,
    Picture,
    check_picture,
    ink_on,
    new_figure,
    paler,
    publication_style,
    save_figure,
    show_time,
    time_text,
)
from fedcompass.report.figures.timeline_data import Timeline
from fedcompass.report.figures.timeline_legend import (
    DOTTED,
    MERGED,
    OUTCOMES,
    SHORT_WAIT,
    WAITING,
    draw_legend,
    group_colours,
    outcome_mark,
)
from fedcompass.runs.tally import LocalRound, Span
from fedcompass.vocabulary import ClientId, Seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_timeline"]

_LANE = 0.26  # inches of height per client
_BAR = 0.66  # of a lane's height
_CHARACTER = 0.066  # inches that a character of a bar's label takes
_MOST_LANES = 60  # that get a name and labels
_MOST_MERGE_TIMES = 15
_LINE = 0.03  # inches that a vertical line needs to be seen apart from others
_HIGHEST = 40.0  # inches


def draw_timeline(runs: Sequence[RunRecord], picture: Picture) -> None:
    """Draw who trained when; several runs stand below each other on one time axis.

    Raises:
        JournalError: a run's journal cannot be read.
        SettingsError: there is nothing to draw.
    """
    check_picture(picture.path)
    start, width = picture.start, picture.width
    timelines = [run.timeline for run in runs]
    last = max(t.end for t in timelines) if picture.end is None else picture.end
    if not any(timeline.rounds for timeline in timelines) or last <= start:
        raise SettingsError(f"nobody trains from {start:g} s to {last:g} s; nothing to draw")
    with publication_style():
        figure, panels = _panels(timelines, width)
        for axes, run in zip(panels, runs, strict=True):
            _Lanes(axes, run.timeline, start, last, width).draw()
            if len(runs) > 1:
                axes.set_title(run.name, loc="left", pad=12)
        show_time(panels[-1], start, last)
        draw_legend(figure, timelines, start, last)
        save_figure(figure, picture.path)


def _panels(timelines: Sequence[Timeline], width: float) -> "tuple[Figure, Sequence[Axes]]":
    """An empty figure with one axes per run, as high as its lanes need."""
    lanes = [max(len(timeline.clients), 1) for timeline in timelines]
    height = min(sum(_LANE * n + 0.3 for n in lanes) + 0.75, _HIGHEST)
    figure = new_figure(width, height)
    ratios = [n + 1.0 for n in lanes]
    axes = figure.subplots(len(lanes), 1, sharex=True, squeeze=False, height_ratios=ratios)
    return figure, list(axes[:, 0])


class _Lanes:
    """One run's lanes on an axes."""

    def __init__(
        self, axes: "Axes", timeline: Timeline, start: Seconds, end: Seconds, width: float
    ) -> None:
        self._axes, self._timeline, self._start, self._end = axes, timeline, start, end
        self._lane = {client: lane for lane, client in enumerate(_in_order(timeline.clients))}
        self._colours = group_colours(timeline)
        self._inches = (width - 0.8) / (end - start)  # per second
        self._labelled = len(self._lane) <= _MOST_LANES

    def draw(self) -> None:
        """Bars, waits, marks, and the lines of merges and deadlines behind them."""
        shown = [work for work in self._timeline.rounds if self._is_shown(work)]
        self._draw_bars(shown)
        self._draw_waits()
        self._draw_marks(shown)
        self._draw_merges()
        self._draw_deadlines()
        axes, lanes = self._axes, len(self._lane)
        axes.set_ylim(lanes - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        if self._labelled:
            axes.set_yticks(range(lanes), [f"client {client}" for client in self._lane])
        else:
            axes.set_ylabel("client")

    def _is_shown(self, bar: LocalRound | Span) -> bool:
        return bar.start <= self._end and bar.end >= self._start

    def _is_wide(self, bar: LocalRound | Span) -> bool:
        """Whether an outline or a hatch leaves anything of a bar to be seen."""
        return (bar.end - bar.start) * self._inches > _LINE

    def _draw_bars(self, shown: Sequence[LocalRound]) -> None:
        """One collection per lane: a long run has thousands of bars."""
        by_lane: dict[int, list[LocalRound]] = {}
        for work in shown:
            by_lane.setdefault(self._lane[work.client], []).append(work)
        for lane, works in by_lane.items():
            self._axes.broken_barh(
                [(work.start, work.end - work.start) for work in works],
                (lane - _BAR / 2, _BAR),
                facecolors=[self._colour(work) for work in works],
                edgecolors="white",
                linewidths=[0.6 if self._is_wide(work) else 0.0 for work in works],
                zorder=2,
            )
        if self._labelled:
            for work in shown:
                self._write_steps(work, self._colour(work))

    def _colour(self, work: LocalRound) -> str:
        """Its group's colour; a paler one while it is under way at the end."""
        colour = self._colours[work.group]
        return paler(colour) if work.outcome == "under way" else colour

    def _write_steps(self, work: LocalRound, colour: str) -> None:
        """The number of steps, in full (Q = 20) where there is room for it."""
        left, right = max(work.start, self._start), min(work.end, self._end)
        room = (right - left) * self._inches / _CHARACTER
        fitting = [text for text in (f"Q = {work.steps}", str(work.steps)) if len(text) < room]
        if fitting:
            self._axes.text(
                (left + right) / 2,
                self._lane[work.client],
                fitting[0],
                ha="center",
                va="center_baseline",
                fontsize=6.5,
                color=ink_on(colour),
                zorder=5,
            )

    def _draw_waits(self) -> None:
        shown = [wait for wait in self._timeline.waits if self._is_shown(wait)]
        for look, wide in ((WAITING, True), (SHORT_WAIT, False)):
            by_lane: dict[int, list[tuple[Seconds, Seconds]]] = {}
            for wait in shown:
                if self._is_wide(wait) == wide:
                    bar = (wait.start, wait.end - wait.start)
                    by_lane.setdefault(self._lane[wait.client], []).append(bar)
            for lane, bars in by_lane.items():
                self._axes.broken_barh(bars, (lane - _BAR / 2, _BAR), **look, zorder=1.5)

    def _draw_marks(self, shown: Sequence[LocalRound]) -> None:
        """Where a round did not end as planned."""
        for outcome, marker in OUTCOMES.items():
            found = [work for work in shown if work.outcome == outcome and work.end <= self._end]
            if found:  # a line without points confuses the layout
                lanes = [self._lane[work.client] for work in found]
                self._axes.plot([work.end for work in found], lanes, **outcome_mark(marker))

    def _draw_merges(self) -> None:
        """A line behind the bars for each merge, a dot on the lane of everyone in it."""
        merges = [merge for merge in self._timeline.merges if self._start <= merge.at <= self._end]
        times = [merge.at for merge in merges]
        crowded = self._are_crowded(times)
        self._draw_lines(times, "0.2", linewidth=0.1 if crowded else 0.6, zorder=1)
        if crowded:
            return
        dots = [(merge.at, self._lane[c]) for merge in merges for c, _ in merge.contributions]
        if dots:
            self._axes.plot(*zip(*dots, strict=True), **MERGED, zorder=4)
        if len(merges) <= _MOST_MERGE_TIMES:
            self._write_times(times)

    def _write_times(self, times: Sequence[Seconds]) -> None:
        """The moments of merges above their lines, as far as there is room."""
        free = self._start
        for at in times:
            text = time_text(at, self._end)
            half = len(text) * _CHARACTER / 2 / self._inches
            if at - half >= free:
                self._axes.text(at, -0.62, text, ha="center", va="bottom", fontsize=6, color="0.2")
                free = at + half

    def _draw_deadlines(self) -> None:
        shown = [d for d in self._timeline.deadlines if self._start <= d.at <= self._end]
        times = [deadline.at for deadline in shown]
        colours = [self._colours.get(deadline.group, GREY) for deadline in shown]
        thickness = 0.2 if self._are_crowded(times) else 1.0
        self._draw_lines(times, colours, linewidth=thickness, linestyle=DOTTED, zorder=1.2)

    def _draw_lines(self, times: Sequence[Seconds], colours: Any, **style: Any) -> None:
        """From the bottom to the top, in one collection."""
        across = self._axes.get_xaxis_transform()
        self._axes.vlines(times, 0, 1, colours, transform=across, **style)

    def _are_crowded(self, times: Sequence[Seconds]) -> bool:
        return len(times) * _LINE > (self._end - self._start) * self._inches


def _in_order(clients: Sequence[ClientId]) -> list[ClientId]:
    """By number where they are numbers, as in a simulation, else in order of joining."""
    return sorted(clients, key=int) if all(c.isdecimal() for c in clients) else list(clients)
