"""A progress bar for `simulate(progress=True)`: in a terminal, or as a notebook draws it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedcompass.vocabulary import Seconds

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(title: str, horizon: Seconds) -> Iterator[Callable[[Seconds, str], None]]:
    """A bar up to a time; tell it how far things are, and some words about them."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    words = TextColumn("{task.fields[words]}", markup=False)
    text = TextColumn("{task.description}", markup=False)
    with Progress(text, BarColumn(), TaskProgressColumn(), words, TimeLeft()) as shown:
        bar = shown.add_task(title, total=horizon, words="")
        yield lambda now, told: shown.update(bar, completed=min(now, horizon), words=told)
