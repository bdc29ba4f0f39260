"""When the global model is measured, and the measurements as they come back."""

from collections import deque
from collections.abc import Generator, Iterator
from typing import Any

from fedcompass.aggregation.layout import FlatState
from fedcompass.coordinator import Coordinator
from fedcompass.experiment import EvaluationSettings
from fedcompass.own_code import short
from fedcompass.runs.curve import Curve, Row
from fedcompass.settings.training import higher_is_better
from fedcompass.simulation.executors import EvalJob, EvalResult, Executor, Job
from fedcompass.vocabulary import ModelVersion, Seconds

__all__ = ["Evaluations"]

_IN_FLIGHT = 8  # evaluations that may wait for their result, each holding a model


class Evaluations:
    """Hands out evaluation jobs and keeps their results in order of time.

    One version is measured once, however often it is asked for.
    """

    def __init__(
        self,
        settings: EvaluationSettings | None,
        executor: Executor,
        keys: Iterator[int],
        stop_at: float | None = None,
        stops_late_by: int = 0,
    ) -> None:
        self._enabled = settings is not None
        self._settings = settings or EvaluationSettings()
        self._executor = executor
        self._keys = keys
        self._stop_at = stop_at
        self.stops_late_by = stops_late_by
        self._open: deque[tuple[Seconds, ModelVersion, EvalJob]] = deque()
        self._ticks = 0  # how many of the times k * every_seconds have passed
        self._measured: ModelVersion | None = None  # the latest version asked for
        self._judged = 0  # how many rows `reached` has looked at
        self._is_reached = False  # by one of those
        self._restart_curve([])
        self.best: FlatState | None = None  # the model of the best row, None before the first

    def _restart_curve(self, rows: list[Row]) -> None:
        target = self._settings.target_metric
        self.curve = Curve(short(target), rises=higher_is_better(target), rows=rows)

    @property
    def rows(self) -> list[Row]:
        """The results so far."""
        return self.curve.rows

    @property
    def may_stop(self) -> bool:
        """Whether the run is to stop at a value of the target metric."""
        return self._stop_at is not None

    @property
    def reached(self) -> bool:
        """Whether it has come to that value, the latest `stops_late_by` evaluations left out.

        So when a run stops never depends on which results happen to be in.
        """
        if self._stop_at is None:
            return False
        judged = len(self.rows) + len(self._open) - self.stops_late_by
        while self._judged < min(judged, len(self.rows)):
            self._is_reached |= self.curve.reaches(self.rows[self._judged], self._stop_at)
            self._judged += 1
        return self._is_reached

    def start(self, coordinator: Coordinator) -> None:
        """Measure the untrained model, so that curves begin at time 0."""
        self._ask(0.0, coordinator)

    def before(self, at: Seconds, coordinator: Coordinator) -> None:
        """Measure at the times that pass before something happens at `at`."""
        every = self._settings.every_seconds
        if every is None:
            return
        while (self._ticks + 1) * every <= at:
            self._ticks += 1
            self._ask(self._ticks * every, coordinator)

    def after_update(self, at: Seconds, coordinator: Coordinator) -> None:
        """Measure if the new version is one of those wanted."""
        every = self._settings.every_updates
        if every is not None and coordinator.version % every == 0:
            self._ask(at, coordinator)

    def final(self, at: Seconds, coordinator: Coordinator) -> None:
        """Measure the last version, unless that was done."""
        if self._measured != coordinator.version:
            self._ask(at, coordinator)

    def _ask(self, at: Seconds, coordinator: Coordinator) -> None:
        if self._measured == coordinator.version or not self._enabled:
            return
        self._measured = coordinator.version
        target = self._settings.target_metric
        job = EvalJob(
            key=next(self._keys),
            state=coordinator.snapshot(),
            metrics=self._settings.metrics,
            client_metrics=(target,) if self._settings.per_client else (),
        )
        self._open.append((at, coordinator.version, job))
        self._executor.submit(job)

    def collect(self, *, but: int = _IN_FLIGHT) -> Generator[Job, Any, None]:
        """Take in results, oldest first, until no more than `but` are open."""
        while len(self._open) > but:
            at, version, job = self._open.popleft()
            result: EvalResult = yield job
            self._take(at, version, job, result)

    def _take(self, at: Seconds, version: ModelVersion, job: EvalJob, result: EvalResult) -> None:
        target = short(self._settings.target_metric)
        row: Row = {"time": at, "version": version, **result.metrics}
        if job.client_metrics:
            row["clients"] = [metrics[target] for metrics in result.by_client]
        if self.curve.add(row):
            self.best = job.state

    def to_json(self) -> dict[str, Any]:
        """Everything but the rows and the best model, while nothing is open."""
        return {"ticks": self._ticks, "measured": self._measured}

    def restore(self, state: dict[str, Any], rows: list[Row], best: FlatState | None) -> None:
        """Take over what `to_json` wrote, and the rows and best model kept beside it."""
        self._ticks, self._measured = state["ticks"], state["measured"]
        self.best = best
        self._restart_curve(rows)
