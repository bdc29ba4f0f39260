"""Looking closer at the curves, hiding lines, and saving charts as pictures, in a real browser."""

import json
import re
import struct
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FloatRect, Page, expect
from tests.report.conftest import report_of
from tests.report.figures.run_folders import accuracies, written_run
from tests.report.test_groups_in_browser import JOINED

Open = Callable[..., Page]

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two strategies with two seeds each, measured four times."""
    runs = tmp_path_factory.mktemp("runs")
    for number, name in enumerate(("fedavg", "fedcompass")):
        for seed in (0, 1):
            late = 2 * seed + 4 * number
            rows = accuracies((0, 0.1), (10 + late, 0.5 + seed / 10), (20 + late, 0.85), (40, 0.9))
            settings: dict[str, Any] = {
                "strategy": {"name": name},
                "seed": seed,
                "target": 0.8,
                "horizon": 40.0,
            }
            written_run(runs / f"{name}-{seed}", rows, [JOINED], **settings)
    return report_of(runs, to=runs / "report.html")


def plot(page: Page) -> FloatRect:
    """The box of the curves' chart."""
    page.locator("#curves").scroll_into_view_if_needed()
    box = page.locator("#curves .chart svg").bounding_box()
    assert box is not None
    return box


def lines(page: Page) -> list[str]:
    drawn: list[str] = page.locator("#curves path.series").evaluate_all(
        "some => some.map(p => p.getAttribute('d'))"
    )
    return drawn


def test_dragging_zooms_into_the_curves_and_a_double_click_shows_all(
    report: Path, open_page: Open
) -> None:
    page = open_page(report)
    box, whole = plot(page), lines(page)
    middle = box["y"] + 150
    page.mouse.move(box["x"] + 300, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, middle)
    page.mouse.up()
    low, high = page.evaluate("fedcompass.state.zoom")
    assert 0 < low < high < 40
    assert lines(page) != whole
    page.locator("#curves .chart svg").dblclick()
    assert page.evaluate("fedcompass.state.zoom") is None
    assert lines(page) == whole


def test_the_wheel_zooms_with_ctrl_and_a_button_shows_all(report: Path, open_page: Open) -> None:
    page = open_page(report)
    box = plot(page)
    page.mouse.move(box["x"] + 500, box["y"] + 150)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_function("() => fedcompass.state.zoom !== null")
    low, high = page.evaluate("fedcompass.state.zoom")
    assert high - low < 30
    page.get_by_role("button", name="show all").click()
    assert page.evaluate("fedcompass.state.zoom") is None


def test_a_click_on_a_name_hides_its_line_and_shows_it_again(report: Path, open_page: Open) -> None:
    page = open_page(report)
    name = page.locator("#curves .legend").get_by_role("button", name="fedavg")
    assert len(lines(page)) == 2
    name.click()
    assert len(lines(page)) == 1
    assert name.get_attribute("aria-pressed") == "false"
    name.click()
    assert len(lines(page)) == 2


def test_the_legend_tells_everything_that_is_drawn(report: Path, open_page: Open) -> None:
    page = open_page(report)
    words = page.locator("#curves .legend").inner_text()
    for entry in ("fedavg", "fedcompass", "± one standard deviation", "target", "first reached"):
        assert entry in words


def test_pointing_at_the_curves_tells_the_spread_over_seeds(report: Path, open_page: Open) -> None:
    page = open_page(report)
    box = plot(page)
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 150)
    expect(page.locator("#tip")).to_contain_text("fedavg: 55.0% ± 7.1%")


def test_a_comparison_opens_with_the_curves_and_marks_the_mean_time_to_target(
    report: Path, open_page: Open
) -> None:
    page = open_page(report)
    tops = {
        name: page.locator(f"#{name}").bounding_box()["y"]  # type: ignore[index]
        for name in ("curves", "strategies", "timeline")
    }
    assert tops["curves"] < tops["strategies"] < tops["timeline"]
    assert page.locator("#curves circle.dot").count() == 2  # one per strategy, not per seed
    assert page.locator("#curves line.whisker").count() == 2


@pytest.mark.parametrize("panel", ["curves", "timeline", "idle", "pace"])
@pytest.mark.parametrize("kind", ["svg", "png"])
def test_charts_are_saved_as_pictures_that_need_nothing_else(
    eventful_run: Path, tmp_path: Path, open_page: Open, panel: str, kind: str
) -> None:
    page = open_page(report_of(eventful_run, to=tmp_path / "report.html"))
    page.wait_for_function("() => fedcompass.settled()")
    with page.expect_download() as told:
        page.locator(f"#{panel} .exports button", has_text=kind.upper()).click()
    path = tmp_path / told.value.suggested_filename
    told.value.save_as(path)
    assert path.name == f"{panel}.{kind}"
    if kind == "png":
        content = path.read_bytes()
        width, height = struct.unpack(">II", content[16:24])
        assert content.startswith(b"\x89PNG")
        assert width > 800
        assert height > 300
        return
    root = ET.fromstring(path.read_text())
    shapes = [
        node for node in root.iter() if node.tag in (f"{SVG}path", f"{SVG}rect", f"{SVG}circle")
    ]
    assert len(shapes) >= 5
    words = " ".join(node.text or "" for node in root.iter(f"{SVG}text"))
    assert page.locator(f"#{panel} h2").inner_text() in words
    assert page.locator(f"#{panel} .key").first.inner_text().strip() in words
    text = path.read_text()
    assert "var(--" not in text
    named = set(re.findall(r"url\((?:&quot;)?#([\w-]+)", text))
    assert named <= {node.get("id") for node in root.iter()}
    assert "http" not in text.replace("http://www.w3.org/", "")


def test_neighbouring_groups_never_share_a_colour(
    eventful_run: Path, tmp_path: Path, open_page: Open
) -> None:
    page = open_page(report_of(eventful_run, to=tmp_path / "report.html"))
    repeated = page.evaluate(
        """() => {
          const [run] = fedcompass.state.runs;
          const colour = (task) => run.groupColours.get(task.group);
          return run.lanes.flatMap((lane) => lane.tasks.filter((task, i) => {
            const next = lane.tasks[i + 1];
            if (!next || task.group === null || next.group === null) return false;
            return task.group !== next.group && colour(task) === colour(next);
          })).length;
        }"""
    )
    assert repeated == 0


def test_the_header_tells_date_command_and_wall_time(
    eventful_run: Path, tmp_path: Path, open_page: Open
) -> None:
    page = open_page(report_of(eventful_run, to=tmp_path / "report.html"))
    words = page.locator("#origin").inner_text()
    assert words.startswith("Begun 20")
    assert " UTC, took " in words
    assert json.loads((eventful_run / "origin.json").read_text())["command"] in words
