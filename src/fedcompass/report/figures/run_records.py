"""What run folders hold, as figures need it: settings, curve, journal."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedcompass.own_code import short
from fedcompass.report.figures.timeline_data import Timeline, read_timeline
from fedcompass.report.run_files import RunFiles, find_runs
from fedcompass.setting_tables import flat
from fedcompass.vocabulary import Seconds

__all__ = ["RunRecord", "SeedGroup", "read_runs", "seed_groups", "seeds_note"]


class RunRecord:
    """One run; its settings are taken as they are, so that any strategy's run can be drawn."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        facts = files.facts()
        self.name: str = facts["name"]
        self.settings: Mapping[str, Any] = facts["settings"] or {}
        self._summary: Mapping[str, Any] | None = facts["summary"]

    @cached_property
    def strategy(self) -> str:
        """The strategy's name."""
        given = self.settings.get("strategy")
        if isinstance(given, Mapping) and "name" in given:
            return str(given["name"])
        header = next(self.files.records(), {})
        return str(header.get("strategy", {}).get("name", self.name))

    @property
    def target_metric(self) -> str:
        """The metric that the run was about."""
        return short(self.settings.get("evaluation", {}).get("target_metric", "accuracy"))

    @property
    def target(self) -> float | None:
        """What that metric was to reach."""
        target = self.settings.get("target")
        return target if isinstance(target, int | float) else None

    @cached_property
    def curve(self) -> list[dict[str, Any]]:
        """One row per evaluation; empty if nothing was measured."""
        return list(self.files.evaluations())

    @cached_property
    def timeline(self) -> Timeline:
        """Who trained when, from the journal."""
        return read_timeline(self.files.journal, self._full_horizon())

    @property
    def end(self) -> Seconds:
        """Up to when the curve is known: its last value holds to the horizon of a full run."""
        last = float(self.curve[-1]["time"]) if self.curve else 0.0
        if self._summary is not None:  # it went on at least so long
            last = max(last, float(self.settings.get("run_at_least") or 0.0))
        return max(last, self._full_horizon() or 0.0)

    def _full_horizon(self) -> Seconds | None:
        """The end of a run that went the whole way."""
        horizon = self.settings.get("horizon")
        if self._summary is None or horizon is None or self._stopped_early(self._summary):
            return None
        return float(horizon)

    def _stopped_early(self, summary: Mapping[str, Any]) -> bool:
        limit = self.settings.get("max_updates")
        at_limit = limit is not None and summary.get("global_updates", 0) >= limit
        at_target = summary.get("time_to_target") is not None
        return at_limit or (at_target and bool(self.settings.get("stop_at_target")))


def read_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """The runs in these folders; a folder of runs, such as a comparison's, stands for them all.

    Raises:
        RunFolderError: a folder is not a run's and holds none, or is damaged.
    """
    return [RunRecord(files) for files in find_runs(folders)]


@dataclass(frozen=True)
class SeedGroup:
    """Runs that differ in nothing but their seed, and what to call them."""

    label: str
    runs: list[RunRecord]


def seed_groups(runs: Sequence[RunRecord]) -> list[SeedGroup]:
    """The runs by what they have in common; strategies of the same name get what sets them apart.

    Groups come in the order in which they first appear.
    """
    by_settings: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_settings.setdefault(json.dumps(_without_seed(run), sort_keys=True), []).append(run)
    groups = list(by_settings.values())
    names = [group[0].strategy for group in groups]
    return [
        SeedGroup(_label(group[0], [g[0] for g in groups if g[0].strategy == name]), group)
        for name, group in zip(names, groups, strict=True)
    ]


def seeds_note(groups: Sequence[SeedGroup]) -> str | None:
    """What a band or an error bar stands for; None where every group is a single run."""
    sizes = sorted({len(group.runs) for group in groups})
    if sizes == [1]:
        return None
    seeds = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"mean ± standard deviation, {seeds} seeds"


def _without_seed(run: RunRecord) -> dict[str, str]:
    apart = ("seed", "data.root", "fingerprint")
    return {key: str(value) for key, value in flat(run.settings).items() if key not in apart}


def _label(run: RunRecord, namesakes: Sequence[RunRecord]) -> str:
    if len(namesakes) == 1:
        return run.strategy
    tables = [_without_seed(other) for other in namesakes]
    own = _without_seed(run)
    keys = sorted({key for table in tables for key in table})
    apart = [key for key in keys if len({table.get(key) for table in tables}) > 1]
    marks = [f"{key.rpartition('.')[2]} {own.get(key, 'unset')}" for key in apart[:2]]
    return f"{run.strategy} ({', '.join(marks)})"
