"""Pictures of a simulated fleet; they need the `plot` extra."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from fedcompass.errors import MissingExtra, SettingsError
from fedcompass.simulation.fleet import Fleet
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Paces", "draw_fleet"]

Paces: TypeAlias = Fleet | Sequence[Seconds]
"""A fleet, or the seconds per step of its clients."""

_BAR, _RUG, _MEAN = "#7da7d9", "#1f4e79", "#c0392b"


def draw_fleet(fleets: Mapping[str, Paces] | Paces, path: Path | str) -> Path:
    """Draw how the clients' seconds per step are spread: a histogram per fleet, side by side.

    The paper's figure of 50 clients (appendix "Details of Client Heterogeneity Simulation") is
    `draw_fleet({"normal": …, "exponential": …}, "fleets.png")`. The format is the path's suffix;
    missing folders are made.

    Raises:
        MissingExtra: matplotlib is not installed.
        SettingsError: there is nothing to draw, or the suffix is no picture format.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "drawing") from None
    titled = {title: _paces(f) for title, f in _by_title(fleets).items()}
    if not titled or not all(titled.values()):
        raise SettingsError("there is no client to draw; give at least one pace per fleet")
    figure = Figure(figsize=(4.6 * len(titled), 3.4), layout="constrained")
    panels = figure.subplots(1, len(titled), squeeze=False)[0]
    for letter, (axes, (title, paces)) in enumerate(zip(panels, titled.items(), strict=True)):
        label = f"({chr(ord('a') + letter)}) {title}" if len(titled) > 1 else title
        _draw_histogram(axes, label, paces)
    return _save(figure, Path(path))


def _by_title(fleets: Mapping[str, Paces] | Paces) -> Mapping[str, Paces]:
    if isinstance(fleets, Mapping):
        return fleets
    return {fleets.settings.speed if isinstance(fleets, Fleet) else "": fleets}


def _paces(fleet: Paces) -> Sequence[Seconds]:
    return fleet.paces if isinstance(fleet, Fleet) else fleet


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


def _save(figure: "Figure", path: Path) -> Path:
    formats = figure.canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in formats:
        raise SettingsError(
            f"picture {str(path)!r} has the suffix {path.suffix!r}; "
            f"allowed: {', '.join(sorted(f'.{kind}' for kind in formats))}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
