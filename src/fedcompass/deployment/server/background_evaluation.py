"""Measuring merged models beside the loop: it never waits, and a slow measure skips versions."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from fedcompass.aggregation import FlatState
from fedcompass.vocabulary import ModelVersion, Seconds

__all__ = ["BackgroundEvaluation", "Evaluate", "EvaluationResult"]

Evaluate: TypeAlias = Callable[[ModelVersion, FlatState], dict[str, float]]
"""The metrics of a version's model, by name; called in a thread of its own, one at a time."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """A version's metrics, or why there are none (yet)."""

    version: ModelVersion
    time: Seconds
    model: FlatState
    metrics: dict[str, float] = field(default_factory=dict)
    error: str | None = None


class BackgroundEvaluation:
    """Measures one model at a time; of those offered meanwhile, the newest is next."""

    def __init__(self, evaluate: Evaluate | None) -> None:
        self._evaluate = evaluate
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluation")
        self._running: Future[EvaluationResult] | None = None
        self._next: EvaluationResult | None = None
        self._latest: ModelVersion = -1  # offered

    def offer(self, version: ModelVersion, time: Seconds, model: FlatState) -> None:
        """Have a model measured, soon; nobody else may change it."""
        if self._evaluate is not None and version != self._latest:
            self._latest = version
            self._next = EvaluationResult(version, time, model)
            self._go_on()

    def measured(self) -> list[EvaluationResult]:
        """What is done since the last call."""
        if self._running is None or not self._running.done():
            return []
        done, self._running = self._running.result(), None
        self._go_on()
        return [done]

    def wait(self) -> list[EvaluationResult]:
        """Everything offered and not skipped."""
        done = []
        while self._running is not None:
            self._running.result()
            done += self.measured()
        return done

    def close(self) -> None:
        """Give up what has not begun."""
        self._next = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _go_on(self) -> None:
        if self._running is None and self._next is not None:
            offer, self._next = self._next, None
            self._running = self._thread.submit(self._measure, offer)

    def _measure(self, offer: EvaluationResult) -> EvaluationResult:
        assert self._evaluate is not None  # nothing is offered otherwise
        try:
            metrics = self._evaluate(offer.version, offer.model)
        except Exception as error:  # the user's code; a run is not lost for it
            return replace(offer, error=f"{type(error).__name__}: {error}")
        return replace(offer, metrics=metrics)
