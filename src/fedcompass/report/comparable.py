"""Which runs belong into one comparison, which are the same run twice, and what was left out."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from fedcompass.errors import FedcompassError
from fedcompass.report.run_files import RunFiles
from fedcompass.runs.journal import holds_events

__all__ = ["LeftOut", "chosen_runs", "in_words"]


class LeftOut(NamedTuple):
    """A run that a report does not show."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} is left out: {self.why}"


def chosen_runs(runs: Sequence[RunFiles]) -> tuple[list[RunFiles], list[LeftOut]]:
    """The runs to show: of repeated ones the first that is finished, and none that never began.

    A run alone is always shown: a page can say that it has not begun.

    Raises:
        FedcompassError: none of them can be read.
    """
    chosen: dict[str, RunFiles] = {}
    left_out: list[LeftOut] = []
    failures: list[FedcompassError] = []
    for run in sorted(runs, key=lambda run: not run.finished):
        try:
            if len(runs) > 1 and not (run.has_summary or holds_events(run.journal)):
                left_out.append(LeftOut(run.name, "nothing has happened in it"))
                continue
            first = chosen.setdefault(_identity(run), run)
        except FedcompassError as error:
            failures.append(error)
            left_out.append(LeftOut(run.name, str(error)))
            continue
        if first is not run:
            left_out.append(LeftOut(run.name, f"it is the same run as {first.name}"))
    if failures and not chosen:
        raise failures[0]
    shown = [run for run in runs if run in chosen.values()] or list(runs)
    return shown, left_out if len(shown) < len(runs) else []


def in_words(runs: Sequence[RunFiles]) -> str | None:
    """One line if the runs are not all comparable: how many groups there are, and which."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        common = run.common()
        groups.setdefault(json.dumps(common["settings"], sort_keys=True), []).append(
            common["label"]
        )
    if len(groups) < 2:
        return None
    parts = "; ".join(f"{labels[0]} ({len(labels)})" for labels in groups.values())
    return (
        f"{len(runs)} runs in {len(groups)} groups that are not compared with each other: {parts}"
    )


def _identity(run: RunFiles) -> str:
    """Equal for runs that must have the same result; two federations never must."""
    settings = run.settings()
    if run.kind != "simulation" or settings is None:
        header = next(run.records(), {})
        return json.dumps([run.kind, header.get("run", str(run.path.resolve()))])
    data = {key: value for key, value in settings.get("data", {}).items() if key != "root"}
    return json.dumps([run.kind, {**settings, "data": data}], sort_keys=True, default=str)
