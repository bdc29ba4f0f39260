"""Progress of a federation: a live table in a terminal, plain lines elsewhere."""

from time import monotonic
from typing import TYPE_CHECKING

from fedcompass.cli.progress import LiveTable
from fedcompass.cli.text import plain_table
from fedcompass.deployment.server.audit_words import in_words
from fedcompass.number_text import metric_text, number_of
from fedcompass.runs.curve import metrics_of

if TYPE_CHECKING:
    from fedcompass.deployment.operator.run_view import RunView

__all__ = ["DeployProgress", "failed_sums", "measured"]

_PLAIN = 5.0  # seconds between plain lines about a run that only goes on


class DeployProgress:
    """Shows a run on stderr.

    Args:
        address: where sites reach the server, to be told each time that it listens there.

    live: what shows it; use it in a `with`.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = address
        self.live = LiveTable(lambda: self._table)
        self._shown = -_PLAIN
        self._table = ""

    def show(self, view: "RunView") -> None:
        """Show where a run is."""
        news, now = view.refresh(), monotonic()
        for line in news:
            if self._address is not None and line["what"] in ("started", "resumed"):
                self.live.say(f"waiting for sites at {self._address}")
            if told := in_words(line):
                self.live.say(told)
        if self.live.is_live:
            self._table = f"{_line(view).strip()}\n{plain_table(*view.table(), left=(0, 1))}"
        elif now - self._shown >= _PLAIN and any(n["what"] in ("merged", "measured") for n in news):
            self._shown = now
            self.live.say(_line(view))


def measured(view: "RunView", *, in_short: bool = False) -> str:
    """The newest metrics, the target's first, and of which version where that is not the last.

    `in_short` leaves out built-in ones that are not the target's, if there are others.
    """
    from fedcompass.settings.training import METRICS  # with pydantic, which readers spare

    metrics, target = metrics_of(view.metrics), view.target_metric
    names = sorted(metrics, key=lambda name: name != target)
    if in_short:
        names = [name for name in names if name == target or name not in METRICS] or names
    told = "".join(f"  {name} {metric_text(name, metrics[name])}" for name in names)
    version = view.metrics.get("version", view.tally.version)
    return f"{told} (of version {version})" if told and version != view.tally.version else told


def _line(view: "RunView") -> str:
    failed = f"  {failed_sums(view)}" if view.tally.failed_merges else ""
    return (
        f"{view.seconds:7.1f} s  version {view.tally.version}{measured(view, in_short=True)}  "
        f"{number_of(view.updates, 'answer')} from {number_of(len(view.sites), 'site')}{failed}"
    )


def failed_sums(view: "RunView") -> str:
    """How many sums could not be opened, and what that cost."""
    tally = view.tally
    lost = number_of(tally.lost_updates, "update")
    return f"{number_of(tally.failed_merges, 'sum')} failed, {lost} lost"
