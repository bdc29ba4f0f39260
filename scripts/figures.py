"""Draw docs/figures/: example schedules and a report, as the report's page shows them.

    python scripts/figures.py [FOLDER [FIGURE ...]]

Needs Chromium (Debian: apt-get install chromium) and the dev extra.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, FloatRect, ViewportSize, sync_playwright

from fedcompass import Experiment, simulate
from fedcompass.report import find_runs, write_report
from fedcompass.report.recording import new_record
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.metronome import Metronome, MetronomeSettings
from fedcompass.scheduling.policy import Policy
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.simulation.timetable import timetable

CHROMIUM = "/usr/bin/chromium"
MINUTES_PER_STEP = {"1": 1 / 10, "2": 1 / 5, "3": 1 / 4, "4": 1 / 2.5, "5": 1 / 2}
CHANGES = {  # minutes per step of client 3 from its second local round on
    "overview": None,
    "speed-up": 1 / 5,
    "slow-down-1": 1 / (10 / 3),
    "slow-down-2": 10.2 / 28,
}
UNTIL = 34.0
UNEQUAL = {"0": 0.01, "1": 0.06, "2": 0.1, "3": 0.16, "4": 0.5}  # seconds per step


def record(
    folder: Path, policy: Policy, paces: dict[str, float], until: float, unit: str, **change: float
) -> Path:
    """Keep a schedule; `change` has the paces of clients from their second local round on."""

    def time_per_step(client: str, local_round: int) -> float:
        return change.get(f"client_{client}", paces[client]) if local_round else paces[client]

    journal = new_record(folder, policy.settings, seed=0, unit=unit)
    samples = dict.fromkeys(paces, 100)
    for _ in timetable(Scheduler(policy), samples, time_per_step, until, journal=journal):
        pass
    journal.close()
    return folder


def example(figure: str, folder: Path) -> list[Path]:
    """One of the paper's example schedules; times are minutes."""
    policy = Compass(CompassSettings(min_steps=20, max_steps=100, latest=1.2, min_clients=5))
    changed = CHANGES[figure]
    change = {} if changed is None else {"client_3": changed}
    return [record(folder / figure, policy, MINUTES_PER_STEP, UNTIL, "min", **change)]


def both(folder: Path) -> list[Path]:
    """What Compass and Metronome make of one fleet, each with its usual settings."""
    policies: dict[str, Policy] = {
        "fedcompass": Compass(CompassSettings(min_clients=5)),
        "metronome": Metronome(MetronomeSettings(min_clients=5)),
    }
    return [record(folder / n, policy, UNEQUAL, 30.0, "s") for n, policy in policies.items()]


def real_run(folder: Path) -> list[Path]:
    """Half a minute of FedCompass on the bundled data."""
    simulate(Experiment(horizon=30.0), folder=folder / "run")
    return [folder / "run"]


FIGURES: dict[str, Callable[[Path], list[Path]]] = {
    **{figure: partial(example, figure) for figure in CHANGES},
    "metronome": both,
    "report": real_run,
}


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


def main(target: Path, figures: list[str]) -> None:
    """Draw figures into a folder."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for figure in figures:
            runs = find_runs(FIGURES[figure](Path(scratch) / figure))
            page = write_report(runs, Path(scratch) / f"{figure}.html")
            picture(browser, page, target / f"{figure}.png", timeline=figure != "report")
        browser.close()


if __name__ == "__main__":
    default = Path(__file__).parents[1] / "docs" / "figures"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default, sys.argv[2:] or list(FIGURES))
