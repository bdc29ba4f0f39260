"""A time axis people can read: seconds, or minutes and seconds from two minutes on."""

from typing import Any

from fedcompass.vocabulary import Seconds

__all__ = ["show_time", "time_text"]

_STEPS = (5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 14400, 36000, 86400)
_MOST_TICKS = 9
_PLAIN_SECONDS = 120.0  # up to here plain seconds are easier to read
_HOURS = 2 * 3600.0  # from here on hours and minutes


def show_time(axes: Any, start: Seconds, end: Seconds) -> None:
    """Let an axes' x axis go from start to end, with ticks at round times."""
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    axes.set_xlim(start, end if end > start else start + 1.0)
    if end < _PLAIN_SECONDS:
        axes.set_xlabel("time (s)")
        return
    spacing = next((s for s in _STEPS if (end - start) / s <= _MOST_TICKS), _STEPS[-1])
    axes.xaxis.set_major_locator(MultipleLocator(spacing))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: time_text(at, end)))
    axes.set_xlabel("time (h:min)" if end >= _HOURS else "time (min:s)")


def time_text(at: Seconds, end: Seconds) -> str:
    """A moment as the axis of a run that ends at `end` writes it."""
    if end < _PLAIN_SECONDS:
        return f"{at:.1f}"
    big, small = divmod(round(at / 60 if end >= _HOURS else at), 60)
    return f"{big:02d}:{small:02d}"
