"""What a run is set up with: who holds which samples, and how fast the clients are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcompass.errors import SettingsError
from fedcompass.report.figures.run_records import RunRecord
from fedcompass.report.figures.style import new_figure, publication_style, save_figure
from fedcompass.settings.data import PartitionSettings
from fedcompass.settings.simulation import FleetSettings
from fedcompass.simulation.fleet import Fleet
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

__all__ = ["draw_fleet", "draw_fleets_of", "draw_partition", "draw_partition_of"]

_BAR, _RUG, _MEAN = "#7da7d9", "#1f4e79", "#c0392b"
_DPI = 150


def draw_partition_of(run: RunRecord, path: Path) -> None:
    """Draw who holds how many samples of which class in a run.

    Raises:
        DataError: the run's dataset is not there.
        SettingsError: the run is not a simulation's.
    """
    from fedcompass.data.catalogue import load
    from fedcompass.data.partition import split_counts

    data, split = _table(run, "data"), _table(run, "partition")
    clients, seed = _table(run, "fleet")["clients"], run.settings["seed"]
    loaded = load(data["name"], Path(data["root"]) if data.get("root") else None)
    settings = PartitionSettings(**split)
    title = f"{data['name']}, {settings.kind} partition, seed {seed}"
    with publication_style():
        draw_partition(split_counts(loaded, clients, settings, seed), path, title)


def draw_fleets_of(runs: Sequence[RunRecord], path: Path) -> None:
    """Draw how the clients' paces are spread; runs on the same fleet share a panel.

    Raises:
        SettingsError: a run is not a simulation's.
    """
    fleets: dict[str, Fleet] = {}
    for run in runs:
        fleet = Fleet(FleetSettings(**_table(run, "fleet")), run.settings["seed"])
        if all(fleet.paces != known.paces for known in fleets.values()):
            title = f"{fleet.settings.speed}, {len(fleet)} clients, seed {fleet.seed}"
            fleets[title if title not in fleets else f"{title}, {run.name}"] = fleet
    with publication_style():
        draw_fleet(fleets, path)


def _table(run: RunRecord, key: str) -> dict[str, Any]:
    table = run.settings.get(key)
    if not isinstance(table, dict) or "seed" not in run.settings:
        raise SettingsError(f"{run.files.path} does not say its {key}; give a simulated run")
    return table


def draw_partition(counts: "Tensor", path: Path, title: str = "") -> None:
    """Draw one stacked bar per client, one colour per class; the path's ending says the format.

    Args:
        counts: samples per client (row) and class (column), as `class_counts` gives them.
        path: where to write, e.g. `partition.png` or `partition.svg`.
        title: a line above the picture.
    """
    clients, classes = counts.shape
    figure = new_figure(min(max(5.0, 2.4 + 0.42 * clients), 16.0), 4.0)
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
    save_figure(figure, path, _DPI)


def _draw_bars(axes: "Axes", counts: "Tensor") -> None:
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


def _draw_legend(figure: Any, axes: "Axes") -> None:
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


def draw_fleet(fleets: Mapping[str, Fleet], path: Path) -> None:
    """Draw how the clients' seconds per step are spread: a histogram per fleet, side by side.

    The paper's figure of 50 clients (appendix "Details of Client Heterogeneity Simulation") is
    `draw_fleet({"normal": …, "exponential": …}, Path("fleets.png"))`.
    """
    figure = new_figure(4.6 * len(fleets), 3.4)
    panels = figure.subplots(1, len(fleets), squeeze=False)[0]
    for letter, (axes, (title, fleet)) in enumerate(zip(panels, fleets.items(), strict=True)):
        label = f"({chr(ord('a') + letter)}) {title}" if len(fleets) > 1 else title
        _draw_histogram(axes, label, fleet.paces)
    save_figure(figure, path, _DPI)


def _draw_histogram(axes: "Axes", title: str, paces: Sequence[Seconds]) -> None:
    """Bars for the counts, a tick below for each client, since bars hide a small fleet's paces."""
    bins = min(20, max(10, len(paces) // 3))
    axes.hist(paces, bins=bins, range=(0, max(paces)), color=_BAR, edgecolor="white")
    top = axes.get_ylim()[1]
    axes.plot(paces, [-0.03 * top] * len(paces), "|", color=_RUG, markersize=8, clip_on=False)
    axes.axvline(fmean(paces), color=_MEAN, linestyle="--", label=f"mean {fmean(paces):.3g} s")
    axes.set(xlabel="seconds per local step", ylabel="number of clients")
    axes.set(xlim=(0, 1.05 * max(paces)), ylim=(-0.06 * top, top))
    axes.set_title(title)
    axes.locator_params(axis="y", integer=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
