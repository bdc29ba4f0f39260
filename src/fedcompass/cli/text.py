"""Tables and lengths of time as plain text: the same in a file, a pipe and a terminal."""

import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from fedcompass.vocabulary import Seconds

__all__ = ["fitted_table", "in_words", "plain_table", "wrapped"]

_WIDTH = 78  # of text that is wrapped
_SCREEN = 80  # columns


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


def fitted_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], left: Iterable[int]
) -> str:
    """A table that fits 80 columns, whole; one that is wider is taken apart.

    All columns of text but the last then stand above their rows, and what is still too wide goes on
    below: as a table, or one column as a line.
    """
    lines, texts = [[str(cell) for cell in row] for row in rows], list(left)
    whole = plain_table(header, lines, texts)
    if _fits(whole) or not texts:
        return whole
    *outer, label = texts
    numbers = [column for column in range(len(header)) if column not in texts]
    parts = []
    for labels, block in groupby(lines, key=lambda line: [line[column] for column in outer]):
        above = [f"{header[column]}={value}" for column, value in zip(outer, labels, strict=True)]
        heading = [wrapped(", ".join(above))] if above else []
        parts.append("\n".join([*heading, *_taken_apart(header, list(block), label, numbers)]))
    return "\n\n".join(parts)


def _taken_apart(
    header: Sequence[str], rows: list[list[str]], label: int, numbers: Sequence[int]
) -> list[str]:
    """The label and as many other columns as fit, then the label and the next ones."""
    chunks: list[list[int]] = [[]]
    for column in numbers:
        if chunks[-1] and not _fits(_of_columns(header, rows, [label, *chunks[-1], column])):
            chunks.append([])
        chunks[-1].append(column)
    first, *others = chunks
    named = not any(row[label][:1].isdigit() for row in rows)  # "20 88%" would be hard to read
    parts = [_of_columns(header, rows, [label, *first])]
    for chunk in others:
        if len(chunk) == 1 and named:
            cells = (f"{row[label]} {row[chunk[0]]}" for row in rows)
            parts.append(wrapped(f"{header[chunk[0]]}: {', '.join(cells)}"))
        else:
            parts += ["further columns:", _of_columns(header, rows, [label, *chunk])]
    return parts


def _of_columns(header: Sequence[str], rows: list[list[str]], columns: Sequence[int]) -> str:
    some = itemgetter(*columns)
    return plain_table(some(header), [some(row) for row in rows], left=[0])


def _fits(text: str) -> bool:
    return all(len(line) <= _SCREEN for line in text.splitlines())


def wrapped(text: str, indent: str = "") -> str:
    """Text in lines that fit 80 columns."""
    return textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def in_words(seconds: Seconds) -> str:
    """A length of time in at most two units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole < 600 else f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
