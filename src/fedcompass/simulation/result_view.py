"""A result to look at: some lines of text, and the curve and the timeline as SVG for notebooks."""

from collections.abc import Iterator, Mapping
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Any

from fedcompass.number_text import metric_text, number_of
from fedcompass.runs.journal import read_journal
from fedcompass.runs.tally import LocalRound, Tally
from fedcompass.settings.training import best_in_words
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from fedcompass.simulation.result import Result

__all__ = ["as_html", "as_text", "model_sent", "outcome_lines"]

_WIDTH, _HEIGHT, _LEFT, _LANE = 640, 220, 70, 20  # pixels
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7f00")
_WARM_UP = "#a9b2bd"
_MOST_LANES, _MOST_BARS = 40, 4000


def as_text(result: "Result") -> str:
    """About ten lines: what was run, what came out, and where it is."""
    return "\n".join(f"{name:<18} {value}" for name, value in _rows(result))


def as_html(result: "Result") -> str:
    """The same as a table, below the curve and the timeline."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in _rows(result)
    )
    return f"<div>{_curve(result)}{_timeline(result)}<table>{rows}</table></div>"


def _rows(result: "Result") -> Iterator[tuple[str, str]]:
    experiment, summary = result.experiment, result.summary
    data = experiment.problem or f"{experiment.data.name} ({experiment.model})"
    yield "Result", f"{summary['strategy']}, seed {summary['seed']}"
    yield "problem", data
    yield from outcome_lines(result)
    yield "curve", f"{len(result.curve)} evaluations, as records in .curve"
    yield "model", f"{len(result.model)} tensors by name, in .model and .best_model"
    if (sent := model_sent(summary)) is not None:
        yield "model sent", sent
    yield "folder", str(result.folder or "none: kept in memory only")


def outcome_lines(result: "Result") -> Iterator[tuple[str, str]]:
    """What came out, in words: what each number is, and the number."""
    summary = result.summary
    metric, target, reached = (summary[k] for k in ("target_metric", "target", "time_to_target"))
    if target is not None and result.curve:
        when = "not reached" if reached is None else f"after {reached:.1f} s of virtual time"
        yield f"{metric} {metric_text(metric, target, 0)}", when
    if result.curve:
        top, final = (metric_text(metric, summary[f"{at}_{metric}"]) for at in ("top", "final"))
        yield best_in_words(metric), f"{top} at {summary['time_of_top']:.1f} s; {final} at the end"
    updates = number_of(summary["updates"], "client update")
    yield "global updates", f"{summary['global_updates']} from {updates}"
    ended = f"{summary['virtual_seconds']:.0f} s of virtual time"
    yield "local steps", f"{summary['local_steps']:,} in {ended}"
    yield "clients waited", f"{summary['idle_share']:.0%} of their time{_by_plan(summary)}"
    worst = summary["max_staleness"]
    yield "staleness", f"{summary['mean_staleness']:.2f} on average, at most {worst}"


def _by_plan(summary: Mapping[str, Any]) -> str:
    """How much of the waiting was meant: clients were ahead of their group or beat."""
    share = summary["ahead_share"]
    return f", {share:.0%} by plan" if share >= 0.005 else ""


def model_sent(summary: Mapping[str, Any]) -> str | None:
    """How many parameters travel; None where all do."""
    if "parameters_sent" not in summary:
        return None
    sent, whole = summary["parameters_sent"], summary["parameters"]
    return f"{sent:,} of {whole:,} parameters travel; the others are frozen"


def _curve(result: "Result") -> str:
    """The target metric over virtual time."""
    metric = result.summary["target_metric"]
    points = [(row["time"], row.get(metric)) for row in result.curve]
    known = [(x, float(y)) for x, y in points if y is not None and isfinite(y)]
    if not known:
        return ""
    target = result.summary["target"]
    values = [y for _, y in known] + ([] if target is None else [target])
    low, high, end = min(values), max(values), max(result.summary["virtual_seconds"], 1e-9)
    span = high - low or 1.0

    def place(x: float, y: float) -> str:
        across = _LEFT + (_WIDTH - _LEFT - 10) * x / end
        return f"{across:.1f},{_HEIGHT - 30 - (_HEIGHT - 50) * (y - low) / span:.1f}"

    line = f'<polyline points="{" ".join(place(*p) for p in known)}" fill="none" '
    line += f'stroke="{_COLOURS[0]}" stroke-width="2"/>'
    words = [
        _label(place(0, low), metric_text(metric, low)),
        _label(place(0, high), metric_text(metric, high)),
    ]
    if target is not None:
        ends = f"{place(0, target)} {place(end, target)}"
        line += f'<polyline points="{ends}" stroke="gray" stroke-dasharray="2 4"/>'
    title = f"{metric} over virtual time (0 to {end:.0f} s)"
    return _svg(_HEIGHT, [line, *words, _title(title, _HEIGHT - 8)])


def _timeline(result: "Result") -> str:
    """Who trained when: a lane per client, a bar per local round, coloured by group."""
    end = max(result.summary["virtual_seconds"], 1e-9)
    rounds = _rounds(result)
    clients = sorted({each.client for each in rounds}, key=lambda name: (len(name), name))
    lanes = {client: number for number, client in enumerate(clients[:_MOST_LANES])}
    if not lanes:
        return ""
    shapes = [_bar(each, lanes[each.client], end) for each in rounds if each.client in lanes]
    names = [_label(f"{_LEFT},{lane * _LANE + 14}", name) for name, lane in lanes.items()]
    height = len(lanes) * _LANE + 26
    title = "local training of each client over virtual time; bars of one colour are one group"
    return _svg(height, [*shapes, *names, _title(title, height - 6)])


def _bar(each: LocalRound, lane: int, run_end: Seconds) -> str:
    scale = (_WIDTH - _LEFT - 10) / run_end
    end = run_end if each.outcome == "under way" else each.end
    return (
        f'<rect x="{_LEFT + each.start * scale:.1f}" y="{lane * _LANE + 4}" '
        f'width="{max((end - each.start) * scale - 0.5, 0.5):.1f}" height="{_LANE - 5}" '
        f'fill="{_WARM_UP if each.group is None else _COLOURS[each.group % len(_COLOURS)]}"/>'
    )


def _rounds(result: "Result") -> list[LocalRound]:
    journal = result.folder and result.folder / "journal.jsonl"
    if not journal or not journal.is_file():
        return result.tasks[:_MOST_BARS]
    rounds: list[LocalRound] = []
    tally = Tally(on_round=rounds.append)
    for _, record in read_journal(journal):
        tally.take(record)
    return rounds[:_MOST_BARS]


def _svg(height: int, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="11" '
        f'fill="currentColor">{"".join(parts)}</svg>'
    )


def _label(place: str, text: str) -> str:
    x, y = place.split(",")
    return f'<text x="{float(x) - 6:.1f}" y="{y}" text-anchor="end">{escape(text)}</text>'


def _title(text: str, y: int) -> str:
    return f'<text x="{_LEFT}" y="{y}">{escape(text)}</text>'
