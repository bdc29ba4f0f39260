"""Progress of a federation: a live table in a terminal, plain lines elsewhere."""

from time import monotonic
from typing import TYPE_CHECKING, Any

from fedcompass.cli.progress import LiveTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from fedcompass.deployment.operator.run_view import RunView

__all__ = ["DeployProgress"]

_PLAIN = 5.0  # seconds between plain lines about a run that only goes on
_TOLD = (
    "joined",
    "turned away",
    "left",
    "refused",
    "task lost",
    "quarantined",
    "readmitted",
    "not readmitted",
)


class DeployProgress:
    """Shows a run on stderr.

    live: what shows it; use it in a `with`.
    """

    def __init__(self) -> None:
        self.live = LiveTable(lambda: self._table)
        self._shown = -_PLAIN
        self._table: Table | str = ""

    def show(self, view: "RunView") -> None:
        """Show where a run is."""
        news = view.refresh()
        for line in news:
            if line["what"] in _TOLD:
                self.live.say(_told(line))
        if self.live.is_live:
            self._table = _table(view)
        elif any(line["what"] in ("merged", "measured") for line in news):
            self._plain(view)

    def _plain(self, view: "RunView") -> None:
        now = monotonic()
        if now - self._shown >= _PLAIN:
            self._shown = now
            self.live.say(_line(view))


def _told(line: dict[str, Any]) -> str:
    who, what = line.get("who") or f"node {line.get('node')}", line["what"]
    why = line.get("reason") or line.get("why") or ""
    samples = f" with {line['samples']:,} samples" if "samples" in line else ""
    return f"{line.get('at', 0.0):7.1f} s  {who} {what}{samples}{': ' if why else ''}{why}"


def _measured(metrics: "Mapping[str, Any]", version: int) -> str:
    """The newest accuracy; whose it is, where the model has changed since it was measured."""
    if "accuracy" not in metrics:
        return ""
    behind = metrics["version"] != version
    return f"  accuracy {metrics['accuracy']:.1%}" + (
        f" (of version {metrics['version']})" if behind else ""
    )


def _line(view: "RunView") -> str:
    measured = _measured(view.metrics, view.tally.version)
    return (
        f"{view.seconds:7.1f} s  version {view.tally.version}{measured}  "
        f"{view.updates} answers from {len(view.sites)} sites"
    )


def _table(view: "RunView") -> "Table":
    from rich.table import Table

    table = Table(title=_line(view).strip(), title_justify="left", box=None, pad_edge=False)
    header, rows = view.table()
    for name in header:
        table.add_column(name, justify="left" if name in ("site", "last") else "right")
    for row in rows:
        table.add_row(*row)
    return table
