"""The two figures of docs/as-run.md, drawn from stored runs; they need `plot`."""

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcompass.errors import SettingsError
from fedcompass.paper.cells import Cell
from fedcompass.paper.comparing import Share
from fedcompass.paper.figures import DPI, legend_below, named_handles
from fedcompass.paper.finding import ROWS, SPEED_WORDS, Finding, short_partition
from fedcompass.paper.hyperparameters import longest_run, row_horizons
from fedcompass.paper.stored_runs import StoredRun, StoredRuns
from fedcompass.report.figures.style import new_figure, save_figure
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_signs", "draw_times", "reached_within"]

_STYLES: dict[str, dict[str, Any]] = {
    "paper": {"marker": "D", "facecolor": "white", "edgecolor": "black"},
    "as written": {"marker": "o", "facecolor": "#1f77b4", "edgecolor": "#1f77b4"},
    "as run": {"marker": "s", "facecolor": "#d62728", "edgecolor": "#d62728"},
}
_LEAST, _MOST, _MISSED = 0.3, 16.0, 26.0  # of the axis; and where a dash stands
_SIGNED = ("fedcompass", "fedasync", "fedbuff")
_PAIRS = {
    ("", "@sign"): "drawn fleets, another for each seed; blue is the paper as written",
    ("", "@as-run"): "blue as written, red as run, with all other habits of that code",
}
_SIGN_COLOURS = ("#1f77b4", "#d62728")


def draw_times(results: StoredRuns, path: Path) -> None:
    """Time to target relative to FedCompass, a panel for each MNIST cell, three marks a row.

    Raises:
        SettingsError: there is no run to draw.
    """
    finding = Finding(results)
    if not any(one.has_runs(finding.cells) for one in (finding.written, finding.as_run)):
        raise SettingsError("figure-times has no results yet; run: fedcompass paper run table-1")
    columns = list(dict.fromkeys((cell.block, cell.clients) for cell in finding.cells))
    figure = new_figure(2.3 * len(columns), 2.3 * len(SPEED_WORDS) + 0.8)
    panels = figure.subplots(len(SPEED_WORDS), len(columns), sharex=True, sharey=True)
    for cell in finding.cells:
        place = list(SPEED_WORDS).index(cell.speed), columns.index((cell.block, cell.clients))
        _draw_times_of(panels[place], cell, finding)
    for speed, axes in zip(SPEED_WORDS, panels[:, 0], strict=True):
        axes.set_ylabel(f"{SPEED_WORDS[speed]} speeds", fontsize=9)
    legend_below(figure, named_handles(panels[0][0]), 3)
    figure.suptitle(
        "time to 90% on MNIST relative to FedCompass's (the line at 1); ✕: fewer than half of the "
        "runs reached it",
        fontsize=9,
    )
    save_figure(figure, path, DPI)


def _draw_times_of(axes: "Axes", cell: Cell, finding: Finding) -> None:
    axes.set_xscale("log")
    axes.axvline(1, color="0.6", linewidth=0.8)
    for (number, row), (offset, name) in product(
        enumerate(ROWS), enumerate(("paper", "as written", "as run"))
    ):
        drawn = _relative_time(finding, cell, row, name)
        if drawn is None:
            continue
        style, height = _STYLES[name], -number - 0.24 * (offset - 1)
        if drawn > _MOST:
            axes.scatter([_MISSED], [height], marker="x", s=14, color=style["edgecolor"])
        else:
            axes.scatter([drawn], [height], s=16, linewidth=0.8, **style)
    for name, style in _STYLES.items():
        axes.scatter([], [], s=16, linewidth=0.8, label=name, **style)
    missed = [
        f"{name} FedCompass reached it in {item.reached}/{item.seeds}"
        for name, item in ((n, finding.at(n, cell, "fedcompass")) for n in finding.both)
        if item.seeds and 2 * item.reached < item.seeds
    ]
    axes.text(0.02, 0.02, "\n".join(missed), transform=axes.transAxes, fontsize=6, color="0.3")
    axes.set_yticks([-number for number in range(len(ROWS))], ROWS, fontsize=7)
    axes.set_xticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"], fontsize=7)
    axes.minorticks_off()
    axes.set(xlim=(_LEAST, 1.4 * _MISSED), ylim=(0.3 - len(ROWS) - 0.6, 0.6))
    axes.set_title(f"{short_partition(cell)}, m={cell.clients}", fontsize=8)
    axes.grid(axis="y", color="0.93", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _relative_time(finding: Finding, cell: Cell, row: str, name: str) -> float | None:
    """None: nothing to draw; beyond the axis: missed, though FedCompass did not."""
    if name == "paper":
        printed = finding.written.at(cell, row).printed
        return None if printed is None else printed.mean or _MISSED
    item = finding.at(name, cell, row)
    if item.value is not None or not item.seeds:
        return item.value
    return _MISSED if 2 * item.reached < item.seeds else None


def draw_signs(results: StoredRuns, path: Path) -> None:
    """Accuracy over time, a line a run up to its target: both signs of the staleness exponent.

    As written and with the other sign alone; where there are no such runs, as written and as run.
    Both are shown and counted within the horizon of the runs as written.

    Raises:
        SettingsError: there is no run to draw.
    """
    cells = [cell for cell in Finding(results).cells if cell.speed == "exp"]
    pair = next((pair for pair in _PAIRS if _signed_runs(results, cells, pair)), None)
    if pair is None:
        raise SettingsError("figure-signs has no results yet; run: fedcompass paper run habits")
    figure = new_figure(2.5 * len(cells), 2.1 * len(_SIGNED) + 0.8)
    panels = figure.subplots(len(_SIGNED), len(cells), sharey=True)
    for (row, name), (column, cell) in product(enumerate(_SIGNED), enumerate(cells)):
        _draw_signs_of(panels[row][column], cell, name, results, pair)
    for axes in panels[:, 0]:
        axes.set_ylabel("accuracy (%)", fontsize=8)
    for axes in panels[-1]:
        axes.set_xlabel("mean rounds", fontsize=8)
    legend_below(figure, named_handles(panels[0][0]), 2)
    rounds = row_horizons(cells[0], _SIGNED[0]).target
    figure.suptitle(
        f"accuracy over time on MNIST, exponential speeds, both signs; {_PAIRS[pair]}\n"
        f"a line a seed, up to its target (a dot); above each panel: runs that reached 90% within "
        f"{rounds:g} mean rounds, blue then red",
        fontsize=9,
    )
    save_figure(figure, path, DPI)


def _signed_runs(results: StoredRuns, cells: list[Cell], pair: tuple[str, str]) -> list[StoredRun]:
    """Runs of either sign; none if one of the signs has none."""
    both = [
        [
            run
            for cell, name in product(cells, _SIGNED)
            for run in results.runs(cell, f"{name}{choice}", to_target=True)
        ]
        for choice in pair
    ]
    return [run for runs in both for run in runs] if all(both) else []


def _draw_signs_of(
    axes: "Axes", cell: Cell, name: str, results: StoredRuns, pair: tuple[str, str]
) -> None:
    counts = []
    signs = ("a stale update weighs less, (u+1)^-0.5", "a stale update weighs more, (u+1)^0.5")
    for choice, colour, sign in zip(pair, _SIGN_COLOURS, signs, strict=True):
        runs = results.runs(cell, f"{name}{choice}", to_target=True)
        axes.plot([], [], color=colour, label=sign)
        for run in runs:
            _draw_run(axes, run, row_horizons(cell, name).target / longest_run(cell, name), colour)
        counts.append(reached_within(runs, longest_run(cell, name)))
    axes.axhline(100 * cell.settings.target, color="0.6", linewidth=0.8, linestyle=":")
    axes.set_title(
        f"{name}, {short_partition(cell)}, m={cell.clients}: {', '.join(map(str, counts))}",
        fontsize=7,
    )
    axes.set(xlim=(0, row_horizons(cell, name).target), ylim=(0, 100))
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def reached_within(runs: list[StoredRun], horizon: Seconds) -> Share:
    """How many runs reached the target by then."""
    return Share(sum(run.time is not None and run.time <= horizon for run in runs), len(runs))


def _draw_run(axes: "Axes", run: StoredRun, second: float, colour: str) -> None:
    """Up to its target, though it may have gone on; `second` is in mean rounds."""
    ends = run.horizon if run.time is None else run.time * 1.00001  # a curve's times are rounded
    shown = [(at * second, 100 * value) for at, value in run.curve if at <= ends]
    axes.plot(*zip(*shown, strict=True), color=colour, linewidth=0.6, alpha=0.6)
    if run.time is not None and shown:
        axes.plot(*shown[-1], marker="o", markersize=3, color=colour)
