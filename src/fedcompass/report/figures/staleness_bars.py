"""How stale the merged updates are: a share for each staleness, one bar per strategy."""

from collections import Counter
from collections.abc import Sequence
from math import inf
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from fedcompass.errors import SettingsError
from fedcompass.report.figures.run_records import RunRecord, SeedGroup, seed_groups, seeds_note
from fedcompass.report.figures.style import Picture, bar_look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_staleness", "staleness_bins"]

_MOST_PLAIN = 8  # up to this staleness every value has a bar of its own

Bin = tuple[int, int]  # first and last staleness


def draw_staleness(runs: Sequence[RunRecord], picture: Picture) -> None:
    """Draw the staleness of merged updates; over several seeds the mean and standard deviation.

    Raises:
        JournalError: a run's journal cannot be read.
        SettingsError: nothing was merged.
    """
    groups = seed_groups(runs)
    counts = [[_counts(run, picture) for run in group.runs] for group in groups]
    most = max((u for runs in counts for count in runs for u in count), default=None)
    if most is None:
        raise SettingsError("nothing was merged; there is no staleness to draw")
    bins = staleness_bins(most)
    with picture.axes() as axes:
        for number, (group, counted) in enumerate(zip(groups, counts, strict=True)):
            _draw_bars(axes, group, counted, bins, number, len(groups))
        axes.set_xticks(range(len(bins)), [_name(b) for b in bins])
        axes.set(xlabel="staleness (global updates missed)", ylabel="share of updates")
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.grid(axis="y", color="0.92", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_ylim(bottom=0.0)
        axes.legend(loc="upper right", title=seeds_note(groups))


def staleness_bins(most: int) -> list[Bin]:
    """Each value on its own; where there are many, bins of doubling width: 0, 1, 2, 3–4, 5–8."""
    if most <= _MOST_PLAIN:
        return [(u, u) for u in range(most + 1)]
    bins, last = [(0, 0), (1, 1)], 1
    while last < most:
        bins.append((last + 1, 2 * last))
        last *= 2
    return bins


def _name(values: Bin) -> str:
    first, last = values
    return str(first) if first == last else f"{first}–{last}"


def _counts(run: RunRecord, picture: Picture) -> Counter[int]:
    return Counter(
        staleness
        for merge in run.timeline.merges
        if picture.start <= merge.at <= (inf if picture.end is None else picture.end)
        for _, staleness in merge.contributions
    )


def _draw_bars(
    axes: "Axes",
    group: SeedGroup,
    counts: Sequence[Counter[int]],
    bins: Sequence[Bin],
    number: int,
    groups: int,
) -> None:
    counts = [count for count in counts if count]
    if not counts:
        return
    shares = [[_share(count, values) for count in counts] for values in bins]
    width = 0.8 / groups
    axes.bar(
        [place + (number + 0.5) * width - 0.4 for place in range(len(bins))],
        [fmean(share) for share in shares],
        width=width,
        yerr=[stdev(share) for share in shares] if len(counts) > 1 else None,
        error_kw={"elinewidth": 0.6, "ecolor": "0.35"},
        **bar_look(number),
        label=f"{group.label}, mean {_mean(counts):.2f}",
    )


def _share(count: Counter[int], values: Bin) -> float:
    first, last = values
    return sum(n for u, n in count.items() if first <= u <= last) / count.total()


def _mean(counts: Sequence[Counter[int]]) -> float:
    """Mean over the seeds of the mean over the updates."""
    return fmean(sum(u * n for u, n in count.items()) / count.total() for count in counts)
