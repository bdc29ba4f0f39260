"""A result as a person meets it: printed, in a notebook, drawn, and with a bar while it is made."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.simulation.tiny_runs import eventful, experiment, problem

from fedcompass.errors import SettingsError
from fedcompass.report.figures.timeline_data import read_timeline
from fedcompass.simulation.result import Result
from fedcompass.simulation.run import simulate


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(experiment(), problem=problem())


def test_a_result_prints_about_ten_lines(result: Result) -> None:
    lines = repr(result).splitlines()
    assert 8 <= len(lines) <= 12
    assert max(map(len, lines)) <= 100
    assert lines[0] == "Result             fedcompass, seed 0"
    assert any(line.startswith("top accuracy") for line in lines)
    assert lines[-1].endswith("none: kept in memory only")


def test_a_notebook_shows_the_curve_and_the_timeline(result: Result, tmp_path: Path) -> None:
    html = result._repr_html_()
    curve, timeline, _ = ET.fromstring(html)
    assert curve.findall(".//{*}polyline")
    bars = timeline.findall(".//{*}rect")
    kept = simulate(experiment(), problem=problem(), folder=tmp_path / "run")
    assert kept.tasks == []
    assert len(ET.fromstring(kept._repr_html_())[1].findall(".//{*}rect")) == len(bars) > 4


def test_a_bar_ends_when_its_client_leaves_as_in_every_other_timeline(tmp_path: Path) -> None:
    chosen = eventful("fedcompass")
    kept = simulate(chosen, problem=problem(), folder=tmp_path / "run")
    end = kept.summary["virtual_seconds"]
    rounds = read_timeline(tmp_path / "run" / "journal.jsonl", end).rounds
    assert any(each.outcome == "lost" for each in rounds)
    expected = sorted(max((each.end - each.start) * 560 / end - 0.5, 0.5) for each in rounds)
    for result in (kept, simulate(chosen, problem=problem())):
        bars = ET.fromstring(result._repr_html_())[1].findall(".//{*}rect")
        shown = sorted(float(bar.attrib["width"]) for bar in bars)
        assert shown == pytest.approx(expected, abs=0.06)


def test_a_result_of_a_schedule_alone_shows_its_timeline() -> None:
    scheduled = simulate(experiment(), executor="none")
    assert "top accuracy" not in repr(scheduled)
    (timeline, _) = ET.fromstring(scheduled._repr_html_())
    assert timeline.findall(".//{*}rect")


def test_a_result_draws_its_curve(result: Result) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    axes = result.plot()
    assert axes.get_ylabel() == "accuracy"
    assert result.plot("loss", axes=axes) is axes
    with pytest.raises(SettingsError, match="metric is 'f1'; measured were"):
        result.plot("f1")
    from matplotlib import pyplot

    pyplot.close("all")


def test_a_bar_shows_how_far_a_simulation_is(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []
    simulate(
        experiment(), problem=problem(), progress=True, on_progress=lambda s: seen.append(s.now)
    )
    assert seen
    shown = capsys.readouterr().out
    assert "fedcompass" in shown
    assert "accuracy" in shown
