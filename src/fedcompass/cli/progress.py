"""Progress of a run: a live line in a terminal, a few plain lines elsewhere."""

import sys
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fedcompass.cli.metric_text import metric_text
from fedcompass.scheduling.compass import Compass

if TYPE_CHECKING:
    from fedcompass.experiment import Experiment
    from fedcompass.simulation.engine import Simulation

__all__ = ["Progress"]

_REFRESH = 0.2  # seconds between refreshes in a terminal
_PLAIN = 15.0  # seconds between lines elsewhere


class Progress:
    """Shows virtual time, version, the target metric, open groups, steps per second and the ETA."""

    def __init__(self, experiment: "Experiment") -> None:
        self._experiment = experiment
        self._live = sys.stderr.isatty()
        self._started = self._shown = monotonic()
        self._first_steps: int | None = None

    def update(self, simulation: "Simulation") -> None:
        """Show where the simulation is, if it is time to."""
        now = monotonic()
        if self._first_steps is None:
            self._first_steps = simulation.steps  # a resumed run does not start at 0
        if now - self._shown < (_REFRESH if self._live else _PLAIN):
            return
        self._shown = now
        end = "" if self._live else "\n"
        start = "\r\x1b[K" if self._live else ""
        print(start + self._line(simulation, now), end=end, file=sys.stderr, flush=True)

    def _line(self, simulation: "Simulation", now: float) -> str:
        elapsed = max(now - self._started, 1e-9)
        share = min(simulation.now / self._experiment.horizon, 1.0)
        parts = [
            f"{share:4.0%}  t={simulation.now:.1f}s",
            f"version {simulation.coordinator.version}",
        ]
        metric = self._experiment.evaluation.target_metric
        if simulation.evaluations.rows:
            newest = simulation.evaluations.rows[-1][metric]
            parts.append(f"{metric} {metric_text(metric, newest)}")
        policy = simulation.coordinator.scheduler.policy
        if isinstance(policy, Compass):
            parts.append(f"{len(policy.open_groups)} groups")
        steps = simulation.steps - (self._first_steps or 0)
        parts.append(f"{steps / elapsed:,.0f} steps/s")
        if share > 0:
            parts.append(f"ETA {elapsed * (1 - share) / share:.0f} s")
        return "  ".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
