"""How fast the report's page reads a long journal and moves, in Debian's Chromium.

    python -m benchmarks.report

Frames are timed in the browser while the timeline of 20 clients and 600 rounds is panned: the goal
is a median below 50 ms. Only a machine without other work gives figures that mean anything.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from fedcompass.report import find_runs, write_report

PAN = """async () => {
  const view = fedcompass.state.view;
  const gaps = [];
  let last = performance.now();
  for (let frame = 0; frame < 40; frame++) {
    view.pan(frame < 20 ? 0.03 : -0.03);
    await new Promise(requestAnimationFrame);
    gaps.push(performance.now() - last);
    last = performance.now();
  }
  return gaps.sort((a, b) => a - b)[20];
}"""  # the median milliseconds of a frame while panning

LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
}).observe({ type: "longtask", buffered: true });
"""

ZOOMS = {1.0: "everything in view", 0.2: "a fifth of it", 0.08: "bars with labels"}


def long_run(folder: Path, *, clients: int, rounds: int) -> Path:
    """So many rounds, one group each, in which client c needs 1 + c/100 s and then waits."""
    records: list[dict[str, Any]] = [{"journal": 1, "strategy": {"name": "fedcompass"}}]
    length = 1 + clients / 100
    for number in range(rounds):
        start, group = number * length, number + 1
        end = start + 1 + (clients - 1) / 100
        records.append({"command": "SetDeadline", "at": end + 0.1, "group": group})
        tasks = [(str(c), number * clients + c + 1, start + 1 + c / 100) for c in range(clients)]
        for client, task, _ in tasks:
            order = {"at": start, "client": client, "task": task, "steps": 50, "version": number}
            records.append({"command": "StartTraining", **order, "group": group})
        for client, task, at in tasks:
            answer = {"at": at, "client": client, "task": task}
            done = {"steps_done": 50, "compute_seconds": at - start}
            fold = {"buffer": group, "staleness": 0, "share": 1 / clients, "steps": 50}
            records.append({"event": "UpdateArrived", **answer, **done})
            records.append({"command": "Fold", **answer, **fold, "direct": False, "weight": 0.045})
        merged = [[client, task, 0] for client, task, _ in tasks]
        merge = {"version": group, "buffers": [group], "contributions": merged, "direct": False}
        records.append({"command": "Commit", "at": end, **merge})
    folder.mkdir()
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "journal.jsonl").write_text(text)
    return folder


def main() -> None:
    found = shutil.which("chromium")
    if found is None:
        sys.exit("chromium is not on the path; apt install chromium")
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = long_run(Path(name) / "run", clients=20, rounds=600)
        size = (folder / "journal.jsonl").stat().st_size
        page_file = write_report(find_runs([folder]), Path(name) / "report.html")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.add_init_script(LONG_TASKS)
        page.goto(page_file.as_uri())
        page.evaluate("fedcompass.ready")
        longest, whole = page.evaluate("[Math.max(0, ...longTasks), performance.now()]")
        print(f"journal {size / 1e6:.1f} MB, page {page_file.stat().st_size / 1e6:.2f} MB")
        print(f"drawn after {whole:.0f} ms, longest task {longest:.0f} ms")
        page.get_by_role("button", name="Show everything").click()
        for zoom, words in ZOOMS.items():
            page.evaluate(f"fedcompass.state.view.zoom({zoom})")
            print(f"median frame while panning, {words}: {page.evaluate(PAN):.1f} ms (goal 50)")
        browser.close()


if __name__ == "__main__":
    main()
