"""Tables as plain aligned text: the same in a file, in a pipe and in a terminal."""

from collections.abc import Iterable, Sequence

__all__ = ["plain_table"]


def plain_table(header: Sequence[str], rows: Iterable[Sequence[str]], left: Iterable[int]) -> str:
    """The rows below their header, two spaces apart; nothing is cut or wrapped.

    Args:
        header: a name for each column.
        rows: as many cells each.
        left: the columns of text, which start flush; numbers end flush.
    """
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = set(left)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in text else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
