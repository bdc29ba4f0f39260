"""Tables, metrics and lengths of time as plain text: the same in a file, a pipe and a terminal."""

import textwrap
from collections.abc import Iterable, Sequence
from math import isnan

from fedcompass.vocabulary import Seconds

__all__ = ["in_words", "metric_text", "plain_table", "wrapped"]

_WIDTH = 78  # of text that is wrapped


def plain_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], left: Iterable[int]
) -> str:
    """The rows below their header, two spaces apart; nothing is cut or wrapped.

    Args:
        header: a name for each column.
        rows: as many cells each.
        left: the columns of text, which start flush; numbers end flush.
    """
    lines = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = set(left)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in text else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def wrapped(text: str, indent: str = "") -> str:
    """Text in lines that fit 80 columns."""
    return textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def metric_text(metric: str, value: float, digits: int = 1) -> str:
    """The value, a share with so many digits of its percentage; - for what is not a number."""
    from fedcompass.settings.training import is_share

    if isnan(value):
        return "-"
    return f"{value:.{digits}%}" if is_share(metric) else f"{value:.4g}"


def in_words(seconds: Seconds) -> str:
    """A length of time in at most two units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole < 600 else f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
