"""The paper's partition figure: who holds how many samples of which class."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedcompass.errors import MissingExtra, SettingsError

__all__ = ["draw_partition"]


def draw_partition(counts: Tensor, path: Path, title: str = "") -> None:
    """Draw one stacked bar per client, one colour per class; the path's ending says the format.

    Args:
        counts: samples per client (row) and class (column), as `class_counts` gives them.
        path: where to write, e.g. `partition.png` or `partition.svg`.
        title: a line above the picture.

    Raises:
        MissingExtra: matplotlib is not installed.
        SettingsError: the ending is not a picture format that matplotlib writes.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "drawing") from None
    clients, classes = counts.shape
    figure = Figure(figsize=(min(max(5.0, 2.4 + 0.42 * clients), 16.0), 4.0), layout="constrained")
    axes = figure.add_subplot()
    _draw_bars(axes, counts)
    axes.set(xlabel="client", ylabel="training samples", title=title)
    axes.set_xlim(-0.7, clients - 0.3)
    axes.set_ylim(0, 1.04 * float(counts.sum(dim=1).max()))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", zorder=0)
    if classes <= 20:
        _draw_legend(figure, axes)
    if path.suffix.removeprefix(".") not in figure.canvas.get_supported_filetypes():
        known = ", ".join(sorted(figure.canvas.get_supported_filetypes()))
        raise SettingsError(f"{path} has no ending for a picture; allowed: {known}")
    figure.savefig(path, dpi=150)


def _draw_bars(axes: Any, counts: Tensor) -> None:
    clients, classes = counts.shape
    places = np.arange(clients)
    bottom = np.zeros(clients)
    for label, colour in enumerate(_colours(classes)):
        heights = counts[:, label].cpu().numpy()
        axes.bar(
            places,
            heights,
            bottom=bottom,
            width=0.8,
            color=colour,
            label=str(label),
            edgecolor="white",
            linewidth=0.4 if clients <= 50 else 0.0,
            zorder=2,
        )
        bottom += heights
    if clients <= 30:
        axes.set_xticks(places)


def _draw_legend(figure: Any, axes: Any) -> None:
    """Beside the bars, in the order in which they are stacked."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles[::-1], labels[::-1], title="class", loc="outside right center", frameon=False
    )


def _colours(classes: int) -> list[Any]:
    """Colours that differ: the ten or twenty of a qualitative map, else spread over a wheel."""
    from matplotlib import colormaps

    if classes <= 20:
        chosen = colormaps["tab10" if classes <= 10 else "tab20"]
        return [chosen(label) for label in range(classes)]
    return [colormaps["turbo"](label / (classes - 1)) for label in range(classes)]
