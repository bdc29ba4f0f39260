"""A run as an onlooker sees it: read off its audit log and metrics while it is going on."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcompass.vocabulary import Seconds, Steps

__all__ = ["RunView", "SiteView"]


@dataclass(slots=True)
class SiteView:
    """One site.

    state: what happened to it last.
    updates: accepted.
    steps: of those updates.
    seconds: since the run's start when it was last heard of.
    """

    state: str = "joined"
    updates: int = 0
    steps: Steps = 0
    seconds: Seconds = 0.0


@dataclass(slots=True)
class RunView:
    """What is known of a run; `refresh` reads on."""

    folder: Path
    sites: dict[str, SiteView] = field(default_factory=dict)
    version: int = 0
    updates: int = 0  # accepted
    refused: int = 0
    seconds: Seconds = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)  # of the newest evaluation
    _read: dict[str, int] = field(default_factory=dict)  # bytes of each file

    def refresh(self) -> list[dict[str, Any]]:
        """Read what is new; the lines of the audit log and the evaluations, as they came."""
        lines = []
        for line in self._new("audit.jsonl"):
            self._take(line)
            lines.append(line)
        for row in self._new("metrics.jsonl"):
            self.metrics = row
            lines.append({"what": "measured", "at": row.get("time", 0.0), **row})
        return lines

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        return (self.folder / "summary.json").exists()

    def _new(self, name: str) -> Iterator[dict[str, Any]]:
        """Whole lines that were not read before; one that is being written waits."""
        try:
            with (self.folder / name).open("rb") as file:
                file.seek(self._read.get(name, 0))
                text = file.read()
        except OSError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._read[name] = self._read.get(name, 0) + len(whole)
        for line in whole.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # a crash cut it off; it is written again
            if isinstance(record, dict):
                yield record

    def _take(self, line: dict[str, Any]) -> None:
        self.seconds = max(self.seconds, line.get("at", 0.0))
        what = line.get("what", "")
        if what == "merged":
            self.version = line.get("version", self.version)
        if "who" not in line:
            return
        site = self.sites.setdefault(line["who"], SiteView())
        site.state, site.seconds = what, line.get("at", site.seconds)
        if what == "accepted":
            self.updates += 1
            site.updates += 1
            site.steps += line.get("steps") or 0
        elif what == "refused":
            self.refused += 1
