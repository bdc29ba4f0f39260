"""Following a run's folder as it grows, and handing what is new to tracking tools.

The folder is all that is looked at, so it works the same for a simulation, a deployment and a run
that ended long ago.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Literal, Protocol, Self, TypeAlias

from fedcompass.own_code import short
from fedcompass.report.following import Following
from fedcompass.report.run_files import RunFiles
from fedcompass.report.tracking.measures import (
    Point,
    evaluation_point,
    journal_point,
    summary_metrics,
)
from fedcompass.report.written import write_report
from fedcompass.runs.tally import Tally
from fedcompass.setting_tables import flat
from fedcompass.vocabulary import Seconds

__all__ = ["FollowedRun", "OpenTracker", "Status", "Tracker", "track"]

_log = logging.getLogger(__name__)

Status: TypeAlias = Literal["finished", "stopped", "failed"]
"""How a run ended; a stopped one can be resumed."""


class Tracker(Protocol):
    """One run in a tracking tool."""

    @property
    def keeps_files(self) -> bool:
        """Whether it has a place for files."""
        ...

    def settings(self, values: Mapping[str, Any]) -> None:
        """Take the run's settings, by dotted key."""
        ...

    def metrics(self, values: Mapping[str, float], *, step: int, at: Seconds) -> None:
        """Take metrics of one global model, whose version is the step, at a time of the run."""
        ...

    def flush(self) -> None:
        """Send on what was kept back."""
        ...

    def files(self, paths: Sequence[Path]) -> None:
        """Keep a finished run's report and models, by their files' names."""
        ...

    def close(self, summary: Mapping[str, float], status: Status) -> None:
        """Take what came out, if anything, and end."""
        ...


OpenTracker: TypeAlias = Callable[[str], Tracker]
"""Begins a run of that name in a tracking tool."""


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
        self._files, self._name, self._openers, self._every = RunFiles(folder), name, openers, every
        self._trackers: list[Tracker] = []
        self._following = Following([self._files])
        self._tally = Tally()
        self._looked = monotonic()
        self._target_metric = ""

    def __enter__(self) -> Self:
        settings = _plain(flat(self._files.settings() or {}))
        self._target_metric = short(str(settings.get("evaluation.target_metric", "accuracy")))
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
        points = list(self._new_points())

        def hand_on(tracker: Tracker) -> None:
            for point in points:
                tracker.metrics(point.values, step=point.step, at=point.at)
            tracker.flush()

        self._each(hand_on)

    def _new_points(self) -> Iterator[Point]:
        for message in self._following.news():
            if message.kind == "reset":
                self._tally = Tally()
            elif message.kind == "lines":
                for line in message.content["text"].split("\n")[:-1]:
                    point = self._point(message.content["file"], json.loads(line))
                    if point is not None:
                        yield point

    def _point(self, file: str, record: dict[str, Any]) -> Point | None:
        if file == "journal":
            return journal_point(self._tally, record)
        return evaluation_point(record, self._target_metric)

    def _each(self, act: Callable[[Tracker], None]) -> None:
        """Do something with every tracker; one that fails is dropped."""
        for tracker in list(self._trackers):
            try:
                act(tracker)
            except Exception as error:  # whatever a tool or its network raises
                self._trackers.remove(tracker)
                _log.warning(
                    "%s stopped tracking: %s; the run goes on, its record in %s is complete",
                    type(tracker).__name__,
                    _first_line(error),
                    self._files.path,
                )
                with suppress(Exception):
                    tracker.close({}, "failed")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.catch_up()
        summary = summary_metrics(self._files.summary() or {})
        if summary and any(tracker.keeps_files for tracker in self._trackers):
            self._hand_over_files()
        self._each(lambda tracker: tracker.close(summary, _status(kind)))

    def _hand_over_files(self) -> None:
        with TemporaryDirectory(prefix="fedcompass-") as folder:
            report = write_report([self._files], Path(folder) / "report.html")
            models = (self._files.path / f"{name}.safetensors" for name in ("final", "best"))
            paths = [report, *(model for model in models if model.exists())]
            self._each(lambda tracker: tracker.files(paths))


def _status(kind: type[BaseException] | None) -> Status:
    if kind is None:
        return "finished"
    return "stopped" if issubclass(kind, KeyboardInterrupt) else "failed"


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers and switches as they are, everything else as text."""
    plain = bool | int | float
    return {k: v if isinstance(v, plain) else str(v) for k, v in settings.items()}


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
