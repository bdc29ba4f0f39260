"""Draws docs/gallery/: the report page of real runs, as Chromium shows it.

    python scripts/gallery.py [FOLDER OF RUNS]

Makes the runs it needs (a few minutes on two cores) in a folder, which can be used again.
"""

import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from fedcompass.report import LiveServer, RunFiles

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
ELEVEN = (
    "fedavg,fedavgm,fedadam,fedyogi,fedasync,fedbuff,fedat,fedcompass,fedcompass+m,fedcompass+n,"
    "metronome"
)
COMMANDS = {
    "run": "run --name run --seed 1",
    "compare": "compare --name compare",
    "eleven": f"compare --name eleven --seeds 1 --horizon 25 --strategies {ELEVEN}",
    "live": "run --name live --seed 2 --horizon 100 --executor serial",
}


class Shot(NamedTuple):
    """One picture: of which runs, how wide the window is and which part of the page is shown."""

    runs: str
    width: int = 1180
    height: int = 1500
    dark: bool = False
    part: str | None = None


SHOTS = {
    "run": Shot("run"),
    "compare": Shot("compare", height=1180),
    "slide": Shot("compare", part="#curves"),
    "eleven": Shot("eleven", height=1250),
    "live": Shot("live", height=1000),
    "phone": Shot("compare", width=390, height=1500),
    "dark": Shot("run", dark=True, height=1000),
}


def main() -> None:
    """Make what is missing, then photograph it."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="gallery-"))
    folder.mkdir(parents=True, exist_ok=True)
    GALLERY.mkdir(exist_ok=True)
    for name in ("run", "compare", "eleven"):
        if not (folder / "runs" / name / "report.html").exists():
            subprocess.run(command(name), cwd=folder, check=True)
    browser_path = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    with sync_playwright() as playwright, live(folder) as address:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for name, shot in SHOTS.items():
            page = browser.new_page(
                viewport={"width": shot.width, "height": shot.height},
                color_scheme="dark" if shot.dark else "light",
            )
            report = folder / "runs" / shot.runs / "report.html"
            page.goto(address if shot.runs == "live" else report.resolve().as_uri())
            take(page, name, shot)
            page.close()
        browser.close()


def command(name: str) -> list[str]:
    """The command line that makes runs."""
    return [sys.executable, "-m", "fedcompass", *COMMANDS[name].split()]


@contextmanager
def live(folder: Path) -> Iterator[str]:
    """The address of a run's page while the run goes on."""
    shutil.rmtree(folder / "runs" / "live", ignore_errors=True)
    with (folder / "live.log").open("w") as log:
        process = subprocess.Popen(command("live"), cwd=folder, stdout=log, stderr=log)
    try:
        while not (folder / "runs" / "live" / "metrics.jsonl").exists():
            process.poll()
            threading.Event().wait(0.5)
        with LiveServer([RunFiles(folder / "runs" / "live")], port=0) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield server.url
            server.shutdown()
            thread.join()
    finally:
        process.terminate()
        process.wait()


def take(page: Page, name: str, shot: Shot) -> None:
    """Photograph a page once all of it is drawn."""
    page.evaluate("fedcompass.ready")
    if shot.runs == "live":
        page.wait_for_function(
            "() => document.querySelector('#progress').textContent.includes('left')"
        )
        page.wait_for_function("() => fedcompass.state.runs[0].rows.length > 5")
    page.wait_for_function("() => fedcompass.settled()")
    target = page.locator(shot.part) if shot.part else page
    path = GALLERY / f"{name}.png"
    target.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(path)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
