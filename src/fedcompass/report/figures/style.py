"""How our figures look: widths, small sans text kept as text, colour-blind-safe colours, times."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcompass.errors import MissingExtra, SettingsError
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLUMN",
    "COLOURS",
    "DASHES",
    "GREY",
    "PAGE",
    "Picture",
    "SKY_BLUE",
    "bar_look",
    "check_picture",
    "ink_on",
    "line_look",
    "new_figure",
    "paler",
    "publication_style",
    "save_figure",
    "show_time",
    "time_text",
]

COLUMN = 3.5
"""Inches: the width of a column in a two-column paper."""

PAGE = 7.0
"""Inches: the width of a page's text."""

# Okabe and Ito's palette, told apart with any kind of colour vision; its yellow, which is too pale
# on white, is darker. The page's --series-1 to --series-7 are the same; a test compares them.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A7F00")

# In widths of the line: solid, dashed, dotted, dash-dotted; as in the page. Seven colours and
# four dashes have no common divisor, so the first 28 pairs differ.
DASHES = ((), (3.7, 1.6), (1.0, 1.65), (6.4, 1.6, 1.0, 1.6))
SKY_BLUE = "#56B4E9"
GREY = "#BBBBBB"

_FORMATS = (".pdf", ".png", ".svg")
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "hatch.linewidth": 0.5,
    "hatch.color": "0.55",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # TrueType, embedded: text can be searched, and publishers accept it
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fedcompass",  # the same figure, the same bytes
}


_STEPS = (5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 14400, 36000, 86400)
_MOST_TICKS = 9
_PLAIN_SECONDS = 120.0  # up to here plain seconds are easier to read
_HOURS = 2 * 3600.0  # from here on hours and minutes


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that is asked for: a .pdf, .png or .svg file, its width, the part of time it shows.

    width: in inches.
    end: of the time shown; None: the run's.
    """

    path: Path
    width: float = COLUMN
    start: Seconds = 0.0
    end: Seconds | None = None

    @contextmanager
    def axes(self) -> "Iterator[Axes]":
        """An empty axes of a column's shape in our style; what is drawn inside is written."""
        check_picture(self.path)
        with publication_style():
            figure = new_figure(self.width, 0.72 * min(self.width, 5.0))
            yield figure.add_subplot()
            save_figure(figure, self.path)


@contextmanager
def publication_style() -> Iterator[None]:
    """Draw inside with our style; matplotlib's settings are as before afterwards.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        raise _missing() from None
    with rc_context(_STYLE):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise _missing() from None
    return Figure(figsize=(width, height), layout="constrained")


def _missing() -> MissingExtra:
    return MissingExtra("matplotlib", "plot", "drawing")


def check_picture(path: Path) -> None:
    """Refuse a path whose ending is not one of a picture we draw.

    Raises:
        SettingsError: listing the endings.
    """
    if path.suffix.lower() not in _FORMATS:
        raise SettingsError(f"{path} has no ending for a figure; allowed: {', '.join(_FORMATS)}")


def save_figure(figure: "Figure", path: Path, dpi: int = 300) -> None:
    """Write a figure in the format its path ends with, without the time of day in it.

    Missing folders are made.
    """
    check_picture(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    figure.savefig(path, dpi=dpi, metadata=undated.get(path.suffix.lower()))


def line_look(number: int) -> dict[str, Any]:
    """Colour and dashes of the n-th line; the first 28 differ."""
    dashes = DASHES[number % len(DASHES)]
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": (0, dashes) if dashes else "-"}


def bar_look(number: int) -> dict[str, Any]:
    """Fill and edge of the n-th series of bars: the second seven are pale with a dark edge."""
    colour = COLOURS[number % len(COLOURS)]
    if number // len(COLOURS) % 2 == 0:
        return {"color": colour}
    return {"facecolor": paler(colour), "edgecolor": colour, "linewidth": 0.8}


def ink_on(colour: str) -> str:
    """Black or white, whichever stands out more from a colour (relative luminance, as in WCAG)."""
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "white"


def paler(colour: str) -> str:
    """A colour mixed with white."""
    channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(0.45 * c + 0.55 * 255):02X}" for c in channels)


def show_time(axes: "Axes", start: Seconds, end: Seconds) -> None:
    """Set an axes' x axis from start to end, with ticks at round times."""
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
