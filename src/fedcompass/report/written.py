"""Runs written as one self-contained HTML file."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedcompass.errors import FedcompassError, RunFolderError
from fedcompass.report.comparable import LeftOut, chosen_runs, in_words
from fedcompass.report.packing import Packed, pack
from fedcompass.report.page import page
from fedcompass.report.run_files import RunFiles, plain_json
from fedcompass.runs.files import replacing

__all__ = ["usual_place", "write_report"]

_COUNTED = (
    ("Commit", "global_updates", "global updates"),
    ("Fold", "updates", "client updates"),
    ("UpdateRefused", "refused", "refused updates"),
)
"""Lines of a journal, the summary's number of them, and what they are."""

_ROOM = 5_400_000
"""Characters of packed lines in a page, which stays below 6 MB with its script and facts."""


def write_report(
    runs: Sequence[RunFiles], path: Path, note: Callable[[str], None] | None = None
) -> Path:
    """Write the report of these runs; a file that is there is replaced.

    Journals that do not fit into the page are cut, the longest first, and the page says so.

    Args:
        runs: what to show.
        path: the file.
        note: told in a line each what a reader must know, which the page says too: runs that were
            left out, journals cut short, groups of runs that cannot be compared.

    Raises:
        RunFolderError: a run or the file's folder is damaged or cannot be used.
        JournalError: a journal is damaged.
    """
    text = _page_of(runs, note or (lambda _: None))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")
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


def _page_of(given: Sequence[RunFiles], note: Callable[[str], None]) -> str:
    runs, left_out = chosen_runs(given)
    packed = _packed(runs, left_out)
    shown = [run for run in runs if run in packed]
    blocks = {}
    for number, run in enumerate(shown):
        lines = packed[run]
        blocks[f"journal-{number}"] = lines.journal.text
        blocks[f"metrics-{number}"] = lines.metrics.text
        if lines.facts["cut_short"]:
            note(f"{run.path}: {lines.facts['cut_short']}; the page shows the run up to there")
    for line in (*map(str, left_out), in_words(shown)):
        if line is not None:
            note(line)
    facts = [packed[run].facts for run in shown]
    content = {"live": False, "runs": facts, "left_out": [list(one) for one in left_out]}
    return page(plain_json(content), blocks)


class _Lines(NamedTuple):
    """A run as the page gets it."""

    journal: Packed
    metrics: Packed
    facts: dict[str, Any]


def _packed(runs: Sequence[RunFiles], left_out: list[LeftOut]) -> dict[RunFiles, _Lines]:
    """The runs that can be read, the smallest first; of the others it is said why not."""
    packed: dict[RunFiles, _Lines] = {}
    room = _ROOM
    for place, run in enumerate(sorted(runs, key=_size)):
        try:
            lines = packed[run] = _pack(run, room // (len(runs) - place))
        except FedcompassError as error:
            if place == len(runs) - 1 and not packed:
                raise
            left_out.append(LeftOut(run.name, str(error)))
        else:
            room -= len(lines.journal.text) + len(lines.metrics.text)
    return packed


def _pack(run: RunFiles, limit: int) -> _Lines:
    metrics = pack(run.evaluations(), limit // 2)
    journal = pack(run.records(), limit - len(metrics.text))
    cut_short = _cut_short(run, journal)
    facts = {**run.facts(), "left_out": journal.left_out, "cut_short": cut_short}
    if cut_short:
        facts["finished"] = False
    return _Lines(journal, metrics, facts)


def _cut_short(run: RunFiles, journal: Packed) -> str | None:
    """What a journal lacks at its end, in words; None if it is whole as far as can be told."""
    if not run.journal.is_file():
        return None
    summary = run.summary() or {}
    size, whole = run.journal.stat().st_size, summary.get("journal_bytes", 0)
    if size < whole:
        return f"its journal is cut short: it has {size:,} of {whole:,} bytes"
    for kind, key, words in _COUNTED:
        found, expected = journal.kinds.get(kind, 0), summary.get(key, 0)
        if found < expected:
            return f"its journal is cut short: it has {found:,} of {expected:,} {words}"
    with run.journal.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            return "its journal is cut short: it ends in the middle of a line"
    return None


def _size(run: RunFiles) -> int:
    return run.journal.stat().st_size if run.journal.is_file() else 0
