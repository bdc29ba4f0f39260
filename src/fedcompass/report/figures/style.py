"""How our figures look: column width, small sans text kept as text, colours everybody can tell."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcompass.errors import MissingExtra, SettingsError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "COLUMN",
    "COLOURS",
    "DASHES",
    "GREY",
    "PAGE",
    "SKY_BLUE",
    "bar_look",
    "check_picture",
    "ink_on",
    "line_look",
    "paler",
    "publication_style",
    "save_figure",
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


@contextmanager
def publication_style() -> Iterator[None]:
    """Draw inside with our style; matplotlib's settings are as before afterwards.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "drawing") from None
    with rc_context(_STYLE):
        yield


def check_picture(path: Path) -> Path:
    """The path, if its ending is one of a picture we draw.

    Raises:
        SettingsError: it is not.
    """
    if path.suffix.lower() not in _FORMATS:
        raise SettingsError(f"{path} has no ending for a figure; allowed: {', '.join(_FORMATS)}")
    return path


def save_figure(figure: "Figure", path: Path) -> Path:
    """Write a figure in the format its path ends with, without the time of day in it."""
    check_picture(path)
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    figure.savefig(path, dpi=300, metadata=undated.get(path.suffix.lower()))
    return path


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
