"""Our tables written into a page of the documentation, between its markers.

A marker is a line `<!-- paper: table-1 -->`; what stands between it and the next line
`<!-- end -->` is replaced by the table as it is in the results now.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from fedcompass.errors import SettingsError
from fedcompass.paper.by_groups import by_groups_grids
from fedcompass.paper.comparing import as_run_beside, compared
from fedcompass.paper.entries import entry_named
from fedcompass.paper.entry import Entry
from fedcompass.paper.finding import Finding
from fedcompass.paper.groups import GROUPS_FILE, groups_grid, read_study
from fedcompass.paper.medical_tables import medical_grid, medical_lines
from fedcompass.paper.rendering import (
    agreement_grids,
    as_run_line,
    grids,
    summary_lines,
    wins_grids,
)
from fedcompass.paper.stored_runs import StoredRuns
from fedcompass.sweeps.formats import TextTable, markdown_table

__all__ = ["rendered", "write_report"]

_SECTION = re.compile(r"(<!-- paper: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write_report(place: Path, folder: Path) -> dict[Path, int]:
    """Bring a page, or those below a folder, up to date with a folder of results.

    Gives each page's number of sections; a page without any is left out.

    Raises:
        SettingsError: a page cannot be read, or a marker names nothing.
    """
    results = StoredRuns.read(folder)
    pages = sorted(place.rglob("*.md")) if place.is_dir() else [place]
    written = {page: _write_page(page, results, folder) for page in pages}
    return {page: count for page, count in written.items() if count}


def _write_page(page: Path, results: StoredRuns, folder: Path) -> int:
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{page} cannot be read: {error.strerror}; give the page") from None

    def section(found: re.Match[str]) -> str:
        content = "\n".join(rendered(entry_named(found[2]), results, folder))
        return f"{found[1]}\n{content}\n{found[3]}"

    text, count = _SECTION.subn(section, text)
    if count:
        page.write_text(text, encoding="utf-8")
    return count


def rendered(entry: Entry, results: StoredRuns, folder: Path) -> Iterator[str]:
    """A table as lines of Markdown."""
    if entry.kind == "groups":
        yield _markdown(groups_grid(read_study(folder / GROUPS_FILE)))
        return
    if entry.kind == "finding":
        finding = Finding(results)
        yield from (f"- {line}" for line in finding.lines())
        yield ""
        yield from map(_markdown, finding.tables())
        return
    if entry.kind == "medical":
        yield f"{entry.name}: {entry.title}.\n"
        yield _markdown(medical_grid(entry, results, entry.cells))
        for line in medical_lines(entry, results, entry.cells):
            yield f"{line[0].upper()}{line[1:]}.\n"
        return
    comparison = compared(entry, results)
    first, *others = summary_lines(comparison)
    yield f"{entry.name}: {first}.\n"
    if comparison.seed_counts[1]:
        as_run = as_run_beside(entry, results, entry.cells)
        by_groups = by_groups_grids(entry, results, entry.cells)
        agreement = () if as_run is None else agreement_grids(comparison, as_run)
        if lacking := as_run_line(entry, as_run, entry.cells):
            yield f"{lacking[0].upper()}{lacking[1:]}.\n"
        for grid in (*grids(comparison, as_run), *agreement, *wins_grids(comparison), *by_groups):
            yield _markdown(grid)
    for line in others:
        yield f"{line[0].upper()}{line[1:]}.\n"


def _markdown(table: TextTable) -> str:
    return markdown_table(table.header, table.rows, table.left, title=table.title) + "\n"
