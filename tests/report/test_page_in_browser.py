"""The report in a real browser: what is drawn, what hovering says, and how fast it moves."""

import json
from collections.abc import Callable
from math import isclose
from pathlib import Path
from typing import Any

import pytest
from benchmarks.report import long_run
from playwright.sync_api import Page, expect
from tests.report.conftest import clients_of, report_of
from tests.simulation import test_frozen_parameters as adapted
from tests.simulation.tiny_runs import STRATEGIES, eventful, experiment, problem

from fedcompass.runs.replay import replay
from fedcompass.simulation.run import simulate

Open = Callable[..., Page]

CHARTS = ("curves", "staleness", "idle", "steps", "pace", "contribution", "client-accuracy")

SUMS = """() => fedcompass.state.runs.map((run) => ({
  idle: run.idleShare(),
  staleness: run.meanStaleness(),
  updates: run.updates(),
  merges: run.merges.length,
  lanes: run.lanes.map((lane) => ({
    client: Number(lane.client), tasks: lane.tasks.length, updates: lane.updates,
    refused: lane.refused, not_finite: lane.notFinite, steps: lane.steps, weight: lane.weight,
    ...lane.until(run.end),
  })),
}))"""

PACES = "() => fedcompass.state.runs[0].lanes.map((lane) => [lane.client, lane.pace])"

INKED = """() => {
  const canvas = document.querySelector(".timeline canvas");
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let i = 0; i < pixels.length; i += 4) colours.add(`${pixels[i]},${pixels[i + 1]},${pixels[i + 2]}`);
  return colours.size;
}"""  # noqa: E501


def drawn(page: Page) -> None:
    """Wait until the timelines stand as they were last asked for."""
    page.wait_for_function("() => !fedcompass.state.view.asked && fedcompass.state.view.frames > 0")


def hover(page: Page, find: str) -> str:
    """Point at the first task that `find` picks; what the tooltip says."""
    place = page.evaluate(
        f"""() => {{
          const timeline = fedcompass.state.view.timelines[0];
          timeline.element.scrollIntoView({{ block: "center" }});
          const box = timeline.canvas.getBoundingClientRect();
          const {{ x, y }} = timeline.placeOf([...timeline.run.tasks.values()].find({find}));
          return {{ x: box.left + x, y: box.top + y }};
        }}"""
    )
    page.mouse.move(place["x"], place["y"])
    page.locator("#tip").wait_for(state="visible")
    return page.locator("#tip").inner_text()


@pytest.fixture(scope="module")
def report(eventful_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_of(eventful_run, to=tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def paper_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second slow-down figure: client 2 comes too late for its group."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
        from fedcompass.cli import app

    folder = tmp_path_factory.mktemp("paper") / "slow-down"
    paces = ["--paces", "0.1,0.2,0.25,0.4,0.5", "--change", f"2:1:{10.2 / 28}"]
    arguments = ["schedule", *paces, "--until", "24", "--record", str(folder), "--unit", "min"]
    app(arguments, standalone_mode=False)
    return report_of(folder, to=folder / "report.html")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_every_panel_has_data_at_both_widths_in_light_and_dark(
    report: Path, open_page: Open, width: int, dark: bool
) -> None:
    page = open_page(report, width=width, dark=dark)
    for panel in CHARTS:
        shapes = page.locator(f"#{panel} svg.chart, #{panel} .chart svg").locator(
            "path.series, rect.bar, circle.point"
        )
        assert shapes.count() > 0, panel
    drawn(page)
    assert page.evaluate(INKED) > 8
    assert page.locator("#settings tbody tr").count() > 20
    assert page.locator(".missing").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 22, 27)" if dark else "rgb(246, 247, 249)")


def test_the_page_begins_with_two_plain_sentences(report: Path, open_page: Open) -> None:
    page = open_page(report)
    summary = page.locator("#summary").inner_text()
    assert summary.startswith("4 clients train one model together, without sharing their data,")
    assert summary.count(". ") == 1
    assert "waiting for others" in summary
    expect(page.locator("#status")).to_have_text("finished")
    expect(page.locator("#timeline .caption").first).to_contain_text("each bar one round")


def test_the_theme_can_be_switched(report: Path, open_page: Open) -> None:
    page = open_page(report)
    page.get_by_role("button", name="Switch between light and dark").click()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(18, 22, 27)"


def test_the_pages_sums_are_those_of_the_run_under_every_strategy(
    tmp_path: Path, open_page: Open
) -> None:
    folders = [tmp_path / strategy for strategy in STRATEGIES]
    for folder in folders:
        simulate(eventful(folder.name), problem=problem(broken=2), folder=folder)
    page = open_page(report_of(*folders, to=tmp_path / "report.html"))
    for folder, sums in zip(folders, page.evaluate(SUMS), strict=True):
        summary = json.loads((folder / "summary.json").read_text())
        assert isclose(sums["idle"], summary["idle_share"], rel_tol=1e-6, abs_tol=1e-9)
        assert isclose(sums["staleness"], summary["mean_staleness"], abs_tol=1e-9)
        assert sums["updates"] == summary["updates"]
        assert sums["merges"] == summary["global_updates"]
        for lane, client in zip(sums["lanes"], clients_of(folder), strict=True):
            for key, value in client.items():
                assert isclose(lane[key], value, rel_tol=1e-6, abs_tol=1e-6), (client, key)


def test_the_pages_pace_estimates_are_the_schedulers(tmp_path: Path, open_page: Open) -> None:
    pace = {"newest_weight": 0.4, "overhead_aware": True}
    chosen = experiment(strategy={"pace": pace}, fleet={"latency_seconds": 0.05, "jitter": 0.3})
    simulate(chosen, problem=problem(), folder=tmp_path / "run")
    scheduler = replay(tmp_path / "run" / "journal.jsonl").scheduler
    page = open_page(report_of(tmp_path / "run", to=tmp_path / "report.html"))
    for client, seen in page.evaluate(PACES):
        estimate = scheduler.pace(client)
        assert estimate is not None
        assert estimate.overhead > 0
        assert seen["perStep"] == pytest.approx(estimate.seconds_per_step, rel=1e-6)
        assert seen["overhead"] == pytest.approx(estimate.overhead, rel=1e-5)


def test_hovering_a_bar_names_the_client_its_steps_group_and_staleness(
    paper_report: Path, open_page: Open
) -> None:
    page = open_page(paper_report)
    words = hover(page, "(task) => task.lane.client === '4' && task.group === 2")
    assert "client 4" in words
    assert "24 steps, group 2" in words
    assert "10:00 to 22:00, from version 5" in words
    assert "staleness 1: 1 version behind" in words


def test_hovering_a_late_bar_says_so(paper_report: Path, open_page: Open) -> None:
    page = open_page(paper_report)
    words = hover(page, "(task) => task.state === 'late'")
    assert "client 2" in words
    assert "28 steps, group 1" in words
    assert "05:00 to 15:12" in words
    assert "late: its group had merged" in words
    expect(page.locator("#timeline .legend")).to_contain_text("came late")


def test_hovering_a_merge_names_its_contributors_and_their_staleness(
    paper_report: Path, open_page: Open
) -> None:
    page = open_page(paper_report)
    place = page.evaluate(
        """() => {
          const timeline = fedcompass.state.view.timelines[0];
          const box = timeline.canvas.getBoundingClientRect();
          return { x: box.left + timeline.x(22), y: box.top + 28 };
        }"""
    )
    page.mouse.move(place["x"], place["y"])
    lines = page.locator("#tip").inner_text().splitlines()
    assert lines[0] == "merge of group 2 at 22:00: version 7"
    assert lines[1:] == [
        "client 3: 2 versions behind",
        "client 4: 1 version behind",
        "client 0: up to date",
        "client 1: up to date",
        "client 2: 3 versions behind",
    ]


def test_zoom_and_pan_by_buttons_wheel_drag_and_keys(paper_report: Path, open_page: Open) -> None:
    page = open_page(paper_report)

    def window() -> tuple[float, float]:
        start, end = page.evaluate("[fedcompass.state.view.from, fedcompass.state.view.to]")
        return start, end

    whole = window()
    page.get_by_role("button", name="Zoom in").click()
    closer = window()
    assert closer[1] - closer[0] == pytest.approx(0.6 * (whole[1] - whole[0]))
    page.get_by_role("button", name="Later").click()
    assert window()[0] > closer[0]
    timeline = page.locator(".timeline")
    timeline.focus()
    for key in ("ArrowLeft", "ArrowLeft", "+"):
        page.keyboard.press(key)
    assert window()[1] - window()[0] == pytest.approx(0.7 * (closer[1] - closer[0]))
    page.keyboard.press("0")
    assert window() == pytest.approx(whole)
    box = page.locator(".timeline canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_function("() => !fedcompass.state.view.whole")
    before = window()
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 100, steps=4)
    page.mouse.up()
    assert window()[0] > before[0]


def test_bars_can_be_visited_by_keyboard_and_are_told(paper_report: Path, open_page: Open) -> None:
    page = open_page(paper_report)
    page.locator(".timeline").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(f"Shift+{key}")
    spoken = page.locator("#spoken").inner_text()
    assert spoken.startswith("client 1. ")
    assert "steps" in spoken
    expect(page.locator("#tip")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#tip")).to_be_hidden()


def test_every_chart_is_also_a_table(report: Path, open_page: Open) -> None:
    page = open_page(report)
    for panel in ("timeline", *CHARTS):
        page.locator(f"#{panel} summary").click()
        page.locator(f"#{panel} details tbody tr").first.wait_for()
    steps = page.locator("#steps details tbody tr")
    run = page.evaluate(SUMS)[0]
    assert [steps.nth(i).locator("td").first.inner_text() for i in range(4)] == [
        str(lane["steps"]) for lane in run["lanes"]
    ]


def test_the_curves_can_be_seen_over_updates_and_bytes(report: Path, open_page: Open) -> None:
    page = open_page(report)
    curves = page.locator("#curves")
    expect(curves).to_contain_text("virtual time (s)")
    expect(curves).to_contain_text("target 70.0%")
    expect(curves).to_contain_text("Time to target.")
    curves.get_by_role("button", name="bytes sent").click()
    expect(curves).to_contain_text("bytes sent to and from clients")
    assert page.evaluate("fedcompass.state.runs[0].modelBytes") == 4 * 67 + 8
    curves.get_by_role("button", name="global updates").click()
    curves.get_by_role("button", name="loss").click()
    expect(curves.locator("svg").last).to_contain_text("loss")
    assert curves.locator("path.series").count() == 1


def test_bytes_sent_leave_out_the_frozen_part_of_a_model(tmp_path: Path, open_page: Open) -> None:
    simulate(adapted.experiment(), problem=adapted.problem(), folder=tmp_path / "run")
    page = open_page(report_of(tmp_path / "run", to=tmp_path / "report.html"))
    assert page.evaluate("fedcompass.state.runs[0].modelBytes") == 4 * (6 * 2 + 2 * 4)


def test_seeds_become_a_band_and_strategies_share_one_time_axis(
    tmp_path: Path, open_page: Open
) -> None:
    for name in ("fedcompass", "fedavg"):
        for seed in (0, 1):
            folder = tmp_path / "runs" / f"{name}-{seed}"
            simulate(experiment(name, seed=seed), problem=problem(), folder=folder)
    page = open_page(report_of(tmp_path / "runs", to=tmp_path / "report.html"))
    assert page.locator("#curves path.band").count() == 2
    assert page.locator("#strategies tbody tr").count() == 2
    assert page.locator("#timeline h3").all_inner_texts() == [
        "fedavg, seed 0",
        "fedcompass, seed 0",
    ]
    page.get_by_role("button", name="Zoom in").click()
    drawn(page)
    starts = page.evaluate("fedcompass.state.view.timelines.map((t) => t.time(t.width / 2))")
    widths = page.evaluate("fedcompass.state.view.timelines.map((t) => [t.gutter, t.width])")
    assert starts[0] == starts[1]
    assert widths[0] == widths[1]
    page.get_by_label("Per-client panels:").select_option("fedavg")
    expect(page.locator("#steps .caption").first).to_contain_text("Shown: fedavg, seed 0.")
    page.get_by_label("Timelines and per-client panels of seed").select_option("1")
    expect(page.locator("#timeline h3").first).to_have_text("fedavg, seed 1")


def named_run(folder: Path, name: str) -> Path:
    """A deployment with one client of this name, one answer and one refused forgery."""
    folder.mkdir()
    (folder / "deployment.toml").write_text(f"name = {json.dumps(name)}\n")
    client = {"client": name}
    records: list[dict[str, Any]] = [
        {"journal": 1, "strategy": {"name": name}},
        {"event": "ClientJoined", "at": 0.0, **client, "samples": 3},
        {
            "command": "StartTraining",
            "at": 0.0,
            **client,
            "task": 1,
            "steps": 4,
            "version": 0,
            "group": None,
        },
        {"event": "UpdateRefused", "at": 0.5, **client, "task": 9, "reason": name},
        {"event": "UpdateArrived", "at": 1.0, **client, "task": 1, "steps_done": 4},
        {
            "command": "Fold",
            "at": 1.0,
            **client,
            "task": 1,
            "buffer": 0,
            "staleness": 0,
            "share": 1.0,
            "steps": 4,
            "direct": True,
            "weight": 0.9,
        },
        {
            "command": "Commit",
            "at": 1.0,
            "version": 1,
            "buffers": [0],
            "contributions": [[name, 1, 0]],
            "direct": True,
        },
        {
            "command": "StartTraining",
            "at": 1.0,
            **client,
            "task": 2,
            "steps": 4,
            "version": 1,
            "group": None,
        },
    ]
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "journal.jsonl").write_text(text)
    metrics = {"time": 1.0, "version": 1, name: 0.5, "accuracy": 0.5, "clients": {name: 0.4}}
    (folder / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")
    return folder


EVIL = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


def test_a_client_with_markup_for_a_name_does_no_harm(tmp_path: Path, open_page: Open) -> None:
    folder = named_run(tmp_path / "run", EVIL)
    page = open_page(report_of(folder, to=tmp_path / "report.html"))
    assert "owned" not in page.evaluate("document.title").split(" – ")[-1]
    assert EVIL in hover(page, "(task) => true")
    for summary in page.locator("details:visible > summary").all():
        summary.click()
    assert page.locator("main img").count() == 0
    assert page.evaluate("[...document.scripts].filter((s) => !s.type).length") == 1
    expect(page.locator("#contribution details")).to_contain_text(EVIL)


def test_a_refused_forgery_is_marked_where_it_came(tmp_path: Path, open_page: Open) -> None:
    folder = named_run(tmp_path / "run", "site-a")
    page = open_page(report_of(folder, to=tmp_path / "report.html"))
    [lane] = page.evaluate("fedcompass.state.runs[0].lanes.map((l) => [l.marks, l.refused])")
    assert lane == [[{"at": 0.5, "reason": "site-a"}], 1]
    expect(page.locator("#status")).to_have_text("not finished")
    expect(page.locator("#client-accuracy .chart")).to_contain_text("site-a")


def test_an_empty_run_says_what_it_waits_for(tmp_path: Path, open_page: Open) -> None:
    (tmp_path / "experiment.toml").write_text("seed = 1\n")
    page = open_page(report_of(tmp_path, to=tmp_path / "report.html"))
    expect(page.locator("#summary")).to_contain_text("Waiting for the first clients to join.")
    expect(page.locator("#timeline .missing")).to_have_text("No client has joined yet.")


TICKS = "window.ticks = 0; setInterval(() => window.ticks++, 4);"


def test_a_five_megabyte_journal_is_read_in_pieces_that_let_the_page_breathe(
    tmp_path: Path, open_page: Open
) -> None:
    folder = long_run(tmp_path / "run", clients=20, rounds=600)
    assert (folder / "journal.jsonl").stat().st_size > 5_000_000
    path = report_of(folder, to=tmp_path / "report.html")
    assert path.stat().st_size < 2_000_000
    page = open_page(path, before=TICKS)
    ticks = page.evaluate("window.ticks")
    assert ticks >= 3, "the page did nothing else while it read"  # `benchmarks.report` times it
    assert page.evaluate("fedcompass.state.runs[0].tasks.size") == 20 * 600
    page.get_by_role("button", name="Show everything").click()
    for zoom in (1, 0.2, 0.4):  # everything, many bars, bars with labels
        page.evaluate(f"fedcompass.state.view.zoom({zoom})")
        drawn(page)
    assert page.evaluate(INKED) > 5


def diverging(folder: Path, **changes: Any) -> Path:
    chosen = experiment(local={"learning_rate": 1e30}, horizon=30.0, **changes)
    simulate(chosen, problem=problem(), folder=folder)
    return folder


def test_the_headline_of_a_run_that_diverged_says_so(tmp_path: Path, open_page: Open) -> None:
    page = open_page(report_of(diverging(tmp_path / "run"), to=tmp_path / "report.html"))
    expect(page.locator("#summary")).to_contain_text(
        "of 30 s: nobody was left to train (4 of 4 clients in quarantine). 12 updates refused for "
        "NaN or infinity. 4 clients train"
    )
    expect(page.locator("#summary")).to_contain_text("This run broke off at ")
    expect(page.locator("#status")).to_have_text("broke off")


def test_an_old_record_of_a_run_that_broke_off_is_recognised(
    tmp_path: Path, open_page: Open
) -> None:
    folder = diverging(tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    del summary["ended"], summary["refused_not_finite"], summary["quarantined"]
    (folder / "summary.json").write_text(json.dumps(summary))
    page = open_page(report_of(folder, to=tmp_path / "report.html"))
    expect(page.locator("#status")).to_have_text("broke off")


def test_a_comparison_names_the_run_that_broke_off(tmp_path: Path, open_page: Open) -> None:
    for seed in (0, 1):
        chosen = experiment("fedavg", seed=seed, horizon=30.0)  # as the other's, to be compared
        simulate(chosen, problem=problem(), folder=tmp_path / f"a{seed}")
    diverging(tmp_path / "b0")
    page = open_page(report_of(*sorted(tmp_path.iterdir()), to=tmp_path / "report.html"))
    expect(page.locator("#summary")).to_contain_text("fedcompass broke off at ")
    expect(page.locator("#summary")).to_contain_text("12 updates refused for NaN or infinity (fed")
    cells = page.locator("#strategies tbody tr").nth(1).locator("td")
    assert cells.first.inner_text() == "1, 1 broke off"
