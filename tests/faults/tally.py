"""What a fault test is about, in numbers, and the table of all of them."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedcompass.runs.journal import read_journal


@dataclass(frozen=True)
class Tally:
    """Updates of one run.

    accepted: on disk, and acknowledged.
    lost: accepted, but neither merged nor waiting for a merge when the run ended.
    duplicated: merged more than once.
    """

    accepted: int = 0
    lost: int = 0
    duplicated: int = 0


def counted_updates(run: Path) -> tuple[list[int], Counter[int]]:
    """The tasks of a finished run's accepted updates, in order; how often each one counts."""
    lines = [record for _, record in read_journal(run / "journal.jsonl")]
    accepted = [r["task"] for r in lines if r.get("event") == "UpdateArrived" and r["steps_done"]]
    counted = Counter(
        task for r in lines if r.get("command") == "Commit" for _, task, _ in r["contributions"]
    )
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    counted.update(task for _, task, _ in summary["pending"])
    return accepted, counted


def tally(run: Path) -> Tally:
    """Count the updates of a finished run."""
    accepted, counted = counted_updates(run)
    return Tally(
        len(accepted),
        sum(1 for task in set(accepted) if not counted[task]),
        sum(n - 1 for n in counted.values() if n > 1),
    )


@dataclass
class Row:
    """One line of the table."""

    fault: str
    injected: int = 0
    accepted: int = 0
    lost: int = 0
    duplicated: int = 0
    hangs: int = 0
    outcome: str = "passed"

    def count(self, counted: Tally) -> None:
        self.accepted += counted.accepted
        self.lost += counted.lost
        self.duplicated += counted.duplicated


COLUMNS = ("fault", "injected", "accepted", "lost", "duplicated", "hangs", "outcome")


def markdown(rows: Iterable[Row]) -> str:
    """The table as a page of the documentation."""
    listed = list(rows)
    cells = [[str(getattr(row, name)) for name in COLUMNS] for row in listed]
    numbers = COLUMNS[1:-1]
    total = [str(sum(getattr(row, name) for row in listed)) for name in numbers]
    lines = [
        "| " + " | ".join(COLUMNS) + " |",
        "|---|" + "--:|" * len(numbers) + "---|",
        *("| " + " | ".join(row) + " |" for row in cells),
        "| **all** | " + " | ".join(f"**{n}**" for n in total) + " | |",
    ]
    return "\n".join(lines) + "\n"


def read_rows(text: str) -> dict[str, Row]:
    """The lines of tables as `markdown` writes them, by fault."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == len(COLUMNS) and all(cell.isdigit() for cell in cells[1:-1]):
            told = dict(zip(COLUMNS, cells, strict=True))
            numbers = {name: int(told[name]) for name in COLUMNS[1:-1]}
            found[told["fault"]] = Row(told["fault"], outcome=told["outcome"], **numbers)
    return found


def put_section(page: Path, title: str, text: str) -> None:
    """Replace a page's section of this title, or add it at the end; the others stay."""
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    parts = re.split(r"(?m)^(?=## )", old)
    new = f"## {title}\n\n{text.strip()}\n"
    found = [number for number, part in enumerate(parts) if part.startswith(f"## {title}\n")]
    if found:
        parts[found[0]] = new + ("\n" if found[0] < len(parts) - 1 else "")
    else:
        parts = [*parts[:-1], f"{parts[-1].rstrip()}\n\n", new]
    page.write_text("".join(parts), encoding="utf-8")
