"""Writes the tables of studies into the docs, from results/.

    python scripts/study_tables.py          # write them
    python scripts/study_tables.py --check  # say whether they are up to date
    python scripts/study_tables.py --draw   # and the picture of Metronome's two on MNIST

docs/reproduction/readings.md names the command of each of its tables. docs/metronome-tables.md has
one of each studies/metronome-*.toml: `fedcompass table studies/NAME.toml --store results/NAME.jsonl
--paired --columns fleet --format markdown`, or of what else a study has that tells more. A study
without results is left out.
"""

import re
import shlex
import sys
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

from matplotlib.axes import Axes
from typer.testing import CliRunner

from fedcompass.cli import app
from fedcompass.cli.table import table
from fedcompass.report.figures.style import (
    COLOURS,
    PAGE,
    new_figure,
    publication_style,
    save_figure,
)
from fedcompass.sweeps.paired import Paired, paired
from fedcompass.sweeps.results import Results
from fedcompass.sweeps.store import Store
from fedcompass.sweeps.sweep_file import Sweep

ROOT = Path(__file__).parent.parent
PAGE_FILE = ROOT / "docs" / "metronome-tables.md"
PAGE_PICTURE = ROOT / "docs" / "figures" / "metronome-study.png"
STRONGEST = "row=fedcompass +a 0.05, cost apart"
REFERENCES = dict.fromkeys(("metronome-fresh", "metronome-iid", "metronome-paces"), STRONGEST)
"""Of studies whose question is about another row than FedCompass as written."""
READINGS = ROOT / "docs" / "reproduction" / "readings.md"
_COMMAND = re.compile(
    r"(```\nfedcompass table (.*?)\n```\n<!-- table -->\n).*?(<!-- end -->)", re.DOTALL
)
_SECTION = re.compile(r"(<!-- study: tables -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """The page with the tables as the results give them now."""
    tables = "".join(_tables(file) for file in sorted((ROOT / "studies").glob("metronome-*.toml")))
    return _SECTION.sub(lambda found: f"{found[1]}{tables}{found[2]}", text)


def readings(text: str) -> str:
    """The page of both readings, with what each of its commands prints."""
    return _COMMAND.sub(lambda found: f"{found[1]}\n{_printed(found[2])}\n\n{found[3]}", text)


def _printed(arguments: str) -> str:
    with chdir(ROOT):
        shown = CliRunner().invoke(app, ["table", *shlex.split(arguments), "--format", "markdown"])
    if shown.exit_code != 0:
        sys.exit(f"fedcompass table {arguments}: {shown.output}")
    return shown.stdout.strip()


def _tables(study: Path) -> str:
    store = ROOT / "results" / f"{study.stem}.jsonl"
    if not store.exists():
        return ""
    axes = Sweep.from_toml(study).axes
    columns = next((axis for axis in ("goal", "fleet", "fleet.clients") if axis in axes), None)
    printed = StringIO()
    with redirect_stdout(printed):
        table(
            study,
            output_format="markdown",
            columns=columns,
            paired=True,
            store=store,
            reference=REFERENCES.get(study.stem, "fedcompass"),
        )
    command = f"fedcompass table studies/{study.name} --store results/{store.name} --paired"
    if columns is not None:
        command += f" --columns {columns}"
    if study.stem in REFERENCES:
        command += f" --reference '{REFERENCES[study.stem]}'"
    return f"\n## {study.stem}\n\n`{command}`\n\n{printed.getvalue().strip()}\n\n"


def draw() -> None:
    """Times over FedCompass's with their intervals, a panel for each fleet that MNIST ran on.

    A fleet that lacks runs is left out: its first ones are not a fair choice of them.
    """
    studies = [_panels(name) for name in ("metronome-exponential", "metronome-others")]
    with publication_style():
        figure = new_figure(PAGE, 4.6)
        heights = [max(map(len, panels.values())) + 3 for panels in studies]
        parts = figure.subfigures(len(studies), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, panels in zip(parts, studies, strict=True):
            places = part.subplots(1, len(panels), sharey=True, squeeze=False)[0]
            for axes, (fleet, rows) in zip(places, panels.items(), strict=True):
                _draw_panel(axes, fleet, rows)
        parts[-1].supxlabel(
            "time to 90% over FedCompass's (less is faster), 95% intervals", fontsize=8
        )
        save_figure(figure, PAGE_PICTURE)


def _panels(study: str) -> dict[str, list[Paired]]:
    results = _results(study)
    return {
        fleet: paired(results, "row=fedcompass", {"fleet": fleet})
        for fleet in results.axes["fleet"]
        if all(run.is_done for run in results.where("fleet", fleet).runs)
    }


def _results(name: str) -> Results:
    plan = Sweep.from_toml(ROOT / "studies" / f"{name}.toml").plan()
    return Results.of_plan(plan, Store(ROOT / "results" / f"{name}.jsonl"))


def _draw_panel(axes: Axes, fleet: str, rows: list[Paired]) -> None:
    for place, row in enumerate(rows):
        colour = COLOURS[1] if row.label.startswith("metronome") else COLOURS[0]
        axes.plot([row.time.low, row.time.high], [place, place], color=colour)
        axes.plot(row.time.mean, place, "o", color=colour, markersize=3)
    axes.axvline(1, color="0.6", linewidth=0.8)
    title = f"exponential,\n{fleet}" if fleet.startswith("floor") else fleet
    axes.set(xscale="log", xlim=(0.18, 2), title=title, ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks([0.25, 0.5, 1, 2], ["1/4", "1/2", "1", "2"])
    axes.minorticks_off()
    axes.set_yticks(range(len(rows)), [row.label for row in rows])


def main() -> None:
    """Write the pages, or with --check fail where one is not what the results give."""
    if "--draw" in sys.argv:
        draw()
    for file, write in ((PAGE_FILE, page), (READINGS, readings)):
        old = file.read_text(encoding="utf-8")
        new = write(old)
        if "--check" not in sys.argv:
            file.write_text(new, encoding="utf-8")
        elif new != old:
            sys.exit(f"{file} is not what results/ gives; run: python scripts/study_tables.py")


if __name__ == "__main__":
    main()
