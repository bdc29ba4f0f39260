"""What the page says of many runs: means over seeds, ranks, speeds; as tables and figures do."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.report.conftest import report_of
from tests.report.figures.run_folders import accuracies, written_run
from tests.simulation.tiny_runs import experiment, problem

from fedcompass.report.figures.curves import mean_curve
from fedcompass.report.figures.run_records import read_runs, seed_groups
from fedcompass.report.figures.style import COLOURS, DASHES, bar_look, line_look
from fedcompass.simulation.fleet import Fleet
from fedcompass.simulation.run import simulate

Open = Callable[..., Page]

CURVES = "() => fedcompass.state.groups.map((group) => group.curve('accuracy', 'time'))"
LOOKS = "() => fedcompass.state.groups.map((group) => [group.colour, group.dash, group.pale])"
SERIES = """() => [...document.querySelectorAll("#curves path.series")].map((path) =>
  [path.getAttribute("stroke"), path.getAttribute("stroke-dasharray")])"""


JOINED = {"event": "ClientJoined", "at": 0.0, "client": "0", "samples": 20}


def many_runs(root: Path) -> None:
    """Seeds measured at other times, that end early, late, at their target or are under way."""
    dice = random.Random(4)
    kinds: dict[str, dict[str, Any]] = {
        "full": {},
        "limited": {"max_updates": 6},
        "single": {},
        "longer": {"max_updates": 6, "run_at_least": 8.0},
        "unfinished": {"finished": False, "journal": [JOINED]},
    }
    for name, options in kinds.items():
        for seed in range(1 if name == "single" else 3):
            times = sorted(round(dice.uniform(0, 9), 2) for _ in range(5))
            rows = accuracies((0.1 * seed, 0.1), *((time, dice.random()) for time in times))
            settings: dict[str, Any] = {"seed": seed, "strategy": {"name": name}, **options}
            written_run(root / f"{name}-{seed}", rows, **settings)


def test_the_pages_mean_curves_are_those_of_the_figures(tmp_path: Path, open_page: Open) -> None:
    many_runs(tmp_path / "runs")
    page = open_page(report_of(tmp_path / "runs", to=tmp_path / "report.html"))
    groups = seed_groups(read_runs([tmp_path / "runs"]))
    assert len(groups) == 5
    for group, seen in zip(groups, page.evaluate(CURVES), strict=True):
        band = mean_curve(group.runs, "accuracy")
        assert [x for x, _ in seen["points"]] == pytest.approx(band.times.tolist())
        assert [y for _, y in seen["points"]] == pytest.approx(band.mean.tolist())
        if band.spread is None:
            assert seen["band"] == []
        else:
            spread = [(high - low) / 2 for _, low, high in seen["band"]]
            assert spread == pytest.approx(band.spread.tolist(), abs=1e-6)


def test_a_mean_over_seeds_does_not_lose_a_seed_at_its_end(tmp_path: Path, open_page: Open) -> None:
    written_run(tmp_path / "0", accuracies((0, 0.1), (9, 0.822)), seed=0)
    written_run(tmp_path / "1", accuracies((0, 0.1), (8, 0.724)), seed=1)
    page = open_page(report_of(tmp_path / "0", tmp_path / "1", to=tmp_path / "report.html"))
    (curve,) = page.evaluate(CURVES)
    assert curve["points"][-1] == [10.0, pytest.approx(0.773)]
    expect(page.locator("#strategies")).to_be_hidden()
    label = page.locator("#curves svg[role=img]").get_attribute("aria-label")
    assert label == "accuracy over time: fedcompass ends at 77.3%"


def run_with(folder: Path, name: str, seed: int, reached: float | None) -> None:
    rows = accuracies((0, 0.1), (reached or 50.0, 0.9 if reached else 0.5))
    settings: dict[str, Any] = {"seed": seed, "target": 0.8, "horizon": 60.0}
    settings["strategy"] = {"name": name}
    joined = {"event": "ClientJoined", "at": 0.0, "client": "0", "samples": 1}
    written_run(folder / f"{name}-{seed}", rows, [joined], **settings)


def test_strategies_are_ranked_by_the_times_that_are_told(tmp_path: Path, open_page: Open) -> None:
    for seed, (avg, buff) in enumerate([(25.33, 41.0), (None, 42.0), (None, 41.5)]):
        run_with(tmp_path / "runs", "fedavg", seed, avg)
        run_with(tmp_path / "runs", "fedbuff", seed, buff)
        run_with(tmp_path / "runs", "fedcompass", seed, 10.0 + seed)
    page = open_page(report_of(tmp_path / "runs", to=tmp_path / "report.html"))
    expect(page.locator("#summary")).to_contain_text(
        "The target of 80.0% was reached first by fedcompass after 11 s, then fedbuff after "
        "41.5 s, fedavg after 48.44 s (1 of 3 seeds). Seeds that missed it count with the time "
        "the run had."
    )
    cells = page.locator("#strategies tbody tr").locator("td:nth-of-type(2)")
    assert cells.all_inner_texts() == ["– (1/3)", "41.5 s ± 0.5 s (3/3)", "11 s ± 1 s (3/3)"]


def test_the_speed_ratio_is_the_fleets_and_does_not_drift(tmp_path: Path, open_page: Open) -> None:
    ratio = "fedcompass.state.runs[0].speedRatio()"
    chosen = experiment(fleet={"jitter": 0.4, "latency_seconds": 0.3}, horizon=9.0)
    folder = tmp_path / "run"
    simulate(chosen, problem=problem(), folder=folder)
    page = open_page(report_of(folder, to=tmp_path / "report.html"))
    wanted = Fleet(chosen.fleet, chosen.seed).speed_ratio
    assert page.evaluate(ratio) == pytest.approx(wanted)
    expect(page.locator("#summary")).to_contain_text("the slowest needs 5 times as long")


def test_without_recorded_paces_the_ratio_is_of_median_rounds(
    tmp_path: Path, open_page: Open
) -> None:
    """One round of the fast client takes ten times as long: that is not its pace."""
    lines: list[dict[str, Any]] = []
    task = 0
    for client, rounds in {"0": [1.0, 1.0, 1.0, 10.0], "1": [4.0, 4.0, 4.0]}.items():
        at = 0.0
        for seconds in rounds:
            order = {"command": "StartTraining", "at": at, "client": client, "task": task}
            lines.append({**order, "steps": 10, "version": 0, "group": None})
            at += seconds
            arrived = {"event": "UpdateArrived", "at": at, "client": client, "task": task}
            lines.append({**arrived, "steps_done": 10})
            task += 1
    folder = written_run(tmp_path / "run", [], lines)
    page = open_page(report_of(folder, to=tmp_path / "report.html"))
    assert page.evaluate("fedcompass.state.runs[0].speedRatio()") == pytest.approx(4.0)


@pytest.fixture
def twelve(tmp_path: Path) -> Path:
    for n in range(12):
        rows = accuracies((0, 0.1), (3, 0.3 + 0.05 * n), (6, 0.4 + 0.05 * n))
        written_run(tmp_path / "runs" / f"{n:02d}", rows, strategy={"name": f"strategy {n:02d}"})
    return report_of(tmp_path / "runs", to=tmp_path / "report.html")


def test_twelve_strategies_have_lines_of_their_own_in_the_page(
    twelve: Path, open_page: Open
) -> None:
    page = open_page(twelve)
    drawn = page.evaluate(SERIES)
    assert len(drawn) == 12
    assert len({tuple(look) for look in drawn}) == 12
    for dark in (False, True):
        looks = open_page(twelve, dark=dark).evaluate(LOOKS)
        assert len({(colour, dash) for colour, dash, _ in looks}) == 12
        assert len({(colour, pale) for colour, _, pale in looks}) == 12


def test_page_and_figures_share_one_table_of_colours_and_dashes(
    twelve: Path, open_page: Open
) -> None:
    for number, (colour, dash, pale) in enumerate(open_page(twelve).evaluate(LOOKS)):
        wanted = line_look(number)
        assert colour.upper() == wanted["color"]
        on_page = [float(part) / 2.2 for part in dash.split()]
        assert on_page == pytest.approx(list(DASHES[number % len(DASHES)]))
        assert pale == ("facecolor" in bar_look(number))


def test_the_first_28_lines_and_14_bars_of_figures_differ() -> None:
    lines = [line_look(number) for number in range(28)]
    assert len({str(look) for look in lines}) == 28
    assert len({str(bar_look(number)) for number in range(14)}) == 14
    assert len(set(COLOURS)) == 7
