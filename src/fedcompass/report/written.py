"""Runs written as one self-contained HTML file."""

from collections.abc import Sequence
from pathlib import Path

from fedcompass.errors import RunFolderError
from fedcompass.report.packing import pack_journal, pack_metrics
from fedcompass.report.page import page
from fedcompass.report.run_files import RunFiles, plain_json

__all__ = ["usual_place", "write_report"]

_ROOM = 5_400_000
"""Characters of packed lines in a page, which stays below 6 MB with its script and facts."""


def write_report(runs: Sequence[RunFiles], path: Path) -> Path:
    """Write the report of these runs; a file that is there is replaced.

    Journals that do not fit into the page are cut, the longest first, and the page says so.

    Raises:
        RunFolderError: a run or the file's folder is damaged or cannot be used.
        JournalError: a journal is damaged.
    """
    text = _page_of(runs)
    beside = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise RunFolderError(
            f"report {path} cannot be written: {error.strerror}; choose another place with -o"
        ) from None
    return path


def usual_place(given: Sequence[Path], runs: Sequence[RunFiles]) -> Path:
    """Where a report goes unless told: into the one folder given, else beside the runs' folders."""
    if len(given) == 1:
        return given[0] / "report.html"
    parents = {run.path.resolve().parent for run in runs}
    return (runs[0].path.parent if len(parents) == 1 else Path()) / "report.html"


def _page_of(runs: Sequence[RunFiles]) -> str:
    facts, blocks, room = [], {}, _ROOM
    smallest_first = sorted(range(len(runs)), key=lambda number: _size(runs[number]))
    left_out = [0] * len(runs)
    for place, number in enumerate(smallest_first):
        limit = room // (len(runs) - place)
        metrics = pack_metrics(runs[number].metrics, limit // 2)
        journal = pack_journal(runs[number].journal, limit - len(metrics.text))
        blocks[f"journal-{number}"], blocks[f"metrics-{number}"] = journal.text, metrics.text
        left_out[number] = journal.left_out
        room -= len(journal.text) + len(metrics.text)
    for run, lines in zip(runs, left_out, strict=True):
        facts.append({**run.facts(), "left_out": lines})
    return page(plain_json({"live": False, "runs": facts}), blocks)


def _size(run: RunFiles) -> int:
    return run.journal.stat().st_size if run.journal.is_file() else 0
