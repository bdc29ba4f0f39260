"""Tables of text as CSV, Markdown and LaTeX; whatever a label contains, it stays in its cell."""

import csv
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from io import StringIO

__all__ = ["TextTable", "csv_table", "latex_table", "latex_text", "markdown_table", "markdown_text"]

_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>#|~$"})
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "±": r"$\pm$",
        "×": r"$\times$",
        "·": r"$\cdot$",
        "λ": r"$\lambda$",
        "…": r"\dots{}",
    }
)


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of text; `left` are the columns of labels, `meaning` is for whoever reads it."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Collection[int] = (0,)
    meaning: str = ""


def csv_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Comma-separated values with a header; quoted where they must be."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def markdown_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Collection[int] = (0,),
    *,
    title: str = "",
) -> str:
    """A pipe table; the columns in `left` start flush, the others end flush."""
    rule = [":--" if column in left else "--:" for column in range(len(header))]
    lines = [_markdown_line(header), f"| {' | '.join(rule)} |", *map(_markdown_line, rows)]
    return "\n".join([f"**{markdown_text(title)}**\n", *lines] if title else lines)


def markdown_text(text: str) -> str:
    """A text in one line that Markdown shows as it is."""
    return _flat(text).translate(_MARKDOWN)


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(markdown_text(cell) for cell in cells)} |"


def latex_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Collection[int] = (0,),
    *,
    title: str = "",
) -> str:
    """A tabular with booktabs' rules; the title is a comment."""
    columns = "".join("l" if column in left else "r" for column in range(len(header)))
    lines = [
        rf"\begin{{tabular}}{{{columns}}}  % \usepackage{{booktabs}}",
        r"\toprule",
        _latex_line(header),
        r"\midrule",
        *map(_latex_line, rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([f"% {_flat(title)}", *lines] if title else lines)


def latex_text(text: str) -> str:
    """A text in one line that LaTeX sets as it is."""
    return _flat(text).translate(_LATEX)


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(latex_text(cell) for cell in cells) + r" \\"


def _flat(text: str) -> str:
    """A text in one line."""
    return " ".join(text.split())
