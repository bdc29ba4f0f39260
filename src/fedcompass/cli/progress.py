"""Progress on stderr: live in a terminal, a few plain lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Self, TypeAlias

from fedcompass.cli.text import metric_text
from fedcompass.own_code import short

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from fedcompass.experiment import Experiment
    from fedcompass.simulation.engine import Simulation

__all__ = ["LiveTable", "RunProgress", "bars"]

_Show: TypeAlias = Callable[[str, int, int | None], None]
"""Told a part's name, how much of it is done, and how much there is (if known)."""

_REFRESH = 0.2  # seconds between refreshes in a terminal
_PLAIN = 15.0  # seconds between lines elsewhere


class RunProgress:
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
        metric = short(self._experiment.evaluation.target_metric)
        if simulation.evaluations.rows:
            newest = simulation.evaluations.rows[-1][metric]
            parts.append(f"{metric} {metric_text(metric, newest)}")
        from fedcompass.scheduling.compass import Compass

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

    def __exit__(self, *_: object) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class LiveTable:
    """Lines that stay; in a terminal they stand above a table that is drawn again and again.

    table: makes the table; called from another thread.
    """

    def __init__(self, table: "Callable[[], Table | str]") -> None:
        self._table = table
        self._live: Live | None = None

    @property
    def is_live(self) -> bool:
        """Whether there is a terminal that shows the table."""
        return self._live is not None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._live = Live(console=console, get_renderable=self._table, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: str) -> None:
        """Show a line that stays."""
        if self._live is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._live.console.print(line, markup=False, highlight=False)


@contextmanager
def bars(title: str, told: Callable[[str, int], str], *, in_bytes: bool = False) -> Iterator[_Show]:
    """A bar for each part in a terminal, a line for each finished part elsewhere.

    Args:
        title: of a bar, with the part's name for {}.
        told: the line about a finished part of this size.
        in_bytes: sizes are bytes, not counts.
    """
    if not sys.stderr.isatty():
        yield lambda part, done, total: _tell_when_done(told, part, done, total)
        return
    from rich import progress as rich
    from rich.console import Console

    text = rich.TextColumn("{task.description}", markup=False)
    sizes = [rich.DownloadColumn(), rich.TransferSpeedColumn()]
    counts = sizes if in_bytes else [rich.MofNCompleteColumn()]
    columns = (text, rich.BarColumn(), *counts, rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=Console(stderr=True)) as shown:
        tasks: dict[str, rich.TaskID] = {}

        def show(part: str, done: int, total: int | None) -> None:
            if part not in tasks:
                tasks[part] = shown.add_task(title.format(part), total=None)
            shown.update(tasks[part], completed=done, total=total)

        yield show


def _tell_when_done(
    told: Callable[[str, int], str], part: str, done: int, total: int | None
) -> None:
    if done == total:
        print(told(part, done), file=sys.stderr, flush=True)
