"""Progress on stderr: live in a terminal, a few plain lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Self

from fedcompass.cli.text import in_words
from fedcompass.number_text import metric_text
from fedcompass.own_code import short
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

    from fedcompass.data.fetch import Progress
    from fedcompass.experiment import Experiment
    from fedcompass.simulation.engine import Simulation

__all__ = ["LiveTable", "RunProgress", "TimeLeft", "bars"]

_REFRESH: Seconds = 0.2  # between two looks at a simulation
_FIRST: Seconds = 1.0  # until the first plain line
_PLAIN: Seconds = 15.0  # between two plain lines, in the end


class LiveTable:
    """Lines that stay; in a terminal they stand above a table that is drawn again and again.

    Elsewhere a plain line comes instead: soon, then now and then.

    table: makes the table, or its one line; called from another thread.
    line: makes the plain line, likewise; None: there is none.
    """

    def __init__(
        self, table: "Callable[[], Table | str]", line: Callable[[], str] | None = None
    ) -> None:
        self._table, self._line = table, line
        self._live: Live | None = None
        self._ended = Event()
        self._teller = Thread(target=self._tell, daemon=True)

    @property
    def is_live(self) -> bool:
        """Whether there is a terminal that shows the table."""
        return self._live is not None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._live = Live(console=console, get_renderable=self._shown, transient=True)
            self._live.start()
        elif self._line is not None:
            self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.stop()
        if self._teller.is_alive():
            self._teller.join()

    def say(self, line: str) -> None:
        """Show a line that stays."""
        if self._live is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._live.console.print(line, markup=False, highlight=False)

    def _shown(self) -> "RenderableType":
        from rich.text import Text

        table = self._table()
        return Text(table, no_wrap=True, overflow="ellipsis") if isinstance(table, str) else table

    def _tell(self) -> None:
        wait = _FIRST
        while self._line is not None and not self._ended.wait(wait):
            self.say(self._line())
            wait = min(wait * 4, _PLAIN)


class RunProgress:
    """Percent, virtual time, version, the target metric, steps per second and the time left.

    live: shows it; use it in a `with`.
    """

    def __init__(self, experiment: "Experiment") -> None:
        self._horizon = experiment.horizon
        self._metric = short(experiment.evaluation.target_metric)
        self._words = "preparing data and model"
        self._left = TimeLeft()
        self._first_steps: int | None = None
        self._updated = 0.0
        self.live = LiveTable(self._line, self._line)

    def update(self, simulation: "Simulation") -> None:
        """Take in where the simulation is, if it is time to."""
        now = monotonic()
        if now - self._updated < _REFRESH:
            return
        self._updated = now
        if self._first_steps is None:
            self._first_steps = simulation.steps  # a resumed run does not start at 0
        share = min(simulation.now / self._horizon, 1.0)
        self._left.reach(share)
        parts = [
            f"{share:4.0%}  t={simulation.now:.1f} of {self._horizon:g} s",
            f"version {simulation.coordinator.version}",
        ]
        if simulation.evaluations.rows:
            newest = simulation.evaluations.rows[-1][self._metric]
            parts.append(f"{self._metric} {metric_text(self._metric, newest)}")
        if steps := simulation.steps - self._first_steps:
            parts.append(f"{steps / self._left.elapsed:,.0f} steps/s")
        self._words = "  ".join(parts)

    def _line(self) -> str:
        return f"{self._words}  {self._left}"


class TimeLeft:
    """How long something still takes, by its share that is done.

    A share that was done before the first call took no time of ours.
    """

    def __init__(self) -> None:
        self._started = monotonic()
        self._first: float | None = None
        self._share = 0.0

    @property
    def elapsed(self) -> Seconds:
        """Seconds since it began."""
        return max(monotonic() - self._started, 1e-9)

    def reach(self, share: float) -> None:
        """Take in which share is done by now."""
        self._first = share if self._first is None else self._first
        self._share = share

    def __str__(self) -> str:
        done = self._share - (self._first or 0.0)
        if done <= 0:
            return f"{in_words(self.elapsed)} so far"
        return f"about {in_words(self.elapsed * (1 - self._share) / done)} left"


@contextmanager
def bars(
    title: str, told: Callable[[str, int], str], *, in_bytes: bool = False
) -> "Iterator[Progress]":
    """A bar for each part in a terminal, a line for each finished part elsewhere.

    Args:
        title: of a bar, with the part's name for {}.
        told: the line about a finished part of this size.
        in_bytes: sizes are bytes, not counts.
    """
    if not sys.stderr.isatty():

        def tell(part: str, done: int, total: int | None) -> None:
            if done == total:
                print(told(part, done), file=sys.stderr, flush=True)

        yield tell
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
