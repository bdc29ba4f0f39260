"""Tables of text as CSV, Markdown and LaTeX; whatever a label contains, it stays in its cell."""

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from io import StringIO

__all__ = ["TextTable", "csv_table", "latex_table", "markdown_table", "markdown_text"]

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


def csv_table(table: TextTable) -> str:
    """Comma-separated values with a header; quoted where they must be."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.header, *table.rows])
    return text.getvalue().rstrip("\n")


def markdown_table(table: TextTable) -> str:
    """A pipe table below its title; columns of labels start flush, the others end flush."""
    rule = [":--" if column in table.left else "--:" for column in range(len(table.header))]
    lines = [_markdown_line(table.header), f"| {' | '.join(rule)} |"]
    lines += map(_markdown_line, table.rows)
    return "\n".join([f"**{markdown_text(table.title)}**\n", *lines] if table.title else lines)


def markdown_text(text: str) -> str:
    """A text in one line that Markdown shows as it is."""
    return _flat(text).translate(_MARKDOWN)


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(markdown_text(cell) for cell in cells)} |"


def latex_table(table: TextTable) -> str:
    """A tabular with booktabs' rules; the title is a comment."""
    columns = "".join("l" if column in table.left else "r" for column in range(len(table.header)))
    lines = [
        rf"\begin{{tabular}}{{{columns}}}  % \usepackage{{booktabs}}",
        r"\toprule",
        _latex_line(table.header),
        r"\midrule",
        *map(_latex_line, table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([f"% {_flat(table.title)}", *lines] if table.title else lines)


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(_flat(cell).translate(_LATEX) for cell in cells) + r" \\"


def _flat(text: str) -> str:
    """A text in one line."""
    return " ".join(text.split())
