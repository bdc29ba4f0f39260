"""Following a run's folder as it grows, and handing what is new to tracking tools.

The folder is all that is looked at, so it works the same for a simulation, a deployment and a run
that ended long ago.
"""

import json
import logging
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

from fedcompass.runs.files import GrowingFile
from fedcompass.tracking.measures import JournalMeasures, evaluation_point, summary_metrics
from fedcompass.tracking.tracker import OpenTracker, Status, Tracker
from fedcompass.vocabulary import Seconds

__all__ = ["FollowedRun", "track"]

_SETTINGS = ("experiment.toml", "deployment.toml")  # of a simulation, of a deployment

_log = logging.getLogger(__name__)


def track(folder: Path, name: str, openers: Sequence[OpenTracker]) -> None:
    """Hand a run that is over to tracking tools; one that fails is warned about and left out."""
    try:
        with FollowedRun(folder, name, openers):
            pass
    except Exception as error:  # a tool's failure must not end what comes after this run
        _log.warning("%s was not tracked: %s; its record is complete", folder, _first_line(error))


class FollowedRun:
    """A run's folder, followed while inside `with`.

    A tool that fails midway is warned about and dropped: the run goes on, and its record in the
    folder is complete.

    Args:
        folder: the run's; it may still be empty.
        name: the run's name in the tools.
        openers: begin the run in each tool.
        every: wall-clock seconds between two looks at the folder.
    """

    def __init__(
        self, folder: Path, name: str, openers: Sequence[OpenTracker], *, every: Seconds = 5.0
    ) -> None:
        self._folder, self._name, self._openers, self._every = folder, name, openers, every
        self._trackers: list[Tracker] = []
        self._journal = GrowingFile(folder / "journal.jsonl")
        self._rows = GrowingFile(folder / "metrics.jsonl")
        self._measures = JournalMeasures()
        self._looked = monotonic()
        self._target_metric = ""

    def __enter__(self) -> Self:
        settings = _settings(self._folder)
        self._target_metric = str(settings.get("evaluation.target_metric", "accuracy"))
        try:
            for opener in self._openers:
                self._trackers.append(opener(self._name))
                self._trackers[-1].settings(settings)
        except BaseException:
            for tracker in self._trackers:
                with suppress(Exception):  # the first failure is the one to tell
                    tracker.close({}, "failed")
            raise
        return self

    def update(self) -> None:
        """Look for news if it is time to; cheap, to be called after every event."""
        if self._trackers and monotonic() - self._looked >= self._every:
            self.catch_up()
            self._looked = monotonic()

    def catch_up(self) -> None:
        """Hand on everything that is new in the folder."""
        if not self._trackers:
            return
        points = [
            point
            for record in self._journal.new_records()
            if (point := self._measures.take(record)) is not None
        ]
        points += [evaluation_point(row, self._target_metric) for row in self._rows.new_records()]
        for tracker in list(self._trackers):
            try:
                for point in points:
                    tracker.metrics(point.values, step=point.step, at=point.at)
                tracker.flush()
            except Exception as error:  # whatever a tool or its network raises
                self._drop(tracker, error)

    def _drop(self, tracker: Tracker, error: Exception) -> None:
        self._trackers.remove(tracker)
        _log.warning(
            "%s stopped tracking: %s; the run goes on, its record in %s is complete",
            type(tracker).__name__,
            _first_line(error),
            self._folder,
        )
        with suppress(Exception):
            tracker.close({}, "failed")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.catch_up()
        summary = summary_metrics(_json(self._folder / "summary.json"))
        for tracker in list(self._trackers):
            try:
                tracker.close(summary, _status(kind))
            except Exception as failure:  # as above
                self._drop(tracker, failure)


def _status(kind: type[BaseException] | None) -> Status:
    if kind is None:
        return "finished"
    return "stopped" if issubclass(kind, KeyboardInterrupt) else "failed"


def _settings(folder: Path) -> dict[str, Any]:
    for name in _SETTINGS:
        if (folder / name).is_file():
            return _flat(tomllib.loads((folder / name).read_text(encoding="utf-8")))
    return {}


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys; lists as text."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value if isinstance(value, bool | int | float) else str(value)
    return flat


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
