"""A run as an onlooker sees it, while it goes on: its audit log, its metrics, and the one tally."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcompass.runs.files import GrowingFile
from fedcompass.runs.tally import ClientTally, Tally
from fedcompass.vocabulary import ClientId, Seconds, Steps

__all__ = ["RunView", "SiteView"]


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

    def rows(self) -> list[tuple[ClientId, str, int, Steps, Seconds]]:
        """Each site: its name, what it did last, its updates, their steps, when that was."""
        nothing = ClientTally()
        counts = {name: self.tally.clients.get(name, nothing) for name in sorted(self.sites)}
        return [
            (name, self.sites[name].state, count.updates, count.steps, self.sites[name].seconds)
            for name, count in counts.items()
        ]

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
        if "who" in line:
            self.sites[line["who"]] = SiteView(line.get("what", ""), at)
