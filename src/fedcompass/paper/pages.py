"""Our tables written into a page of the documentation, between its markers.

A marker is a line `<!-- paper: table-1 -->`; what stands between it and the next line
`<!-- end -->` is replaced by the table as it is in the results now.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from fedcompass.errors import SettingsError
from fedcompass.paper.comparing import as_run_beside, compared
from fedcompass.paper.entries import entry_named
from fedcompass.paper.entry import Entry
from fedcompass.paper.finding import Finding
from fedcompass.paper.groups import GROUPS_FILE, groups_grid, read_study
from fedcompass.paper.medical_tables import medical_grid, medical_lines
from fedcompass.paper.rendering import as_run_line, summary_lines, table_grids
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
    runs = results.of(entry)
    if entry.kind == "medical":
        yield f"{entry.name}: {entry.title}.\n"
        yield _markdown(medical_grid(runs))
        yield from map(_sentence, medical_lines(runs))
        return
    comparison = compared(runs)
    first, *others = summary_lines(comparison)
    yield f"{entry.name}: {first}.\n"
    if comparison.seed_counts[1]:
        as_run = as_run_beside(runs)
        if lacking := as_run_line(entry, as_run, entry.cells):
            yield _sentence(lacking)
        yield from map(_markdown, table_grids(comparison, as_run, runs))
    yield from map(_sentence, others)


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}.\n"


def _markdown(table: TextTable) -> str:
    return f"{markdown_table(table)}\n"
