"""A run as an onlooker sees it, while it goes on: its audit log, its metrics, and the one tally."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcompass.number_text import epsilon_text
from fedcompass.runs.files import GrowingFile
from fedcompass.runs.tally import ClientTally, Tally
from fedcompass.vocabulary import ClientId, Seconds

__all__ = ["RunView", "SiteView"]

_WARNINGS = ("second process", "claims most samples", "has had its share")
"""What `status` says of a site for as long as the run lasts, whatever the site did last."""


@dataclass(frozen=True, slots=True)
class SiteView:
    """What the audit log said of a site last, and when in the run's seconds."""

    state: str
    seconds: Seconds


@dataclass(slots=True)
class RunView:
    """What is known of a run; `refresh` reads on."""

    folder: Path
    sites: dict[ClientId, SiteView] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)  # of the journal
    seconds: Seconds = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)  # of the newest evaluation
    warnings: dict[tuple[ClientId, str], dict[str, Any]] = field(default_factory=dict)  # who, what
    failed_sum: dict[str, Any] | None = None  # the audit log's line of the last one
    _audit: GrowingFile = field(init=False)
    _rows: GrowingFile = field(init=False)
    _journal: GrowingFile = field(init=False)

    def __post_init__(self) -> None:
        self._audit = GrowingFile(self.folder / "audit.jsonl")
        self._rows = GrowingFile(self.folder / "metrics.jsonl")
        self._journal = GrowingFile(self.folder / "journal.jsonl")

    @property
    def updates(self) -> int:
        """Accepted so far."""
        return sum(client.updates for client in self.tally.clients.values())

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        return (self.folder / "summary.json").exists()

    @property
    def target_metric(self) -> str | None:
        """The run's own setting; None: it has not begun."""
        try:
            settings = tomllib.loads((self.folder / "deployment.toml").read_text("utf-8"))
        except (OSError, ValueError):  # not there, or half written by a resume
            return None
        return settings.get("target_metric")

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """A header, and each site: what it did last, its updates, their steps, when that was.

        Where training is private, with what each has spent.
        """
        counts = {name: self.tally.clients.get(name, ClientTally()) for name in sorted(self.sites)}
        private = any(count.epsilon is not None for count in counts.values())
        header = ("site", "last", "updates", "steps", *(("epsilon",) if private else ()), "at (s)")
        rows = []
        for name, count in counts.items():
            told = (self.sites[name].state, str(count.updates), str(count.steps))
            at = f"{self.sites[name].seconds:.0f}"
            rows.append((name, *told, *((epsilon_text(count.epsilon),) if private else ()), at))
        return header, rows

    def refresh(self) -> list[dict[str, Any]]:
        """Read what is new; the lines of the audit log and the evaluations, as they came."""
        lines = self._audit.new_records()
        for line in lines:
            self._take(line)
        for row in self._rows.new_records():
            self.metrics = row
            lines.append({"what": "measured", "at": row.get("time", 0.0), **row})
        for record in self._journal.new_records():  # last: it is written before the audit log
            self.tally.take(record)
        return lines

    def _take(self, line: dict[str, Any]) -> None:
        at = line.get("at", 0.0)
        self.seconds = max(self.seconds, at)
        if line.get("what") in _WARNINGS:
            self.warnings[line["who"], line["what"]] = line
        if line.get("what") == "sum failed":
            self.failed_sum = line
        if "who" in line:
            left = "left" in line.get("privacy", {})
            state = "budget spent" if left else line.get("what", "")
            self.sites[line["who"]] = SiteView(state, at)
