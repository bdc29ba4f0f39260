"""Draw docs/figures/: the paper's example schedules and a report, as the report's page shows them.

    python scripts/figures.py [FOLDER]

Needs Chromium (Debian: apt-get install chromium) and the dev extra.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, FloatRect, ViewportSize, sync_playwright

from fedcompass import Experiment, simulate
from fedcompass.report import find_runs, write_report
from fedcompass.report.recording import RecordedScheduler, new_record
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.simulation.timetable import timetable

CHROMIUM = "/usr/bin/chromium"
STEPS_PER_MINUTE = {"1": 10.0, "2": 5.0, "3": 4.0, "4": 2.5, "5": 2.0}
CHANGES = {  # minutes per step of client 3 from its second local round on
    "overview": None,
    "speed-up": 1 / 5,
    "slow-down-1": 1 / (10 / 3),
    "slow-down-2": 10.2 / 28,
}
UNTIL = 34.0


def record(figure: str, folder: Path) -> None:
    """Keep one of the paper's example schedules; times are minutes."""

    def minutes_per_step(client: str, local_round: int) -> float:
        changed = CHANGES[figure]
        if client == "3" and local_round >= 1 and changed is not None:
            return changed
        return 1 / STEPS_PER_MINUTE[client]

    settings = CompassSettings(min_steps=20, max_steps=100, latest=1.2, min_clients=5)
    journal = new_record(folder, settings, seed=0, unit="min")
    scheduler = RecordedScheduler(Compass(settings), journal)
    clients = dict.fromkeys(STEPS_PER_MINUTE, 100)
    for _ in timetable(scheduler, clients, minutes_per_step, UNTIL):
        pass
    journal.close()


def picture(browser: Browser, page: Path, target: Path, *, timeline: bool) -> None:
    """Take a picture of a page's timeline with its legend, or of the page's top."""
    size: ViewportSize = {"width": 1280, "height": 1130}
    tab = browser.new_page(viewport=size, device_scale_factor=1.5, color_scheme="light")
    tab.goto(page.resolve().as_uri())
    tab.evaluate("fedcompass.ready")
    tab.wait_for_timeout(200)  # a frame for the canvas
    clip: FloatRect | None = None
    if timeline:
        legend = tab.locator("#timeline .legend").bounding_box()
        chart = tab.locator("#timeline .chart").bounding_box()
        assert legend is not None
        assert chart is not None
        bottom = chart["y"] + chart["height"]
        clip = {**chart, "y": legend["y"], "height": bottom - legend["y"]}
    tab.screenshot(path=target, clip=clip)
    tab.close()
    print(target)


def main(target: Path) -> None:
    """Draw all figures into a folder."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for figure in CHANGES:
            folder = Path(scratch) / figure
            record(figure, folder)
            page = write_report(find_runs([folder]), folder / "report.html")
            picture(browser, page, target / f"{figure}.png", timeline=True)
        run = Path(scratch) / "run"
        simulate(Experiment(horizon=30.0), folder=run)
        page = write_report(find_runs([run]), run / "report.html")
        picture(browser, page, target / "report.png", timeline=False)
        browser.close()


if __name__ == "__main__":
    default = Path(__file__).parents[1] / "docs" / "figures"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
